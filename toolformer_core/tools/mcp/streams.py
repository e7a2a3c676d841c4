"""What a server says, on its way to the SDK, and the end of what its process prints. This module knows no session."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

_TAIL_BYTES = 4000


@asynccontextmanager
async def watched(transport: Any, on_end: Callable[[], None], on_noise: Callable[[str], None]) -> AsyncIterator[Any]:
    """A transport that says when the server's messages end, and which of its lines is none.

    An answer that the SDK cannot read becomes an error, so that its call fails at once and no other does.
    """
    async with transport as (read, write):
        yield _WatchedStream(read, on_end, on_noise), write


class _WatchedStream:
    """What a server says, message by message, and a word when there is no more."""

    def __init__(self, inner: Any, on_end: Callable[[], None], on_noise: Callable[[str], None]) -> None:
        self._inner = inner
        self._on_end = on_end
        self._on_noise = on_noise

    @property
    def last_context(self) -> Any:  # the SDK runs a message's handler in it
        return getattr(self._inner, "last_context", None)

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._inner.__anext__()
        except BaseException:
            self._on_end()
            raise
        return self._readable(item) if isinstance(item, Exception) else item

    def _readable(self, problem: Exception) -> Any:
        from mcp.shared.message import SessionMessage
        from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError
        from pydantic import ValidationError

        inputs = [error["input"] for error in problem.errors()] if isinstance(problem, ValidationError) else [None]
        line: Any = next((parsed for parsed in inputs if isinstance(parsed, dict)), inputs[0])
        message = line
        with suppress(TypeError, ValueError, RecursionError):
            message = json.loads(line)
        if isinstance(message, dict) and "method" not in message and isinstance(message.get("id"), int | str):
            error = ErrorData(code=PARSE_ERROR, message="the answer is not JSON-RPC in UTF-8")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message["id"], error=error))
        self._on_noise(str(line))
        return problem

    async def __aenter__(self) -> _WatchedStream:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:
        return await self._inner.__aexit__(*exc)


class Tail:
    """The end of what a process writes to its standard error, and to its standard output if it is no message.

    The rest is read and dropped, so the process never blocks.
    """

    def __init__(self) -> None:
        self._kept = b""
        self._loop = asyncio.get_running_loop()
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self.file = os.fdopen(write, "w")  # for the process; closed here with the rest
        self._loop.add_reader(self._read, self._collect)

    def _collect(self) -> None:
        try:
            read = os.read(self._read, 65536)
        except BlockingIOError:
            return
        if not read:
            self._loop.remove_reader(self._read)
        self.add(read)

    def add(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_TAIL_BYTES:]

    def last_line(self) -> str:
        """Return the last line that is not blank, at most 300 characters of it."""
        self._collect()
        lines = [line.strip() for line in self._kept.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""

    def close(self) -> None:
        self._loop.remove_reader(self._read)
        os.close(self._read)
        self.file.close()
