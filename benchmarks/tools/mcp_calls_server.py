"""The MCP server that `mcp_calls.py` asks: it repeats a text. On its pipes, or with `http` over HTTP on loopback."""

from __future__ import annotations

import os
import socket
import sys

from mcp.server.mcpserver import MCPServer

server: MCPServer = MCPServer("repeat", version="1", log_level="ERROR")


@server.tool()
async def repeat(text: str) -> str:
    """Repeat a text, with the number of the server's process in front."""
    return f"{os.getpid()} {text}"


def main() -> None:
    if sys.argv[1:] != ["http"]:
        server.run("stdio")
        return
    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    main()
