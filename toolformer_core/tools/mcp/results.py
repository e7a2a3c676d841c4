"""What a server answered, as a tool's response or failure.

    text, embedded text      joined by newlines: the response
    structured content       if there is no text: compact JSON; the value alone of `{"result": value}`
    images, sound, links     `not_text`, if there is nothing else
    nothing                  `no_result`
    a result marked as error `tool_error`, with its text

Failures of the call itself: `invalid_input` (the server refuses the arguments), `timeout` and `unreachable` (these two
may be tried again), `tool_error` (any other refusal), `invalid_response` (the answer is not what the protocol or the
tool's own output schema says).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolformer_core.records import ToolFailure, ToolResponse, ToolResult
from toolformer_core.tools.mcp.session import Overdue, Unreachable

if TYPE_CHECKING:
    from mcp.types import CallToolResult

MAX_TEXT_CHARS = 100_000  # of a response; what stands in a call is far shorter, and cut later
_MAX_DETAIL_CHARS = 500


def result_of(answer: CallToolResult) -> ToolResult:
    """Return the response or failure that a server's answer means."""
    text = _text(answer)
    if not text.strip() and answer.structured_content is not None:
        text = _structured(answer.structured_content)
    if answer.is_error:
        return ToolFailure("tool_error", _detail(text) or "the tool reported an error without a text")
    if text.strip():
        return ToolResponse(text)
    if answer.content and any(block.type != "text" for block in answer.content):
        kinds = ", ".join(sorted({block.type for block in answer.content if block.type != "text"}))
        return ToolFailure("not_text", f"the tool answered with {kinds}, and no text")
    return ToolFailure("no_result", "the tool answered with nothing")


def _text(answer: CallToolResult) -> str:
    """Return the texts of an answer, at most `MAX_TEXT_CHARS` of them; a long text is not copied whole."""
    parts: list[str] = []
    left = MAX_TEXT_CHARS
    for block in answer.content:
        if block.type == "text":
            part = block.text
        elif block.type == "resource":
            part = getattr(block.resource, "text", "")  # "" of a blob
        else:
            continue
        if part and left > 0:
            parts.append(part[:left])
            left -= len(parts[-1]) + 1
    return "\n".join(parts)


def _structured(value: Any) -> str:
    if isinstance(value, dict) and list(value) == ["result"]:
        value = value["result"]
    if value is None or value == {}:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text[:MAX_TEXT_CHARS]


def failure_of(error: Exception, timeout_s: float) -> ToolFailure:
    """Return the failure that an error of a call means.

    Args:
        error: what `session_pool.ask` raised.
        timeout_s: the seconds that the call had.
    """
    from mcp import MCPError
    from mcp.types import INVALID_PARAMS, PARSE_ERROR

    if isinstance(error, Overdue):
        return ToolFailure("timeout", f"no answer within {timeout_s:g} s", retryable=True)
    if isinstance(error, Unreachable):
        return ToolFailure("unreachable", _detail(str(error)), retryable=True)
    if isinstance(error, MCPError):
        reasons = {INVALID_PARAMS: "invalid_input", PARSE_ERROR: "invalid_response"}  # the SDK cannot parse the answer
        return ToolFailure(reasons.get(error.code, "tool_error"), _detail(error.message))
    return ToolFailure("invalid_response", _detail(f"{type(error).__name__}: {error}"))


def _detail(text: str) -> str:
    return " ".join(text[: 4 * _MAX_DETAIL_CHARS].split())[:_MAX_DETAIL_CHARS]
