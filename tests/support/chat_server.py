"""A server of OpenAI's chat completions on loopback, which answers what a test tells it to."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.served_app import served

_DEADLINE_S = 30.0


class ChatServer:
    """What the server was asked, and what it is to answer."""

    def __init__(self) -> None:
        self.at = ""
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
        return f"http://{self.at}/v1"

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
    model = ChatServer()
    routes = [Route("/v1/models", model.models), Route("/v1/chat/completions", model.complete, methods=["POST"])]
    with served(Starlette(routes=routes)) as at:
        model.at = at
        try:
            yield model
        finally:
            model.let_go.set()
