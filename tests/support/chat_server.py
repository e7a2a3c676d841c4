"""A server of OpenAI's chat completions on loopback, which answers what a test tells it to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_DEADLINE_S = 30.0


class ChatServer:
    """What the server was asked, and what it is to answer."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[dict[str, Any]] = []  # bodies
        self.authorizations: list[str | None] = []
        self.queries: list[str] = []
        self.answer: Callable[[str], str] = lambda prompt: "Tora Lind"  # to a prompt
        self.next: deque[Response] = deque()  # given instead, first come first served
        self.key = ""  # if set, others are refused
        self.let_go = threading.Event()
        self.silent = False  # a question is not answered before `let_go`

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def models(self, request: Request) -> Response:
        return self._refusal(request) or Response('{"data": []}')

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.authorizations.append(request.headers.get("authorization"))
        self.queries.append(request.url.query)
        if refusal := self._refusal(request):
            return refusal
        if self.silent:
            await asyncio.to_thread(self.let_go.wait, _DEADLINE_S)
        if self.next:
            return self.next.popleft()
        text = self.answer(body["messages"][-1]["content"])
        return Response(json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}))

    def _refusal(self, request: Request) -> Response | None:
        given = request.headers.get("authorization")
        if not self.key or given == f"Bearer {self.key}":
            return None
        return Response(json.dumps({"error": {"message": f"Incorrect key: {given}"}}), 401)


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """Run a server while the block runs."""
    served = ChatServer()
    routes = [Route("/v1/models", served.models), Route("/v1/chat/completions", served.complete, methods=["POST"])]
    app = Starlette(routes=routes)
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            served.port = self.servers[0].sockets[0].getsockname()[1]
            started.set()

    server = Server(
        uvicorn.Config(app, port=0, lifespan="off", log_level="error", timeout_graceful_shutdown=2, ws="none")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(_DEADLINE_S)
        yield served
    finally:
        served.let_go.set()
        server.should_exit = True
        thread.join(_DEADLINE_S)
        assert not thread.is_alive()
