"""Messages in which a client's tools were called, as turns of text that any model reads.

A call and its result become text as in Toolformer's training, e(c, r), where the assistant said it:

    user       How warm is it in Paris?             User: How warm is it in Paris?
    assistant  tool_calls: weather("Paris")         Assistant: [weather(Paris) -> 18 degrees] It is 18 degrees.
    tool       18 degrees
    assistant  It is 18 degrees.

So no chat template has to know tools, and a model that has learnt to call reads its own form. Results that end the
conversation open the answer. As OpenAI demands, every call has one result, before anything else is said.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from serving.chat import text_of, turn_of
from serving.errors import check_text, invalid
from serving.routing.client_tools import call_input, name_in_calls
from serving.routing.schemas import RoutedMessage
from toolformer_core.records import Call
from toolformer_core.syntax import linearize
from toolformer_core.tools.responses import response_line


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said so far."""

    turns: list[dict[str, str]]  # role (system, user, assistant) and content
    opening: str  # calls with their results, with which the answer begins; "": the conversation ends otherwise
    query: str  # what the last user turn says, in one line; "" if there is none


@dataclass(slots=True)
class _Calls:
    """The calls of an assistant's message, and those results that have come."""

    where: str
    calls: dict[str, Call]  # by id
    results: dict[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        return [id_ for id_ in self.calls if id_ not in self.results]

    @property
    def text(self) -> str:
        return "".join(linearize(call, self.results[id_]) for id_, call in self.calls.items())


def conversation_of(messages: Sequence[RoutedMessage]) -> Conversation:
    """Return a request's messages as turns; refuse (400) calls without results, and results without calls."""
    turns: list[dict[str, str]] = []
    said = ""  # by the assistant, up to and including its last results
    calls: _Calls | None = None
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        if message.role == "tool":
            _take_result(calls, message, where)
            continue
        if calls is not None:
            said += _finished(calls)
            calls = None
        if message.role == "assistant" and message.tool_calls:
            said = _joined(said, text_of(message, where))
            calls = _calls_of(message, where)
            continue
        turn = turn_of(message, where)
        if said and turn["role"] == "assistant":
            turn["content"] = _joined(said, turn["content"])
        elif said:
            turns.append({"role": "assistant", "content": said.removeprefix(" ")})
        said = ""
        turns.append(turn)
    opening = "" if calls is None else f"{said}{_finished(calls)}"
    query = next((turn["content"] for turn in reversed(turns) if turn["role"] == "user"), "")
    return Conversation(turns, opening.removeprefix(" "), " ".join(query.split()))


def _joined(said: str, more: str) -> str:
    return f"{said} {more}".strip() if said else more


def _take_result(calls: _Calls | None, message: RoutedMessage, where: str) -> None:
    if calls is None or message.tool_call_id not in calls.missing:
        raise invalid(
            f"{where}.tool_call_id",
            "a message of role 'tool' must follow the assistant's message that holds its call, once, and name it in "
            "tool_call_id",
        )
    text = text_of(message, where)
    calls.results[message.tool_call_id] = response_line(text, max(1, len(text)))


def _finished(calls: _Calls) -> str:
    if calls.missing:
        missing = ", ".join(calls.missing)
        message = f"these calls have no result: {missing}; a message of role 'tool' must follow for each"
        raise invalid(calls.where, message)
    return calls.text


def _calls_of(message: RoutedMessage, where: str) -> _Calls:
    calls: dict[str, Call] = {}
    given = message.tool_calls
    for i, one in enumerate(given if isinstance(given, list) else [given]):
        here = f"{where}.tool_calls[{i}]"
        one = one if isinstance(one, dict) else {}
        function = one["function"] if isinstance(one.get("function"), dict) else {}
        id_, name, arguments = one.get("id"), function.get("name"), function.get("arguments")
        if not (isinstance(id_, str) and isinstance(name, str) and isinstance(arguments, str)) or id_ in calls:
            problem = "a call must have an id of its own, and a function with name and arguments, all of them texts"
            raise invalid(here, problem)
        check_text(id_ + name + arguments, here)
        calls[id_] = Call(name_in_calls(name), _input(arguments))
    return _Calls(where, calls)


def _input(arguments: str) -> str:
    try:
        value: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    return call_input(value) if isinstance(value, dict) else " ".join(arguments.split())
