"""An application or a function, served on a free port of the loopback interface in threads of this process."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import uvicorn

_DEADLINE_S = 30.0
Answer = tuple[int, dict[str, str], bytes]  # status, headers, body


@contextmanager
def served(app: Any, **config: Any) -> Iterator[str]:
    """Serve while the block runs; yield `127.0.0.1:port`."""
    settings = {"lifespan": "off", "log_level": "error", "timeout_graceful_shutdown": 2, "ws": "none", **config}
    server = uvicorn.Server(uvicorn.Config(app, **settings))
    with socket.create_server(("127.0.0.1", 0)) as listener:  # who comes before it is served waits
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(_DEADLINE_S)
            assert not thread.is_alive()


@contextmanager
def answered(answer: Callable[[str, str, Message, bytes], Answer]) -> Iterator[str]:
    """Answer requests by a function of method, path, headers and body while the block runs; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65536  # head and body go together: two small packets would wait for each other

        def serve(self) -> None:
            body = _chunked(self.rfile) if "chunked" in self.headers.get("Transfer-Encoding", "") else b""
            body = body or self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, data = answer(self.command, self.path, self.headers, body)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_DELETE = serve

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # clients may ask 64 at a time

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _chunked(stream: Any) -> bytes:
    data = b""
    while size := int(stream.readline().partition(b";")[0], 16):
        data += stream.read(size)
        stream.readline()
    stream.readline()
    return data
