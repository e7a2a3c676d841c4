"""A chat request with the router on: from its body to the response, or to what the engine is to write.

With `tool_choice` none the model answers, without calls; from results of client's tools it answers, too, unless
`tool_choice` demands another call; in all other cases the router chooses.
"""

import asyncio
from dataclasses import replace
from typing import Any

from serving.chat import ChatPrompt, chat_prompt
from serving.engine_thread import EngineThread
from serving.openai_format import ResponseForm, ResponseWriter
from serving.responses import Planned
from serving.routing.client_tools import client_tools_of, name_in_calls
from serving.routing.conversation import conversation_of
from serving.routing.router import Router, RouteRequest
from serving.routing.schemas import RoutedChatRequest, choice_of
from serving.routing.writers import AnswerWriter, ClientCallWriter
from serving.schemas import decode_settings
from toolformer_core.decode.records import Generation, GenerationSettings
from toolformer_core.errors import UnknownNameError
from toolformer_core.grounding.library import LibraryTool
from toolformer_core.lm.tokens import encode_following, tokenize
from toolformer_core.records import Call
from toolformer_core.syntax import linearize


async def plan_chat(router: Router, thread: EngineThread, body: RoutedChatRequest, form: ResponseForm) -> Planned:
    """Decide how a request is answered; a call of one of the server's tools has run by then. Errors as of `route`."""
    conversation, choice = conversation_of(body.messages), choice_of(body)
    tokenizer = thread.toolformer.lm.hf_model.tokenizer
    prompt = chat_prompt(tokenizer, conversation.turns)
    client = await asyncio.to_thread(client_tools_of, body.tools or ())  # many schemas take a while
    settings = [replace(s, top_k=0, max_calls=0) for s in decode_settings(body, 1, prompt.stops)]
    if choice.kind == "none" or (choice.kind == "auto" and conversation.opening):
        return _plain(prompt, conversation.opening, settings, form)
    server, threshold = _server_tools(router, body), body.toolformer.threshold
    request = RouteRequest(conversation.query, settings[0].context, choice, server, client, threshold)
    route = await router.route(request)
    if route.written is None:
        return _plain(prompt, "", settings, form)
    prompt_tokens = route.written.prompt_tokens
    if route.call is None:
        tokens = len(encode_following(tokenizer, linearize(Call(name_in_calls(route.function), route.input))))
        return Planned(ClientCallWriter(form, route.function, route.arguments, prompt_tokens, tokens), [], [])
    text, tokens, finish = _cut(tokenizer, route.call.response, settings[0])
    written = linearize(Call(route.call.tool, route.call.input), route.call.response)
    calls, call_tokens = (replace(route.call, start=0, end=len(written)),), len(encode_following(tokenizer, written))
    answer = Generation(f"{written} {text}", f" {text}", calls, finish, prompt_tokens, tokens, call_tokens, 0, ())
    return Planned(AnswerWriter(replace(form, leading_space=True), answer), [], [])


def _server_tools(router: Router, body: RoutedChatRequest) -> tuple[LibraryTool, ...]:
    """Return those of the server's tools that a request allows; an `UnknownNameError` if it names another."""
    own, library = body.toolformer, {one.key: one for one in router.settings.library}
    for key in own.tools or ():
        if key not in library:
            raise UnknownNameError("tool", key, library)
    if not own.k or not own.max_calls:
        return ()
    return tuple(one for key, one in library.items() if own.tools is None or key in own.tools)


def _cut(tokenizer: Any, response: str, settings: GenerationSettings) -> tuple[str, int, str]:
    """Return a response up to a stop string or `max_tokens` of the request, its tokens, and why it ends there."""
    text = response[: min((at for at in map(response.find, settings.stop) if at >= 0), default=len(response))]
    (tokens,) = tokenize(tokenizer, [f" {text}"], follow=True)
    limit = settings.max_new_tokens
    if len(tokens.ids) <= limit:
        return text, len(tokens.ids), "stop"
    return f" {text}"[: int(tokens.cuts[limit])].removeprefix(" "), limit, "length"


def _plain(prompt: ChatPrompt, opening: str, settings: list[GenerationSettings], form: ResponseForm) -> Planned:
    """Plan an answer that the model writes alone, from results of the client's tools if there are any."""
    text = prompt.text
    if opening:
        text += f" {opening}" if prompt.leading_space else opening
    form = replace(form, leading_space=prompt.leading_space or bool(opening))
    return Planned(ResponseWriter(form), [text] * form.choices, settings)
