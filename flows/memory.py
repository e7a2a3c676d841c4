"""Keeps the memory of a flow's process from growing with the number of shards that its threads have run.

What a shard needs is freed at its end, but the C library (glibc) keeps freed memory for the thread that had it, in up
to eight pools a core. With many threads that take turns, every pool grows to the most that its threads ever needed, and
holes stay in it: a build of 300,000 documents kept 200 MB so, and twice as many documents would have kept twice as
much. So there are two pools, and now and then what is free in them is given back. Other C libraries are left alone.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["returning_memory"]

EVERY_S = 5.0
_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h
_POOLS = 2


@contextmanager
def returning_memory(every_s: float = EVERY_S, trim: Callable[[], object] | None = None) -> Iterator[None]:
    """Have a thread give free memory back to the system while this block runs, and at its end.

    Args:
        every_s: seconds between two times.
        trim: gives it back; default: glibc's `malloc_trim`, or nothing where there is none.
    """
    trim = trim or _trim_of_glibc()
    if trim is None:
        yield
        return
    ended = threading.Event()

    def trim_until_ended() -> None:
        while not ended.wait(every_s):
            trim()

    thread = threading.Thread(target=trim_until_ended, name="memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        trim()


def _trim_of_glibc() -> Callable[[], object] | None:
    """Limit glibc's pools from now on, and return what gives their free memory back; None: another C library."""
    try:
        library = ctypes.CDLL(None)
        library.mallopt(_ARENA_MAX, _POOLS)
        malloc_trim = library.malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return lambda: malloc_trim(ctypes.c_size_t(0))
