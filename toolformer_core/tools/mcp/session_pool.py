"""The sessions of one MCP server: opened as calls need them, shared by many calls, replaced when broken.

After an overdue call the server may be stuck: its session gets no more calls, and closes when those in progress are
answered. Everything here runs on one event loop, so nothing is locked. Threads use `ask` and `tools_of`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from toolformer_core.tools.mcp.loop import LoopClosed, loop_thread
from toolformer_core.tools.mcp.reference import Server
from toolformer_core.tools.mcp.session import Overdue, Session, SessionGone, Unreachable

if TYPE_CHECKING:
    from mcp.types import CallToolResult, Tool

T = TypeVar("T")

_PAUSE_S = 5.0  # between tries to open one more session
_LATER_S = 5.0  # how much later than the loop's own deadline a thread stops waiting; it should never come to that


class SessionPool:
    """The sessions of a server with one set of settings, on the running loop."""

    def __init__(self, server: Server) -> None:
        self._server, self._limits = server, server.limits
        self._serving: list[Session] = []
        self._opening: set[Session] = set()
        self._all: set[Session] = set()  # those as well that take no more calls, and some that are closed
        self._waiting = 0  # calls
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # what they wait for
        self._no_more_until = 0.0  # a session could not be opened a moment ago: those that there are must do
        self._closed = False

    async def call(self, tool: str, arguments: dict[str, Any], timeout_s: float) -> CallToolResult:
        """Ask the server; what it raises is what `Session.call` does, except that a gone session is replaced once."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        for _ in range(2):
            session = await self._take(deadline)
            try:
                return await session.call(tool, arguments, deadline)
            except SessionGone:
                self._leave(session)
            except (Unreachable, Overdue):
                self._leave(session)
                raise
            finally:
                self._give_back(session)
        raise Unreachable("two sessions ended before the server took the call")

    async def tools(self, timeout_s: float) -> tuple[dict[str, Tool], tuple[str, str]]:
        """Return the server's tools by name, and its name and version."""
        session = await self._take(asyncio.get_running_loop().time() + timeout_s)
        self._give_back(session)
        return session.tools, session.server

    async def close(self) -> None:
        """Close all sessions and wait for it; calls in progress fail."""
        self._closed = True
        self._tell()
        for session in self._all:
            session.close()
        if self._all:
            await asyncio.wait({session.owner for session in self._all})

    async def _take(self, deadline: float) -> Session:
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                while not (room := [one for one in self._serving if one.in_flight < self._limits.calls_at_once]):
                    if self._closed:
                        raise Unreachable("the sessions have been closed")
                    self._open_as_needed()
                    await asyncio.shield(self._news)
        except TimeoutError:
            raise Overdue from None
        finally:
            self._waiting -= 1
        session = min(room, key=lambda one: one.in_flight)
        session.in_flight += 1
        return session

    def _tell(self, problem: Exception | None = None) -> None:
        """Have all who wait look again, or fail."""
        news, self._news = self._news, asyncio.get_running_loop().create_future()
        if problem is None:
            news.set_result(None)
        else:
            news.set_exception(problem)
            news.exception()  # read, also if nobody waits

    def _open_as_needed(self) -> None:
        if self._closed or not self._waiting:
            return
        busy = sum(session.in_flight for session in self._serving)
        wanted = -(-(busy + self._waiting) // self._limits.calls_at_once)
        there = len(self._serving) + len(self._opening)
        if there and time.monotonic() < self._no_more_until:
            return
        for _ in range(there, min(wanted, self._limits.sessions)):
            session = Session(self._server, self._changed)
            self._opening.add(session)
            self._all = {session, *(one for one in self._all if not one.owner.done())}

    def _changed(self, session: Session) -> None:
        failed = session in self._opening and session.gone.done()
        self._opening.discard(session)
        if not session.gone.done() and self._closed:
            session.close()
        elif not session.gone.done():
            self._serving.append(session)
            self._tell()
        elif failed:
            self._no_more_until = time.monotonic() + _PAUSE_S
            if not self._serving and not self._opening:
                self._tell(session.problem or Unreachable("the session closed"))
        else:
            self._leave(session)
            self._open_as_needed()

    def _leave(self, session: Session) -> None:
        """Give a session no more calls; it closes when none is in progress."""
        if session in self._serving:
            self._serving.remove(session)
        if session.in_flight == 0:
            session.close()

    def _give_back(self, session: Session) -> None:
        session.in_flight -= 1
        if session.in_flight == 0 and session not in self._serving:
            session.close()
        self._tell()
        self._open_as_needed()


def ask(server: Server, tool: str, arguments: dict[str, Any], timeout_s: float) -> CallToolResult:
    """Ask a tool from any thread; see `SessionPool.call`. A `UsageError` if a variable is not set."""
    return _run(server, lambda pool: pool.call(tool, arguments, timeout_s), timeout_s)


def tools_of(server: Server) -> tuple[dict[str, Tool], tuple[str, str]]:
    """Return a server's tools by name, and its name and version, from any thread; it raises what `ask` does."""
    return _run(server, lambda pool: pool.tools(server.limits.connect_s), server.limits.connect_s)


def _run(server: Server, work: Callable[[SessionPool], Awaitable[T]], timeout_s: float) -> T:
    thread = loop_thread()

    async def on_the_loop() -> T:
        if thread.closing:
            raise LoopClosed
        pool: SessionPool = thread.shared.get(repr(server)) or SessionPool(server)
        thread.shared[repr(server)] = pool
        return await work(pool)

    try:
        return thread.run(on_the_loop(), timeout_s + _LATER_S)
    except LoopClosed:
        raise Unreachable("the sessions have been closed") from None
    except TimeoutError:
        raise Overdue from None
