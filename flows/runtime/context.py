"""Values that hold for what is called inside a block, and work in a thread beside it that sees them."""

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def using(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Have a context variable hold a value while this block runs."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def repeating(name: str, work: Callable[[], float | None], *, join: bool = True) -> Iterator[None]:
    """While this block runs, call `work` again and again, in a thread of that name with this thread's context.

    `work` returns the seconds until the next call, or None: no more. `join`: the block's end waits for the last one.
    """
    ended = threading.Event()

    def run() -> None:
        while (pause_s := work()) is not None and not ended.wait(pause_s):
            pass

    thread = threading.Thread(target=contextvars.copy_context().run, args=[run], name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        if join:
            thread.join()
