"""A small MCP server built with the SDK: `python tests/support/mcp_with_sdk.py`, on standard input and output."""

from enum import Enum
from typing import Any

from mcp.server.mcpserver import MCPServer


class Unit(Enum):
    METRE = "metre"
    FOOT = "foot"


def make_server() -> MCPServer[Any]:
    """Return a server with tools of one, two and four arguments."""
    server: MCPServer[Any] = MCPServer("with-sdk", version="1.2")

    @server.tool()
    def shout(text: str) -> str:
        """Write a text in capitals."""
        return text.upper()

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two whole numbers."""
        return a + b

    @server.tool()
    def convert(value: float, unit: Unit, digits: int = 2, note: str | None = None) -> str:
        """Convert a length into the other unit."""
        other = value / 0.3048 if unit is Unit.METRE else value * 0.3048
        return f"{other:.{digits}f}" + (f" ({note})" if note else "")

    @server.tool()
    def divide(a: float, b: float) -> float:
        """Divide."""
        return a / b

    return server


if __name__ == "__main__":
    make_server().run("stdio")
