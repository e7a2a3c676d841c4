"""Connections of the server: how long one may take to send a request, and how many there may be.

uvicorn waits forever for the rest of a request's headers, and whoever opens enough such connections keeps all others
out. So here

    | a connection                                          | ends                                                 |
    |-------------------------------------------------------|------------------------------------------------------|
    | whose headers are not complete in `header_timeout_s`  | with 408, or without a word if it has sent nothing   |
    | that waits for its next request                       | after 5 s (uvicorn's keep-alive)                     |
    | that waits for any part of a request, while there are | with 503 (without a word, if nothing of a request is |
    | more than `limit` connections: the oldest of these    | there), so that the new one has a place              |
    | that is one too many while all others are answered    | with 503 to its request                              |

A body has its own time limit, in `guard`. A connection whose request is complete is never closed here. It knows sockets
and HTTP's bytes, no application.
"""

from __future__ import annotations

import asyncio
import resource
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from serving.errors import RequestError, closing_answer, unavailable

__all__ = ["Connection", "ConnectionLimits", "open_files"]

_OTHER_FILES = 256  # of the process: the model's, the tools', the event loop's


class ConnectionLimits:
    """What the connections of one server share.

    Args:
        limit: connections open at once.
        header_timeout_s: seconds in which a request's line and headers must have come.
    """

    def __init__(self, limit: int, header_timeout_s: float) -> None:
        self.limit = limit
        self.header_timeout_s = header_timeout_s
        self.waiting: dict[Connection, None] = {}  # for any part of a request; the oldest first


class Connection(H11Protocol):
    """One connection. Arguments are uvicorn's, and `limits`."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **more: Any) -> None:
        super().__init__(*args, **more)
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._note_state()
        self._start_timer()
        if len(self.connections) > self._limits.limit:
            oldest = next(iter(self._limits.waiting))
            if oldest is self:  # all others are being answered
                self.app = _answer_full
            else:
                oldest.refuse(_full())

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        self._note_state()
        if self.conn.their_state is h11.IDLE:
            self._start_timer()

    def on_response_complete(self) -> None:
        """Called by uvicorn; from here on its keep-alive limits the time to the next request's first byte."""
        super().on_response_complete()
        self._note_state()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._forget()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Called by uvicorn when the server ends; it would wait for the rest of a request."""
        if self in self._limits.waiting:
            self.refuse(unavailable("the server is ending; try again", "stopped"))
        else:
            super().shutdown()

    def refuse(self, error: RequestError) -> None:
        """Close a connection that waits for a part of a request; say why if a part of one is there."""
        begun = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
        if begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers, content = closing_answer(error)
            reason = HTTPStatus(error.status).phrase.encode()
            response = h11.Response(status_code=error.status, headers=headers, reason=reason)
            for event in (response, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            self.cycle.disconnected = True  # the application, which waits for the body, says nothing more
        self._forget()
        self.connections.discard(self)
        self.transport.close()

    def _note_state(self) -> None:
        """Note whether a part of a request is still to come."""
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._forget()
            return
        self._limits.waiting.setdefault(self)
        if self.conn.their_state is h11.SEND_BODY:
            self._stop_timer()

    def _forget(self) -> None:
        self._limits.waiting.pop(self, None)
        self._stop_timer()

    def _start_timer(self) -> None:
        """More bytes of the same headers do not begin the time anew."""
        if self._timer is None and self in self._limits.waiting:
            self._timer = self.loop.call_later(self._limits.header_timeout_s, self._time_is_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self.refuse(RequestError(408, "the request's headers did not come in time", code="timeout"))


def _full() -> RequestError:
    return unavailable("the server has too many open connections; try again", "connections_full")


async def _answer_full(scope: Any, receive: Any, send: Any) -> None:
    """An application: what one connection too many is answered with."""
    error = _full()
    headers, content = closing_answer(error)
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def open_files(connections: int) -> int:
    """Let this process open as many files as so many connections need, and as many again that are being accepted.

    Returns:
        How many connections that is: fewer, if the system's hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OTHER_FILES + 2 * connections
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = needed if soft == resource.RLIM_INFINITY else min(needed, soft)
    return max(1, (allowed - _OTHER_FILES) // 2)
