"""The event loop of a process on which all its MCP sessions live, in a daemon thread of its own.

The SDK is asynchronous, tools are called from many threads: they hand their coroutines over. A forked process gets a
loop of its own, as the parent's thread does not live in it.
"""

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from contextlib import closing, suppress
from typing import Any, TypeVar

_CANCEL_S = 2.0  # for what is left when all has been closed
CLOSE_S = 15.0  # for all sessions together; each of them is bounded, too

T = TypeVar("T")


class LoopClosed(Exception):
    """The loop was closed while it was at the work, or before."""


class LoopThread:
    """A thread that runs an event loop until it is closed."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        # touched by the loop's thread alone:
        self.shared: dict[str, Any] = {}  # what lives on the loop, and is closed (`await ....close()`) before it ends
        self.closing = False  # nothing is added any more
        self._thread = threading.Thread(target=self._run, name="mcp-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with closing(self.loop):
            self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the loop, and wait for it in this thread: `LoopClosed` if the loop was closed.

        A `TimeoutError` if it was not finished within the seconds given; it has been cancelled.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError as exc:  # asyncio's word for a loop that is closed
            work.close()
            raise LoopClosed from exc
        try:
            return future.result(timeout_s)
        except concurrent.futures.CancelledError:
            raise LoopClosed from None
        except TimeoutError:
            future.cancel()
            raise TimeoutError(f"not finished within {timeout_s:g} s") from None

    def close(self) -> None:
        """Close what lives on the loop, and end its thread; nothing may be run on it afterwards."""
        with suppress(TimeoutError):  # each part has been given up after a bounded time of its own
            self.run(self._close_all(), CLOSE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CLOSE_S)

    async def _close_all(self) -> None:
        self.closing = True
        await asyncio.gather(*(shared.close() for shared in self.shared.values()), return_exceptions=True)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=_CANCEL_S)


_lock = threading.Lock()
_current: LoopThread | None = None
_of_the_parent: list[LoopThread] = []  # kept in a forked process: to collect it would close what the parent still uses


def loop_thread() -> LoopThread:
    """Return the loop of this process; the first call starts it."""
    global _current
    with _lock:
        if _current is None:
            _current = LoopThread()
        return _current


def close() -> None:
    """End all MCP sessions of this process and the servers it started; a later call of a tool starts anew."""
    global _current
    with _lock:
        ending, _current = _current, None
    if ending is not None:
        ending.close()


def _forget() -> None:
    global _current, _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    if _current is not None:
        _of_the_parent.append(_current)
        _current = None


atexit.register(close)
os.register_at_fork(after_in_child=_forget)
