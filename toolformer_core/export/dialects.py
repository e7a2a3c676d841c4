"""Conversations as rows: in OpenAI's form, which TRL and axolotl read, as LLaMA-Factory reads ShareGPT, or as a text.

    openai     {"messages": [...], "tools": "[...]"}; a call's arguments as a dict or as a JSON string
    sharegpt   {"conversations": [{"from", "value"}], "tools": "[...]"}; human and observation alternate with gpt and
               function_call, so a fixed human turn stands between a text of gpt and the next function_call
    text       {"text": "..."}: the openai messages, rendered with a tokenizer's chat template

`tools` is always a JSON string: Arrow, into which `datasets` reads rows, gives all structs the keys of all others.
Where a tool's calls give arguments, `inputs` of openai and sharegpt rows has the inputs of all calls as the text has
them: from arguments alone neither spaces nor quotes can be inferred.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from toolformer_core.errors import UsageError
from toolformer_core.export.conversation import DEFAULT_REQUESTS, Conversation, Requests, Turn
from toolformer_core.export.schemas import ToolSchema
from toolformer_core.records import Call

Arguments = Literal["dict", "json"]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _message(turn: Turn, schemas: Mapping[str, ToolSchema], arguments: Arguments) -> dict[str, Any]:
    if turn.call is None:
        return {"role": turn.role, "content": turn.content}
    if turn.role == "tool":
        return {"role": "tool", "name": turn.call.tool, "content": turn.content}
    given: Any = schemas[turn.call.tool].arguments(turn.call.input)
    function = {"name": turn.call.tool, "arguments": _json(given) if arguments == "json" else given}
    return {"role": "assistant", "content": turn.content, "tool_calls": [{"type": "function", "function": function}]}


def _inputs(conversation: Conversation, schemas: Mapping[str, ToolSchema]) -> dict[str, list[str]]:
    """Return the column `inputs`, which every row of an export has, or none: loaders want equal keys."""
    if all(schema.form is None for schema in schemas.values()):
        return {}
    return {"inputs": [turn.call.input for turn in conversation if turn.role == "assistant" and turn.call]}


def openai_row(
    conversation: Conversation, schemas: Mapping[str, ToolSchema], arguments: Arguments = "json"
) -> dict[str, Any]:
    """Return `messages` and `tools`, with a call's arguments as a JSON string or as a dict.

    `schemas` are those of every tool that the model may call, by its name in calls. A BadInput as in
    `ToolSchema.arguments`.
    """
    return {
        "messages": [_message(turn, schemas, arguments) for turn in conversation],
        "tools": _json([schema.tool() for schema in schemas.values()]),
        **_inputs(conversation, schemas),
    }


def sharegpt_row(
    conversation: Conversation, schemas: Mapping[str, ToolSchema], requests: Requests = DEFAULT_REQUESTS
) -> dict[str, Any]:
    """Return `conversations` and `tools`; the arguments of a `function_call` are a dict within its JSON string.

    The second of `requests` is the human turn between a text and the next call. Schemas and errors are those of
    `openai_row`.
    """
    said: list[tuple[str, str]] = []
    for turn in conversation:
        if turn.role != "assistant":
            said.append(("human" if turn.role == "user" else "observation", turn.content))
        elif turn.call is None:
            said.append(("gpt", turn.content))
        else:
            if turn.content:
                said += [("gpt", turn.content), ("human", requests.next)]
            given = schemas[turn.call.tool].arguments(turn.call.input)
            said.append(("function_call", _json({"name": turn.call.tool, "arguments": given})))
    turns = [{"from": who, "value": value} for who, value in said]
    described = _json([schema.function() for schema in schemas.values()])
    return {"conversations": turns, "tools": described, **_inputs(conversation, schemas)}


def rendered(
    tokenizer: Any, conversation: Conversation, schemas: Mapping[str, ToolSchema], arguments: Arguments = "dict"
) -> str:
    """Return a conversation as the tokenizer's chat template writes it; errors as of `openai_row`.

    A UsageError if the tokenizer has no chat template, or it refuses the turns.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError("the tokenizer has no chat template: name another, or export another dialect")
    from jinja2 import TemplateError

    messages = [_message(turn, schemas, arguments) for turn in conversation]
    tools = [schema.tool() for schema in schemas.values()]
    try:
        return str(tokenizer.apply_chat_template(messages, tools=tools, tokenize=False))
    except (TemplateError, TypeError, ValueError) as exc:
        raise UsageError(f"the chat template refuses the turns ({exc}); the other `--arguments` may do") from exc


def check_template(tokenizer: Any, arguments: Arguments) -> None:
    """Render a conversation and look for all that it says, so that a template which leaves calls out is found out.

    A UsageError if it refuses the turns, leaves a part of them out, or writes arguments as a string within a string.
    """
    schema = ToolSchema("QuailTool", "Finds quails.", "quailinput")
    call = Call("QuailTool", "quail in")
    response = Turn("tool", "quail response", call)
    called, called_again = Turn("assistant", "", call), Turn("assistant", "quail between", call)
    turns = (Turn("user", "quail request"), called, response, called_again, response, Turn("assistant", "quail end"))
    text = rendered(tokenizer, turns, {schema.name: schema}, arguments)
    parts = {
        "the user's text": "quail request",
        "the names of tools": "QuailTool",
        "descriptions of tools": "Finds quails.",
        "the arguments of calls": call.input,
        "the responses of tools": "quail response",
        "the text beside a call": "quail between",
        "the text after the calls": "quail end",
    }
    if missing := ", ".join(what for what, words in parts.items() if words not in text):
        raise UsageError(f"the chat template leaves out {missing}: name a tokenizer whose template has tools")
    if '\\"quailinput' in text:
        raise UsageError("the chat template writes arguments as a string within a string: export with --arguments dict")


def special_tokens_in(tokenizer: Any, texts: Iterable[str]) -> list[str]:
    """Return the special tokens that texts hold: in a rendered text they would be read as the template's own."""
    texts = list(texts)
    return [token for token in tokenizer.all_special_tokens if any(token in text for text in texts)]
