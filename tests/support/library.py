"""Asks the tools of the library, for tests of what they answer."""

from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.base import Tool
from toolformer_core.tools.build import build_tools
from toolformer_core.tools.library import LIBRARY

TOOLS: dict[str, Tool] = build_tools(list(LIBRARY))


def answer(key: str, asked: str, context: str = "") -> str:
    result = TOOLS[key].run(asked, context)
    assert isinstance(result, ToolResponse), result
    return result.text


def refusal(key: str, asked: str, context: str = "") -> str:
    result = TOOLS[key].run(asked, context)
    assert isinstance(result, ToolFailure), result
    assert result.reason == "invalid_input"
    return result.detail
