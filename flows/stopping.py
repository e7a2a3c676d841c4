"""How a command ends when it is told to: by Ctrl-C (SIGINT), or by SIGTERM, which `timeout`, systemd, Docker and Slurm
send. Both mean the same: commits are whole or absent, so there is nothing to wait for.

While a flow runs, Prefect's engine puts a SIGTERM handler of its own in the place of the command's. That suits a flow
run that a worker started; in a command it would wait for all threads, and a thread inside a model or a tool cannot be
interrupted. So a flow puts the command's handler back (`keep_stop_handler`). What is stopped is not known here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = [
    "STOPPED",
    "TERMINATED",
    "Terminated",
    "handling_stop",
    "keep_stop_handler",
    "leave_at_once",
    "leave_later",
    "terminable",
]

STOPPED = "stopped; run the same command again to go on"
TERMINATED = 128 + signal.SIGTERM  # the exit code, as a shell counts it
_LEAVE_S = 5  # for what is done between the signal and the end of the process

Handler = Callable[[int, FrameType | None], None]
_handlers: list[Handler] = []  # of the commands under way in this process, the innermost last


class Terminated(BaseException):
    """SIGTERM came, and the command at hand has no handler of its own."""


@contextmanager
def terminable() -> Iterator[None]:
    """Inside this block SIGTERM raises `Terminated` in the main thread, as Ctrl-C raises KeyboardInterrupt."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def handling_stop(handler: Handler) -> Iterator[None]:
    """Inside this block, and in the flows that run in it, Ctrl-C and SIGTERM call `handler` in the main thread."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    _handlers.append(handler)
    try:
        yield
    finally:
        _handlers.pop()
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, former in before.items():
            signal.signal(number, former)


def keep_stop_handler() -> None:
    """At the beginning of a flow: have the command that runs it handle SIGTERM, and not Prefect's engine.

    Nothing changes where no command of this process handles it: in a flow run that a Prefect worker has started.
    """
    if _handlers and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _handlers[-1])


def leave_later(seconds: float, leave: Callable[[], None]) -> None:
    """Call `leave` in the main thread after some seconds, unless the `handling_stop` around this ends before."""
    signal.signal(signal.SIGALRM, lambda *_: leave())
    signal.setitimer(signal.ITIMER_REAL, seconds)


def leave_at_once(code: int, line: str, close: Callable[[], None] = lambda: None) -> None:
    """End this process and its children where they stand, without waiting for its threads.

    Args:
        code: the exit code.
        line: the last line on standard error.
        close: leaves the terminal as it was.
    """
    from flows.server import end_children  # imports psutil, and `--help` needs none

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(code))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LEAVE_S)  # whatever a lock or a terminal that takes no text does
    try:
        end_children()
        close()
        os.write(sys.stderr.fileno(), f"{line}\n".encode())  # `print` would fail inside another print
        sys.stdout.flush()
    finally:  # nobody may listen any more
        os._exit(code)
