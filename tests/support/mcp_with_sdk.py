"""A small MCP server built with the SDK.

python tests/support/mcp_with_sdk.py            on standard input and output
python tests/support/mcp_with_sdk.py http       over HTTP on a free port of 127.0.0.1; prints its address
"""

from __future__ import annotations

import os
import sys
import threading
from enum import Enum
from typing import Any

from mcp.server.mcpserver import MCPServer


class Unit(Enum):
    METRE = "metre"
    FOOT = "foot"


def make_server() -> MCPServer[Any]:
    """Return a server with tools of one, two and four arguments."""
    server: MCPServer[Any] = MCPServer("with-sdk", version="1.2")
    entered = threading.Event()

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

    @server.tool()
    async def stuck() -> str:
        """Answer never."""
        import anyio

        entered.set()
        await anyio.sleep_forever()
        return ""

    @server.tool()
    def is_stuck() -> bool:
        """Say whether `stuck` has been called; wait for it."""
        return entered.wait(30)

    @server.tool()
    def pid() -> int:
        """Return the number of the server's process."""
        return os.getpid()

    return server


def serve_http() -> None:
    import socket

    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # so that whoever connects early waits
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    app = make_server().streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        serve_http()
    else:
        make_server().run("stdio")
