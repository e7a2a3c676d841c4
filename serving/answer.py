"""One answer on its way to a client, whole or as server-sent events.

Whatever ends it (its last event, a client that has gone or reads no more, the server's end) closes its ticket. It knows
events and sockets; what is written is in `wire`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from serving.driver import Driver, Ticket
from serving.errors import CLIENT_GONE, error_body, unavailable
from serving.wire import DONE, KEEP_ALIVE, Writer, sse
from toolformer_core.decode.records import Event, Finished

__all__ = ["Answer", "Stream"]

_KEEP_ALIVE_S = 15.0  # a stream says something at least so often
_SEND_S = 60.0  # a client that takes nothing for so long has gone


class Answer:
    """One answer under way."""

    def __init__(self, driver: Driver, ticket: Ticket, writer: Writer, since: float) -> None:
        self.writer = writer
        self._driver = driver
        self._ticket = ticket
        self._since = since
        self._seen = False

    async def whole(self, request: Request) -> Response:
        work = asyncio.ensure_future(self._to_the_end())
        try:
            if not await _unless_gone(work, request.receive):
                return Response(status_code=CLIENT_GONE)  # nobody reads it; the metrics do
        finally:
            self.close()
        if self.writer.cut:
            raise unavailable("the server ended this answer; try again", "stopped")
        return JSONResponse(self.writer.whole())

    async def _to_the_end(self) -> None:
        async for _ in self.pieces():
            pass

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the stream's bytes, everything that is ready at once."""
        writer = self.writer
        if begun := b"".join(map(sse, writer.begin())):
            yield begun
        while not writer.done:
            try:
                async with asyncio.timeout(_KEEP_ALIVE_S):  # `wait_for` of Python 3.11 may swallow a cancellation
                    events = [await self._ticket.events.get()]
            except TimeoutError:
                yield KEEP_ALIVE
                continue
            while not self._ticket.events.empty():
                events.append(self._ticket.events.get_nowait())
            self._watch(events)
            if chunks := b"".join(sse(chunk) for event in events for chunk in writer.write(event)):
                yield chunks
        if writer.cut:
            yield sse(error_body("the server ended this answer; try again", "server_error", code="stopped"))
        yield b"".join(map(sse, writer.end())) + DONE

    def _watch(self, events: list[Event]) -> None:
        if not self._seen and any(not isinstance(event, Finished) for event in events):
            self._seen = True
            self._driver.metrics.first_text.observe(time.monotonic() - self._since)

    def close(self) -> None:
        self._driver.close_ticket(self._ticket)


class Stream(Response):
    """Server-sent events; ends when the client goes."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(
            media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _unless_gone(asyncio.ensure_future(self._send_all(send)), receive)
        finally:
            self._answer.close()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with contextlib.suppress(OSError, TimeoutError):
            async for piece in self._answer.pieces():
                part = {"type": "http.response.body", "body": piece, "more_body": True}
                async with asyncio.timeout(_SEND_S):
                    await send(part)
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _unless_gone(work: asyncio.Future[None], receive: Receive) -> bool:
    """Wait for the work, or until the client has gone; then the work is cancelled, and False returned."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.ensure_future(gone())
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        return work.done()
    finally:
        for task in (work, watch):
            task.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)
