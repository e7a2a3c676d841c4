"""The time that the engine goes by. Tests put another in its place, and then nobody really waits."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Protocol

Inbox = queue.SimpleQueue[Callable[[], None]]  # what other threads ask the owner of the inbox to do


class Clock(Protocol):
    """What time it is, and how to wait for a message."""

    def now(self) -> float:
        """Return seconds that only grow."""
        ...

    def wait(self, inbox: Inbox, seconds: float | None) -> Callable[[], None] | None:
        """Return the next message; None if none came within so many seconds (None: wait until one comes)."""
        ...


class SystemClock:
    """The machine's own."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, inbox: Inbox, seconds: float | None) -> Callable[[], None] | None:
        try:
            return inbox.get(timeout=seconds)
        except queue.Empty:
            return None
