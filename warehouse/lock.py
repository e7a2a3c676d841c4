"""An exclusive lock on a file of this machine, which says who holds it.

The kernel frees it when its holder dies, however it dies, so there is never a stale lock to remove: what a dead holder
wrote into the file is no lock. The lock file stays. Within NFS mounts without lock support it protects nothing; several
machines share PostgreSQL instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import orjson

from warehouse.errors import CatalogError, LockHeldError, told
from warehouse.folders import make_folder

__all__ = ["FileLock"]


_POLL_S = 0.2  # between two tries; the kernel's own waiting knows no limit of time
_NOTE_BYTES = 4096  # more than a holder says of itself
_COMMAND_CHARS = 300
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")  # in a URL among a command's arguments


class FileLock:
    """Held from construction to `close`.

    Args:
        path: the lock file; made if it is not there.
        wait_s: seconds to wait for the holder before giving up; `math.inf`: however long it takes.
        waiting: told once, before waiting, who holds it.

    Raises:
        LockHeldError: another holder has it, and still had it after `wait_s`.
        CatalogError: the lock file cannot be made.
    """

    def __init__(
        self, path: str | Path, *, wait_s: float = 0.0, waiting: Callable[[LockHeldError], None] | None = None
    ) -> None:
        self.path = Path(path)
        try:
            make_folder(self.path.absolute().parent)
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise CatalogError(f"cannot make the lock file {path}: {told(exc)}") from exc
        try:
            self._acquire(wait_s, waiting)
        except BaseException:
            os.close(self._handle)
            raise
        self._say()

    def _acquire(self, wait_s: float, waiting: Callable[[LockHeldError], None] | None) -> None:
        until = time.monotonic() + wait_s
        tried = 0
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                held = LockHeldError(str(self.path), *self._holder())
                if time.monotonic() >= until:
                    raise held from exc
                tried += 1
                if waiting is not None and (held.pid or tried > 1):  # it may have had no time yet to say who it is
                    waiting(held)
                    waiting = None
                time.sleep(min(_POLL_S, max(0.0, until - time.monotonic())))
            else:
                return

    def _holder(self) -> tuple[int, str, str, str]:
        try:
            value = orjson.loads(os.pread(self._handle, _NOTE_BYTES, 0))
            return int(value["pid"]), str(value["host"]), str(value["since"]), str(value["command"])
        except (KeyError, TypeError, ValueError):
            return 0, "", "", ""

    def _say(self) -> None:
        """Write down who holds the lock. A full disk forbids no lock: it is then held by "another process"."""
        command = _CREDENTIALS.sub("", shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))[:_COMMAND_CHARS]
        since = datetime.now(UTC).isoformat(timespec="seconds")
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": since, "command": command}
        with contextlib.suppress(OSError):
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, orjson.dumps(note), 0)

    def close(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
            os.close(self._handle)  # the kernel frees the lock with it
            self._handle = -1

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
