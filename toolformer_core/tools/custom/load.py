"""Loads the tool that a reference names: imports its file, reads its description, or connects to its server.

Which tools a run uses, and whether two of them bear one name, is not decided here.
"""

from __future__ import annotations

from pathlib import Path

from toolformer_core.tools.base import Tool
from toolformer_core.tools.custom.python_tool import load_python_tool
from toolformer_core.tools.custom.reference import ToolReference, key_of


def load_tool(reference: ToolReference) -> Tool:
    """Return the tool that a reference names.

    Raises:
        UsageError: there is no such tool, or it cannot be loaded.
        ToolError: its server does not answer.
    """
    if reference.kind == "yaml":
        from toolformer_core.tools.custom.tool_file import load_tool_file

        return load_tool_file(Path(reference.target), reference.name)
    if reference.kind == "mcp":
        from toolformer_core.tools.mcp import mcp_tool

        key = key_of(reference.name) if reference.name else None
        return mcp_tool(reference.target, name=reference.name or None, key=key)
    return load_python_tool(reference)
