"""Work in a thread beside a flow's own."""

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(name: str, work: Callable[[], float | None], *, join: bool = True) -> Iterator[None]:
    """While this block runs, call `work` again and again, in a thread of that name with this thread's context.

    Args:
        work: returns the seconds until the next call; None: it is not called again.
        join: whether the end of the block waits for a call under way.
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
