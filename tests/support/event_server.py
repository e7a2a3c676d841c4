"""A server on loopback that takes OpenLineage events, as Marquez does, and keeps what it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class EventServer:
    """What the server got, and how it answers."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 201
        self.got: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []


@contextmanager
def event_server() -> Iterator[EventServer]:
    """Run a server while the block runs."""
    served = EventServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            served.paths.append(self.path)
            served.keys.append(self.headers.get("Authorization"))
            served.got.append(json.loads(body))
            answer = b'{"error": "so it was told"}' if served.status >= 400 else b""
            self.send_response(served.status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
