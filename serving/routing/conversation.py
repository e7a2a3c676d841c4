"""Messages in which a client's tools were called, as turns of text that any model reads.

A call and its result become text as in Toolformer's training, e(c, r), where the assistant said it, so that no chat
template has to know tools, and a model that has learnt to call reads its own form:

    user       How warm is it in Paris?             User: How warm is it in Paris?
    assistant  tool_calls: weather("Paris")         Assistant: [weather(Paris) -> 18 degrees] It is 18 degrees.
    tool       18 degrees
    assistant  It is 18 degrees.

Results that end the conversation open the answer. Every call has one result, before anything else is said.
"""

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from serving.chat import text_of, turn_of
from serving.errors import RequestError, check_text, invalid
from serving.routing.client_tools import call_input, name_in_calls
from serving.routing.schemas import RoutedMessage
from toolformer_core.records import Call
from toolformer_core.syntax import linearize
from toolformer_core.tools.responses import response_line


@dataclass(frozen=True, slots=True)
class Conversation:
    turns: list[dict[str, str]]  # role (system, user, assistant) and content
    opening: str  # calls with their results, with which the answer begins; "": the conversation ends otherwise
    query: str  # what the last user turn says, in one line; "" if there is none


def conversation_of(messages: Sequence[RoutedMessage]) -> Conversation:
    """Return a request's messages as turns; refuse (400) calls without results, and results without calls."""
    turns: list[dict[str, str]] = []
    said = ""  # by the assistant, up to and including its last results
    rest = deque((f"messages[{i}]", message) for i, message in enumerate(messages))
    while rest:
        where, message = rest.popleft()
        if message.role == "tool":
            raise _no_call(where)
        if message.role == "assistant" and message.tool_calls:
            said = _joined(said, text_of(message, where))
            results = []
            while rest and rest[0][1].role == "tool":
                results.append(rest.popleft())
            said += _with_results(_calls_of(message, where), results, where)
            continue
        turn = turn_of(message, where)
        if said and turn["role"] == "assistant":
            turn["content"] = _joined(said, turn["content"])
        elif said:
            turns.append({"role": "assistant", "content": said.removeprefix(" ")})
        said = ""
        turns.append(turn)
    query = next((turn["content"] for turn in reversed(turns) if turn["role"] == "user"), "")
    return Conversation(turns, said.removeprefix(" "), " ".join(query.split()))


def _joined(said: str, more: str) -> str:
    return f"{said} {more}".strip() if said else more


def _no_call(where: str) -> RequestError:
    return invalid(
        f"{where}.tool_call_id",
        "a message of role 'tool' must follow the assistant's message that holds its call, once, and name it in "
        "tool_call_id",
    )


def _with_results(calls: dict[str, Call], results: Sequence[tuple[str, RoutedMessage]], where: str) -> str:
    """Return the calls of an assistant's message with the results that follow it."""
    responses: dict[str, str] = {}
    for at, message in results:
        if message.tool_call_id not in calls.keys() - responses.keys():
            raise _no_call(at)
        text = text_of(message, at)
        responses[message.tool_call_id] = response_line(text, max(1, len(text)))
    if missing := [id_ for id_ in calls if id_ not in responses]:
        problem = f"these calls have no result: {', '.join(missing)}; a message of role 'tool' must follow for each"
        raise invalid(where, problem)
    return "".join(linearize(call, responses[id_]) for id_, call in calls.items())


def _calls_of(message: RoutedMessage, where: str) -> dict[str, Call]:
    calls: dict[str, Call] = {}
    given = message.tool_calls
    for i, one in enumerate(given if isinstance(given, list) else [given]):
        match one:
            case {"id": str(id_), "function": {"name": str(name), "arguments": str(arguments)}} if id_ not in calls:
                check_text(id_ + name + arguments, f"{where}.tool_calls[{i}]")
                calls[id_] = Call(name_in_calls(name), _input(arguments))
            case _:
                problem = "a call must have an id of its own, and a function with name and arguments, all of them texts"
                raise invalid(f"{where}.tool_calls[{i}]", problem)
    return calls


def _input(arguments: str) -> str:
    try:
        value: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    return call_input(value) if isinstance(value, dict) else " ".join(arguments.split())
