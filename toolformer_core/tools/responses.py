"""Runs a tool safely: an exception becomes a failure, and a response becomes one escaped line.

A tool is third-party code, so this is the only place in the core that catches `Exception`. Only a `ToolformerError` is
passed on, because it says that the tool cannot answer anything. Annotation and decoding both run tools through this
module; they decide how many run at once, and for how long.
"""

from __future__ import annotations

import unicodedata

from toolformer_core.errors import ToolformerError
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult
from toolformer_core.syntax import escape
from toolformer_core.tools.base import Tool

__all__ = ["response_line", "run_guarded"]


def run_guarded(tool: Tool, input_: str, context: str) -> ToolResult | ToolformerError:
    """Run a tool and return its result. An exception becomes a failure; a `ToolformerError` is returned as it is."""
    try:
        result: object = tool.run(input_, context)
    except ToolformerError as exc:  # the input is not to blame
        return exc
    except (Exception, SystemExit) as exc:  # noqa: BLE001  third-party code: its failure is a result
        return ToolFailure("crashed", f"{type(exc).__name__}: {exc}")
    if isinstance(result, ToolFailure):
        return result
    if isinstance(result, ToolResponse) and isinstance(result.text, str):
        return result
    return ToolFailure("crashed", f"the tool returned {type(result).__name__}, not a response or a failure")


def response_line(text: str, max_chars: int) -> str:
    """Return a response as a call may hold it: one line, without control characters, cut at a word, escaped.

    Args:
        text: the tool's response.
        max_chars: the most characters to return; a single longer word is cut inside.
    """
    line = "".join(c for c in " ".join(text.split()) if unicodedata.category(c) not in ("Cc", "Cs"))
    line = " ".join(line.split())
    if len(line) > max_chars:
        cut = line[:max_chars]
        if line[max_chars] != " " and " " in cut:
            cut = cut[: cut.rindex(" ")]
        line = cut.rstrip()
    return escape(line)
