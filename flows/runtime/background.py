"""Work in a thread beside a flow's own."""

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(name: str, work: Callable[[threading.Event], object], *, join: bool = True) -> Iterator[None]:
    """Run `work` in a thread of that name, with this thread's context, while this block runs.

    Args:
        work: gets an event that is set when the block ends, and then returns.
        join: whether the block waits for that.
    """
    ended = threading.Event()
    thread = threading.Thread(target=contextvars.copy_context().run, args=[work, ended], name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        if join:
            thread.join()
