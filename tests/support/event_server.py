"""A server on loopback that takes OpenLineage events, as Marquez does, and keeps what it got."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from typing import Any

from tests.support.served_app import Answer, answered


class EventServer:
    """What the server got, and how it answers."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 201
        self.got: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []

    def answer(self, method: str, path: str, headers: Message, body: bytes) -> Answer:
        self.paths.append(path)
        self.keys.append(headers.get("Authorization"))
        self.got.append(json.loads(body))
        return self.status, {}, b'{"error": "so it was told"}' if self.status >= 400 else b""


@contextmanager
def event_server() -> Iterator[EventServer]:
    server = EventServer()
    with answered(server.answer) as server.url:
        yield server
