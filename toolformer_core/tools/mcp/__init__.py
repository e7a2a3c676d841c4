"""Tools of MCP servers (Model Context Protocol): `mcp_tool("mcp+stdio:COMMAND#TOOL")` is a tool like any other.

The SDK (`import mcp`) is imported by the functions that use it.
"""

from toolformer_core.tools.mcp.loop import close
from toolformer_core.tools.mcp.reference import MCPSettings, SessionLimits
from toolformer_core.tools.mcp.tool import MCPTool, mcp_tool

__all__ = ["MCPSettings", "MCPTool", "SessionLimits", "close", "mcp_tool"]
