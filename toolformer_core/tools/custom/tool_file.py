"""Tool files: a YAML file that describes one tool of an HTTP endpoint or an MCP server (docs/tools.md shows some).

Paths are relative to the file. It is read by PyYAML's safe loader, which makes plain values only.
"""

from pathlib import Path

import yaml
from pydantic import Field

from toolformer_core.errors import UsageError
from toolformer_core.tools.base import Tool
from toolformer_core.tools.custom.http_tool import HTTPTemplate, HTTPTool
from toolformer_core.tools.custom.options import ToolOptions, validated
from toolformer_core.tools.custom.reference import camel_case, key_of
from toolformer_core.tools.mcp import MCPSettings, mcp_tool


class ToolFile(ToolOptions):
    """What a tool file may hold."""

    http: HTTPTemplate | None = None
    mcp: str = ""
    env: tuple[str, ...] = Field((), description="Environment variables that an MCP child process gets")
    headers: dict[str, str] = Field(default_factory=dict, description="Of an MCP server at a URL: header -> variable")


def load_tool_file(path: Path, name: str = "") -> Tool:
    """Return the tool that a file describes, with a name in calls ("": its own); a `UsageError` names a wrong field."""
    try:
        value = yaml.safe_load(path.read_text("utf-8"))
    except OSError as exc:
        raise UsageError(f"cannot read the tool file {path}: {exc.strerror or exc}") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path} is not YAML: {' '.join(str(exc).split())}") from exc
    try:
        return _tool(validated(ToolFile, value), path, name)
    except UsageError as exc:
        raise type(exc)(f"{path}: {exc}") if type(exc) is UsageError else exc from None


def _tool(described: ToolFile, path: Path, name: str) -> Tool:
    if (described.http is None) == (not described.mcp):
        raise UsageError("give exactly one of http and mcp")
    name = name or described.name
    declaration = described.declaration(str(path), path.with_suffix(".txt"))
    if described.http is None:
        settings = MCPSettings(env=described.env, headers=described.headers)
        return mcp_tool(
            described.mcp,
            name=name,
            settings=settings,
            limits=described.limits,
            declaration=declaration,
            summary=described.description,
        )
    name = name or camel_case(path.stem)
    return HTTPTool(
        described.http,
        name=name,
        key=key_of(name),
        description=described.description or f"Asks {described.http.url.partition('?')[0]}.",
        version=described.version,
        declaration=declaration,
        **({} if described.limits is None else {"limits": described.limits}),
    )
