"""How a command ends on Ctrl-C (SIGINT) and on SIGTERM, which `timeout`, systemd, Docker and Slurm send.

Prefect's engine replaces the command's SIGTERM handler with its own, which would wait for a thread inside a model.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from toolformer_core.errors import ToolformerError

STOPPED = "stopped; run the same command again to continue"
TERMINATED = 128 + signal.SIGTERM  # the exit code, as a shell counts it
UNFINISHED = os.EX_TEMPFAIL  # the exit code of a command that somebody else, or a time limit, has stopped
_EXIT_S = 5  # for everything between the signal and the end of the process

Handler = Callable[[int, FrameType | None], None]
_handlers: list[Handler] = []  # of the commands that run in this process, the innermost last
_reasons: list[str] = []  # why the command is stopped, if not by a signal from outside


class Terminated(BaseException):
    """SIGTERM arrived, and the command that runs has no handler of its own."""


class Stopped(ToolformerError):
    """The work was stopped, but not by a signal to this process; the same call goes on."""


@contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise `Terminated` in the main thread inside the block, as Ctrl-C raises KeyboardInterrupt."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def handle_stop(handler: Handler) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM call `handler` in the main thread inside the block, also while flows run in it."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    _handlers.append(handler)
    try:
        yield
    finally:
        _handlers.pop()
        _reasons.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, former in before.items():
            signal.signal(number, former)


def handles_stop() -> bool:
    """Return whether a command of this process handles Ctrl-C and SIGTERM."""
    return bool(_handlers)


def stop_command(line: str) -> None:
    """Have the command of this process stop as on Ctrl-C, but with this last line; call it from any thread."""
    _reasons.append(line)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def how_stopped(number: int) -> tuple[int, str]:
    """Return the exit code and the last line of a command that a signal stops, for its handler."""
    return (UNFINISHED, _reasons[-1]) if _reasons else (128 + number, STOPPED)


def restore_stop_handler() -> None:
    """Let the command that runs a flow, if one does, handle SIGTERM again instead of Prefect's engine."""
    if _handlers and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _handlers[-1])


def exit_later(seconds: float, leave: Callable[[], None]) -> None:
    """Call `leave` in the main thread after a time, unless the surrounding `handle_stop` ends first."""
    signal.signal(signal.SIGALRM, lambda *_: leave())
    signal.setitimer(signal.ITIMER_REAL, seconds)


def exit_now(code: int, line: str, close: Callable[[], None] = lambda: None) -> None:
    """End this process and its children at once, without waiting for its threads."""
    from multiprocessing import active_children

    from flows.runtime.server import end_child_servers  # it imports psutil, which `--help` does not need

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(code))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_EXIT_S)  # even if a lock or a blocked terminal holds this up
    try:
        end_child_servers()
        close()
        os.write(sys.stderr.fileno(), f"{line}\n".encode())  # `print` would fail if it interrupted another print
        sys.stdout.flush()
    finally:  # also if nobody reads the output any more
        for worker in active_children():  # Dask's would print that they have lost this process
            worker.kill()
        os._exit(code)
