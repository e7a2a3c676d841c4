"""Limits how long a connection may take to send a request, and how many connections there may be.

uvicorn waits forever for the rest of a request's headers, so a client that opens enough such connections locks all
others out. This module closes connections as follows:

    | connection                                            | how it is closed                                     |
    |-------------------------------------------------------|------------------------------------------------------|
    | its headers are not complete in `header_timeout_s`    | with 408; without a response if it has sent nothing  |
    | it waits for its next request                         | after 5 s (uvicorn's keep-alive)                     |
    | it is the oldest that waits for a part of a request,  | with 503, so that the new one has a place; without a |
    | and there are more than `limit` connections           | response if it has sent nothing of a request         |
    | it is one too many, and all others are being answered | with 503 to its request                              |

`middleware` has the time limit for a body. A connection whose request is complete is never closed here. This module
knows sockets and HTTP's bytes, but no application.
"""

from __future__ import annotations

import asyncio
import resource
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from serving.errors import RequestError, closing_response, unavailable

_OTHER_FILES = 256  # other open files of the process: the model's, the tools', the event loop's


class ConnectionLimits:
    """The limits and the state that the connections of one server share.

    Args:
        limit: connections open at once.
        header_timeout_s: seconds within which a request's line and headers must arrive.
    """

    def __init__(self, limit: int, header_timeout_s: float) -> None:
        self.limit = limit
        self.header_timeout_s = header_timeout_s
        self.waiting: dict[Connection, None] = {}  # those that wait for a part of a request; the oldest first


class Connection(H11Protocol):
    """One connection; the arguments are uvicorn's, and `limits`."""

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
                self.app = _refuse_connection
            else:
                oldest.refuse(_too_many())

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        self._note_state()
        if self.conn.their_state is h11.IDLE:
            self._start_timer()

    def on_response_complete(self) -> None:
        """Called by uvicorn, whose keep-alive limits the time until the next request's first byte from here on."""
        super().on_response_complete()
        self._note_state()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._forget()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Called by uvicorn when the server shuts down; uvicorn would wait for the rest of a request."""
        if self in self._limits.waiting:
            self.refuse(unavailable("the server is shutting down; try again", "stopped"))
        else:
            super().shutdown()

    def refuse(self, error: RequestError) -> None:
        """Close a connection that waits for a part of a request; send the error if a part has already arrived."""
        begun = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
        if begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers, content = closing_response(error)
            reason = HTTPStatus(error.status).phrase.encode()
            response = h11.Response(status_code=error.status, headers=headers, reason=reason)
            for event in (response, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            self.cycle.disconnected = True  # the application waits for the body, and sends nothing more
        self._forget()
        self.connections.discard(self)
        self.transport.close()

    def _note_state(self) -> None:
        """Note whether this connection waits for a part of a request."""
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
        """Start the time limit, unless it runs: further bytes of the same headers do not restart it."""
        if self._timer is None and self in self._limits.waiting:
            self._timer = self.loop.call_later(self._limits.header_timeout_s, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self.refuse(RequestError(408, "the request's headers did not arrive in time", code="timeout"))


def _too_many() -> RequestError:
    return unavailable("the server has too many open connections; try again", "connections_full")


async def _refuse_connection(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI application for a connection beyond the limit."""
    error = _too_many()
    headers, content = closing_response(error)
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def open_files(connections: int) -> int:
    """Raise this process' limit of open files for so many connections, and as many again that are being accepted.

    Returns:
        The number of connections that the limit allows: fewer if the system's hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OTHER_FILES + 2 * connections
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = needed if soft == resource.RLIM_INFINITY else min(needed, soft)
    return max(1, (allowed - _OTHER_FILES) // 2)
