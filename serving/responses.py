"""Sends one response to a client, complete or as server-sent events; whatever ends it releases its pending request."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from serving.engine_thread import EngineThread, PendingRequest
from serving.errors import CLIENT_GONE, error_body, unavailable
from serving.openai_format import DONE, KEEP_ALIVE, ResponseWriter, sse
from toolformer_core.decode.records import Finished, GenerationSettings

_KEEP_ALIVE_S = 15.0  # a stream sends something at least this often
_SEND_S = 60.0  # a client that accepts no data for this long is regarded as gone


@dataclass(frozen=True, slots=True)
class Planned:
    """How a request is answered: the writer, and what the engine writes for it (nothing if it is empty)."""

    writer: ResponseWriter
    prompts: list[str]
    settings: list[GenerationSettings]


class ActiveResponse(Response):
    """A response in progress, sent as server-sent events unless `complete` is; it ends when the client disconnects."""

    def __init__(
        self, engine_thread: EngineThread, pending: PendingRequest, response_writer: ResponseWriter, since: float
    ) -> None:
        super().__init__(
            media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )
        del self.headers["content-length"]
        self.response_writer = response_writer
        self._engine_thread = engine_thread
        self._pending = pending
        self._since = since
        self._first_text_seen = False

    async def complete(self, request: Request) -> Response:
        """Return the complete response once it is finished; status 499 if the client has disconnected."""

        async def finish() -> None:
            async for _ in self.chunks():
                pass

        work = asyncio.ensure_future(finish())
        try:
            if not await unless_disconnected(work, request.receive):
                return Response(status_code=CLIENT_GONE)  # not sent to anyone, but counted by the metrics
        finally:
            self._engine_thread.release(self._pending)
        if self.response_writer.cut:
            raise unavailable("the server ended this answer; try again", "stopped")
        return JSONResponse(self.response_writer.complete())

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the stream, always everything that is ready."""
        response_writer = self.response_writer
        if opening := b"".join(map(sse, response_writer.begin())):
            yield opening
        while not response_writer.done:
            try:
                async with asyncio.timeout(_KEEP_ALIVE_S):  # `wait_for` of Python 3.11 can swallow a cancellation
                    events = [await self._pending.events.get()]
            except TimeoutError:
                yield KEEP_ALIVE
                continue
            while not self._pending.events.empty():
                events.append(self._pending.events.get_nowait())
            if not self._first_text_seen and any(not isinstance(event, Finished) for event in events):
                self._first_text_seen = True
                self._engine_thread.metrics.first_text.observe(time.monotonic() - self._since)
            if data := b"".join(sse(chunk) for event in events for chunk in response_writer.write(event)):
                yield data
        if response_writer.cut:
            yield sse(error_body("the server ended this answer; try again", "server_error", code="stopped"))
        yield b"".join(map(sse, response_writer.end())) + DONE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_disconnected(asyncio.ensure_future(self._send_all(send)), receive)
        finally:
            self._engine_thread.release(self._pending)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with contextlib.suppress(OSError, TimeoutError):
            async for chunk in self.chunks():
                message = {"type": "http.response.body", "body": chunk, "more_body": True}
                async with asyncio.timeout(_SEND_S):
                    await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def unless_disconnected(work: asyncio.Future[Any], receive: Receive) -> bool:
    """Wait for the work and return True; if the client disconnects first, cancel the work and return False."""

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    disconnect = asyncio.ensure_future(wait_for_disconnect())
    try:
        await asyncio.wait((work, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        return work.done()
    finally:
        for task in (work, disconnect):
            task.cancel()
        await asyncio.gather(work, disconnect, return_exceptions=True)
