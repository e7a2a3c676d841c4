"""An MCP server written by hand, as before SDK 2, on standard input and output or, in threads, over HTTP (`serving`).

It knows the handshake `initialize` only. `hold` answers when it is let go, `never` not at all, `die` ends the process.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAGE = 5  # tools in a page of the list
ONE_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING = {"type": "object", "properties": {}}
REPEATED = {"text": {"type": "string"}, "times": {"type": "integer", "minimum": 1}}
TOOLS: dict[str, dict[str, Any]] = {
    "echo": ONE_TEXT,
    "repeat": {"type": "object", "properties": REPEATED, "required": ["text", "times"]},
    **dict.fromkeys(("pid", "never", "die", "hold", "environment"), NOTHING),
    "failing": ONE_TEXT,
    **dict.fromkeys(("refused", "structured", "lax", "long", "half", "latin", "shapeless"), NOTHING),
    **dict.fromkeys(("closed", "late", "noisy"), NOTHING),
    "checked": ONE_TEXT,
}
RESULT = {"type": "string", "pattern": "^(a+)+$"}  # with backtracking, 2^n ways through n letters
OUTPUT_SCHEMAS = {"checked": {"type": "object", "properties": {"result": RESULT}}}


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def content_of(tool: str, given: dict[str, Any]) -> dict[str, Any]:
    match tool:
        case "echo":
            return text(given["text"])
        case "repeat":
            return text(given["text"] * given["times"])
        case "pid":
            return text(str(os.getpid()))
        case "environment":
            return text(json.dumps(dict(os.environ)))
        case "failing":
            return {**text(f"cannot do {given['text']}"), "isError": True}
        case "structured":
            return {"content": [], "structuredContent": {"result": {"a": 1, "b": [2, 3]}}}
        case "lax":
            return {"content": [{"type": "text"}]}  # a text without its text
        case "long":
            return text("word " * 400_000)
        case "half":
            return text("half a pair: \ud83d")
        case "latin":
            return text("caf\udce9")  # the byte E9 alone
        case "noisy":
            return text("said")
        case "checked":
            structured = {} if given["text"] == "none" else {"structuredContent": {"result": given["text"]}}
            return {"content": [], **structured}
    raise AssertionError(tool)


def encoded(reply: dict[str, Any]) -> bytes:
    """Return an answer's bytes; what U+DC80 to U+DCFF stand for are single bytes."""
    as_is = json.dumps(reply, ensure_ascii="udce9" not in json.dumps(reply))
    return as_is.encode("utf-8", "surrogateescape")


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer to a message; None if there is none, or none yet (`hold`, `never`)."""
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        return None
    head = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        who = {"name": "by-hand", "version": os.environ.get("BY_HAND_VERSION", "7")}
        version = params["protocolVersion"]
        return {**head, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": who}}
    if method == "tools/list":
        start = int(params.get("cursor") or 0)
        names = list(TOOLS)[start : start + PAGE]
        tools = [{"name": n, "description": f"Does {n}.\n\nMore.", "inputSchema": TOOLS[n]} for n in names]
        for tool in tools:
            tool |= {"outputSchema": OUTPUT_SCHEMAS[tool["name"]]} if tool["name"] in OUTPUT_SCHEMAS else {}
        more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(TOOLS) else {}
        return {**head, "result": {"tools": tools, **more}}
    if method != "tools/call":
        return {**head, "error": {"code": -32601, "message": "no such method"}}
    tool = params["name"]
    if tool in ("never", "hold"):
        return None
    if tool == "die":
        os._exit(3)
    if tool == "refused":
        return {**head, "error": {"code": -32602, "message": "these arguments will not do"}}
    if tool == "shapeless":
        return {**head, "result": "a text, not an object"}
    if tool in ("closed", "late"):  # codes that the SDK uses for a connection that ended, and for a timeout
        return {**head, "error": {"code": -32000 if tool == "closed" else -32001, "message": "the database is down"}}
    return {**head, "result": content_of(tool, params.get("arguments") or {})}


def run_on_pipes() -> None:
    sys.stderr.write("by-hand is listening\n")
    greeted = "BY_HAND_STRICT" not in os.environ
    for line in sys.stdin:
        message = json.loads(line)
        if not greeted and message["method"] != "initialize":
            sys.exit("initialize must come first")
        greeted = True
        tool = (message.get("params") or {}).get("name")
        if tool == "noisy":
            sys.stdout.write("loading the index ...\nand more\n{}\n")
        if (reply := answer(message)) is not None:
            sys.stdout.buffer.write(encoded(reply) + b"\n")
        sys.stdout.flush()


class ByHand(ThreadingHTTPServer):
    """The same over HTTP, one JSON document an answer, with sessions that it can forget."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sessions: set[str] = set()
        self.opened = 0
        self.authorizations: set[str | None] = set()
        self.arrived = threading.Semaphore(0)  # released by each call of `never` and `hold`
        self.let_go = threading.Event()  # then `hold` answers
        self.status = 0  # answer every request with this one
        self.refuses_sessions = False
        self.forgotten = (404, -32600)  # the status and code of an answer in a session that it does not know
        self._open: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that a test has broken is no news."""

    def break_connections(self) -> None:
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed already
        self._open.clear()


class _Handler(BaseHTTPRequestHandler):
    server: ByHand
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # head and body go together: two small packets would wait for each other

    def do_POST(self) -> None:
        server = self.server
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.authorizations.add(self.headers.get("Authorization"))
        session = self.headers.get("mcp-session-id")
        if server.status or (server.refuses_sessions and message.get("method") == "initialize"):
            return self._reply(server.status or 503)
        if message.get("method") == "initialize":
            server.opened += 1
            session = f"session-{server.opened}"
            server.sessions.add(session)
        elif session is not None and session not in server.sessions:
            status, code = server.forgotten
            return self._reply(status, {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "unknown"}})
        tool = (message.get("params") or {}).get("name")
        if tool in ("never", "hold"):
            server.arrived.release()
        if tool == "never":
            self.rfile.read(1)  # until the connection ends
            self.close_connection = True
            return None
        if tool == "hold":
            server.let_go.wait(30)
            return self._reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": text("held")}, session)
        reply = answer(message)
        return self._reply(202) if reply is None else self._reply(200, reply, session)

    def do_GET(self) -> None:
        self._reply(405)

    def do_DELETE(self) -> None:
        self.server.sessions.discard(self.headers.get("mcp-session-id", ""))
        self._reply(200)

    def _reply(self, status: int, document: dict[str, Any] | None = None, session: str | None = None) -> None:
        body = b"" if document is None else encoded(document)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if body:
            self.send_header("Content-Type", "application/json")
        if session:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[ByHand]:
    """A server over HTTP, in threads of this process."""
    with ByHand() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.break_connections()
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    run_on_pipes()
