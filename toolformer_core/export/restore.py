"""x* back from a row, byte for byte.

Of a rendered text and of token rows it is not promised: templates trim, and tokenizers normalise.
"""

import json
from collections.abc import Mapping
from typing import Any

from toolformer_core.errors import UsageError
from toolformer_core.export.conversation import DEFAULT_REQUESTS, Requests
from toolformer_core.records import Call
from toolformer_core.syntax import linearize

_Turn = tuple[str, str, dict[str, Any] | None]  # who speaks, what, and the function that is called


def restore(row: Mapping[str, Any], requests: Requests = DEFAULT_REQUESTS) -> str:
    """Return x* of a row of the formats `jsonl`, `segments` and `chat` (dialects openai and sharegpt).

    A UsageError if it is none, or its requests are others than those of the export, which its manifest names.
    """
    try:
        inputs = row.get("inputs")
        if "segments" in row:
            return "".join(segment["text"] for segment in row["segments"])
        if "messages" in row:
            messages = [(m["role"], m["content"] or "", m.get("tool_calls") or []) for m in row["messages"]]
            spoken = [(role, content, called[0]["function"] if called else None) for role, content, called in messages]
            return _text_of(spoken, requests, inputs)
        if "conversations" in row:
            return _text_of(_spoken(row["conversations"], requests), requests, inputs)
        if "text" in row and "calls" in row:
            return str(row["text"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as exc:
        raise UsageError(f"the row cannot be read: {exc!r}") from exc
    raise UsageError(f"no text can be recovered from a row of {', '.join(row) or 'nothing'}")


def _text_of(spoken: list[_Turn], requests: Requests, inputs: list[str] | None) -> str:
    (first, request, _), *turns = spoken
    if first != "user" or not request.startswith(requests.head):
        raise UsageError("the row begins with another request: give `restore` those of the export's manifest")
    out, written = [request.removeprefix(requests.head)], None if inputs is None else [*inputs]
    call: Call | None = None
    for i, (role, content, function) in enumerate(turns):
        if role == "assistant":
            out.append(f" {content}" if i and content else content)  # "": a chain goes on
            call = _call(function["name"], function["arguments"], written) if function else None
        elif role == "tool" and call is not None:
            out.append(linearize(call, content))
        else:
            raise ValueError(f"turn {i + 2} is of {role}")
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


def _spoken(said: list[dict[str, str]], requests: Requests) -> list[_Turn]:
    """Return the turns; a text of gpt, with a request after it, is the content of the turn with the next call."""
    turns: list[_Turn] = []
    content = ""
    for i, one in enumerate(said):
        who, value = one["from"], one["value"]
        if who == "human" and i:
            if value != requests.next:
                raise UsageError("the row holds another request: give `restore` those of the export's manifest")
            content = turns.pop()[1]
        elif who == "function_call":
            turns.append(("assistant", content, json.loads(value)))
            content = ""
        else:
            turns.append(({"human": "user", "observation": "tool"}.get(who, "assistant"), value, None))
    return turns
