"""Calls on their way: the text after which one is written, what is read from it, and what became of it.

This module asks nothing and knows no scores.
"""

from __future__ import annotations

from serving.routing.model_access import Writing
from toolformer_core.decode.records import ToolCall
from toolformer_core.errors import ToolformerError
from toolformer_core.grounding.ground import input_of
from toolformer_core.grounding.library import LibraryTool
from toolformer_core.lm.base import Draw
from toolformer_core.records import ToolFailure, ToolResult, storable
from toolformer_core.syntax import OPEN, find_close
from toolformer_core.tools.responses import response_line

_DETAIL_CHARS = 500


def call_writing(one: LibraryTool, query: str, max_tokens: int, *, named: bool = False) -> Writing:
    """Return the text after which a model writes a call; with `named` only its input is left to write."""
    before = f"{one.tool.name}(" if named else ""
    shown = one.demonstrations
    return Writing(
        f"{shown.prompt.head}{shown.after_head(query)}{OPEN}{before}",
        max_tokens,
        lambda text: find_close(before + text) is not None,
    )


def input_written(name: str, text: str) -> str | None:
    """Return the input of a call that stands behind " ["; None if it is no closed call of this tool."""
    close = find_close(text)
    return input_of(Draw(text[:close], close is not None), name)


def input_after_name(name: str, text: str) -> str | None:
    """Return the input of a call whose name and parenthesis stood in the prompt; None if it is not closed."""
    return input_written(name, f"{name}({text}")


def tool_call(name: str, input_: str, result: ToolResult | ToolformerError, seconds: float, max_chars: int) -> ToolCall:
    """Return a call that has run, and what came of it, without a span in a text.

    Args:
        name: the tool's name in calls.
        input_: the call's input.
        result: the tool's result.
        seconds: that it took.
        max_chars: characters of the response that are kept.
    """
    if isinstance(result, ToolformerError):
        result = ToolFailure("unavailable", str(result))
    response = "" if isinstance(result, ToolFailure) else response_line(result.text, max_chars)
    if isinstance(result, ToolFailure):
        failure, detail = result.reason or "failed", storable(result.detail[:_DETAIL_CHARS])
        return ToolCall(name, input_, "", failure, detail, 0, 0, seconds)
    if not response:
        return ToolCall(name, input_, "", "empty", "the tool answered with nothing", 0, 0, seconds)
    return ToolCall(name, input_, response, None, "", 0, 0, seconds)
