"""x* back from a row, byte for byte.

    jsonl      as it stands; `syntax.strip` with the spans of the calls gives x
    segments   one after the other
    openai, sharegpt   the turns without the requests, each call written again, a space before the text after it; its
                       input is the one of `inputs`, where the row has them, else its one argument

A rendered text and token rows promise nothing: templates trim, and tokenizers normalise. A row may come from a file or
from `datasets`, which fills missing keys with None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolformer_core.errors import UsageError
from toolformer_core.export.conversation import DEFAULT_REQUESTS, Conversation, Requests, Turn
from toolformer_core.records import Call
from toolformer_core.syntax import linearize

__all__ = ["restore"]


def restore(row: Mapping[str, Any], requests: Requests = DEFAULT_REQUESTS) -> str:
    """Return x* of a row of the formats `jsonl`, `segments` and `chat` (dialects openai and sharegpt).

    Args:
        requests: those of the export; its manifest names them.

    Raises:
        UsageError: it is none of these rows, or its requests are others.
    """
    try:
        inputs = row.get("inputs")
        if "segments" in row:
            return "".join(segment["text"] for segment in row["segments"])
        if "messages" in row:
            return _text_of(_openai_turns(row["messages"], inputs), requests)
        if "conversations" in row:
            return _text_of(_sharegpt_turns(row["conversations"], requests, inputs), requests)
        if "text" in row and "calls" in row:
            return str(row["text"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as exc:
        raise UsageError(f"the row cannot be read: {exc!r}") from exc
    raise UsageError(f"no text can be recovered from a row of {', '.join(row) or 'nothing'}")


def _text_of(conversation: Conversation, requests: Requests) -> str:
    user, *turns = conversation
    if user.role != "user" or not user.content.startswith(requests.head):
        raise UsageError("the row begins with another request: give `restore` those of the export's manifest")
    out = [user.content.removeprefix(requests.head)]
    call: Call | None = None
    for i, turn in enumerate(turns):
        if turn.role == "assistant":
            out.append(f" {turn.content}" if i and turn.content else turn.content)  # "": a chain goes on
            call = turn.call
        elif turn.role == "tool" and call is not None:
            out.append(linearize(call, turn.content))
        else:
            raise ValueError(f"turn {i + 2} is of {turn.role}")
    return "".join(out)


def _call(name: str, arguments: Any, written: list[str] | None) -> Call:
    """Return a call; its input is taken from those that are written, if there are any."""
    if written is not None:
        return Call(name, written.pop(0))
    given = json.loads(arguments) if isinstance(arguments, str) else arguments or {}
    values = [value for value in given.values() if value is not None]  # Arrow's
    if len(values) > 1:
        raise ValueError(f"{len(values)} arguments")
    return Call(name, values[0] if values else "")


def _openai_turns(messages: list[dict[str, Any]], inputs: list[str] | None) -> Conversation:
    turns, written = [], inputs and [*inputs]
    for message in messages:
        called = message.get("tool_calls") or []
        function = called[0]["function"] if called else None
        call = _call(function["name"], function["arguments"], written) if function else None
        turns.append(Turn(message["role"], message["content"] or "", call))
    return tuple(turns)


def _sharegpt_turns(said: list[dict[str, str]], requests: Requests, inputs: list[str] | None) -> Conversation:
    """Return the turns; a text of gpt, with a request after it, is the content of the turn with the next call."""
    turns: list[Turn] = []
    content, written = "", inputs and [*inputs]
    for i, one in enumerate(said):
        who, value = one["from"], one["value"]
        if who == "human" and i:
            if value != requests.next:
                raise UsageError("the row holds another request: give `restore` those of the export's manifest")
            content = turns.pop().content
        elif who == "human":
            turns.append(Turn("user", value))
        elif who == "function_call":
            call = json.loads(value)
            turns.append(Turn("assistant", content, _call(call["name"], call["arguments"], written)))
            content = ""
        else:
            turns.append(Turn("tool" if who == "observation" else "assistant", value))
    return tuple(turns)
