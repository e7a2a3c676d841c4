"""An exclusive lock on a file of this machine, which says who holds it, in a note; the file stays.

The kernel frees the lock (`flock`) when its holder dies. A network mount whose locks are local to each machine does not
keep out other machines; these share PostgreSQL instead.
"""

import contextlib
import os
import re
import shlex
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import filelock
import orjson

from warehouse.errors import CatalogError, LockHeldError, error_line
from warehouse.files.folders import make_folder

_POLL_S = 0.2  # between two attempts
_COMMAND_CHARS = 300
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")  # in a URL among a command's arguments


class FileLock(contextlib.AbstractContextManager["FileLock"]):
    """A lock that is held from construction to `close`; a context manager. Any thread may close it.

    `on_wait` is called once, before waiting, with an error that names the holder.

    Raises:
        LockHeldError: another process or another instance holds the lock, and still did after `wait_s`.
        CatalogError: the lock file cannot be created, or its file system has no locks.
    """

    def __init__(
        self, path: str | Path, *, wait_s: float = 0.0, on_wait: Callable[[LockHeldError], None] | None = None
    ) -> None:
        self.path = Path(path)
        self._descriptor = -1  # of the lock file; `filelock` owns it
        self._lock = filelock.FileLock(
            self.path, poll_interval=_POLL_S, thread_local=False, fallback_to_soft=False, on_acquired=self._write_note
        )
        try:
            make_folder(self.path.absolute().parent)
            self.path.touch(0o644)  # `filelock` would let everybody write to it whom the umask does not exclude
            try:
                self._lock.acquire(timeout=0)
            except filelock.Timeout:
                if on_wait is not None and wait_s > 0:
                    on_wait(self._held_error())
                self._lock.acquire(timeout=wait_s)
        except filelock.Timeout as exc:
            raise self._held_error() from exc
        except OSError as exc:
            raise CatalogError(f"cannot make the lock file {path}: {error_line(exc)}") from exc

    def _held_error(self) -> LockHeldError:
        try:
            note = orjson.loads(self.path.read_bytes())
            holder = int(note["pid"]), str(note["host"]), str(note["since"]), str(note["command"])
        except (KeyError, OSError, TypeError, ValueError):
            holder = 0, "", "", ""
        return LockHeldError(str(self.path), *holder)

    def _write_note(self, descriptor: int) -> None:
        """Write who holds the lock. If the disk is full the lock holds all the same, by "another process"."""
        self._descriptor = descriptor
        command = _CREDENTIALS.sub("", shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))[:_COMMAND_CHARS]
        since = datetime.now(UTC).isoformat(timespec="seconds")
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": since, "command": command}
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, orjson.dumps(note), 0)

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._lock.is_locked:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.close()
