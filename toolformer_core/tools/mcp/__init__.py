"""Tools of MCP servers (Model Context Protocol): `mcp_tool("mcp+stdio:COMMAND#TOOL")` is a tool like any other.

A `reference` names it; `loop` is the process's event loop; a `session` is one connection, and `session_pool` has all
those to a server; `tool` is the interface. The SDK (`import mcp`) is imported by the functions that use it.
"""

from toolformer_core.tools.mcp.loop import close
from toolformer_core.tools.mcp.reference import MCPSettings, Server, SessionLimits, parse_reference
from toolformer_core.tools.mcp.tool import MCPTool, ToolDefinition, mcp_tool, server_tools

__all__ = [
    "MCPSettings",
    "MCPTool",
    "Server",
    "SessionLimits",
    "ToolDefinition",
    "close",
    "mcp_tool",
    "parse_reference",
    "server_tools",
]
