"""Tools of MCP servers (Model Context Protocol): `mcp_tool("mcp+stdio:COMMAND#TOOL")` is a tool like any other.

    reference      what a user writes, and what a server is given of the environment
    loop           the event loop of the process
    session        one connection (streams: what goes over it); session_pool: all those to a server
    tool           all of it behind the interface `Tool`; what a server answered becomes a response or a failure

The SDK (`import mcp`) is imported by the functions that use it, so that importing this package costs nothing.
"""

from __future__ import annotations

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
