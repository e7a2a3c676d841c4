from __future__ import annotations

from typing import Any

import pytest
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult

from toolformer_core.records import ToolFailure, ToolResponse, ToolResult
from toolformer_core.tools.mcp.session import Overdue, Unreachable
from toolformer_core.tools.mcp.tool import MAX_TEXT_CHARS, failure_of, result_of

PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
SOUND = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "name": "a", "uri": "https://example.org/a"}
FILE = {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "in a file"}}
BLOB = {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAAA"}}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("content", "structured", "result"),
    [
        ([text("one")], None, ToolResponse("one")),
        ([text("one"), PICTURE, text("two"), FILE], None, ToolResponse("one\ntwo\nin a file")),
        ([text("3")], {"result": 3.0}, ToolResponse("3")),  # the text counts
        ([], {"result": "x"}, ToolResponse("x")),
        ([], {"result": [1, 2]}, ToolResponse("[1,2]")),
        ([], {"a": "é", "b": {"c": None}}, ToolResponse('{"a":"é","b":{"c":null}}')),
        ([text(" ")], {"result": 3}, ToolResponse("3")),
        ([PICTURE], {"a": 1}, ToolResponse('{"a":1}')),
        ([PICTURE, SOUND, PICTURE], None, ToolFailure("not_text", "the tool answered with audio, image, and no text")),
        ([LINK], None, ToolFailure("not_text", "the tool answered with resource_link, and no text")),
        ([BLOB], None, ToolFailure("not_text", "the tool answered with resource, and no text")),
        ([], None, ToolFailure("no_result", "the tool answered with nothing")),
        ([text(" \n")], None, ToolFailure("no_result", "the tool answered with nothing")),
        ([], {"result": None}, ToolFailure("no_result", "the tool answered with nothing")),
        ([], {}, ToolFailure("no_result", "the tool answered with nothing")),
    ],
)
def test_an_answer_becomes_a_response_or_a_failure(
    content: list[dict[str, Any]], structured: Any, result: ToolResult
) -> None:
    answer = CallToolResult.model_validate({"content": content, "structuredContent": structured})
    assert result_of(answer) == result


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        ([text("no such  zone")], "no such zone"),
        ([], "the tool reported an error without a text"),
        ([text("x" * 10_000)], "x" * 500),
    ],
)
def test_an_answer_marked_as_error_is_a_failure_for_good(content: list[dict[str, Any]], detail: str) -> None:
    answer = CallToolResult.model_validate({"content": content, "isError": True})
    assert result_of(answer) == ToolFailure("tool_error", detail, retryable=False)


def test_a_long_text_is_cut() -> None:
    # 60,000 + newline + the 39,999 characters that are left of 100,000; the third text has no room at all
    blocks = [text("a" * 60_000), text("b" * 10_000_000), text("c")]
    result = result_of(CallToolResult.model_validate({"content": blocks}))
    assert result == ToolResponse("a" * 60_000 + "\n" + "b" * 39_999)
    structured = CallToolResult.model_validate({"content": [], "structuredContent": {"result": "a" * 200_000}})
    assert result_of(structured) == ToolResponse("a" * MAX_TEXT_CHARS)


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        (Overdue(), "timeout", True),
        (Unreachable("it is gone"), "unreachable", True),
        (MCPError(INVALID_PARAMS, "no such zone"), "invalid_input", False),
        (MCPError(INTERNAL_ERROR, "it broke"), "tool_error", False),
        (ValueError("not what the protocol says"), "invalid_response", False),
    ],
)
def test_an_error_of_a_call_is_a_failure_with_a_reason(error: Exception, reason: str, retryable: bool) -> None:
    failure = failure_of(error, 2.0)
    assert (failure.reason, failure.retryable) == (reason, retryable)
    assert failure.detail
