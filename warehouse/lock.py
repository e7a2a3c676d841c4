"""An exclusive lock on a file of this machine, which says who holds it.

The kernel frees it when its holder dies, however it dies, so there is never a stale lock to remove. The lock file
stays, empty. Within NFS mounts without lock support it protects nothing; several machines share PostgreSQL instead.
"""

from __future__ import annotations

import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import orjson

from warehouse.errors import CatalogError, LockHeldError

__all__ = ["FileLock"]


class FileLock:
    """Held from construction to `close`.

    Args:
        path: the lock file; made if it is not there.
        wait: wait for the holder, without polling, instead of raising.

    Raises:
        LockHeldError: another holder has it, and `wait` is False.
        CatalogError: the lock file cannot be made.
    """

    def __init__(self, path: str | Path, *, wait: bool = False) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise CatalogError(f"cannot make the lock file {path}: {exc.strerror or exc}") from exc
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as exc:
            holder = self._holder()
            os.close(self._handle)
            raise LockHeldError(str(self.path), *holder) from exc
        self._write({"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat()})

    def _holder(self) -> tuple[int, str, str]:
        try:
            value = orjson.loads(os.pread(self._handle, 4096, 0))
            return int(value["pid"]), str(value["host"]), str(value["since"])
        except (KeyError, TypeError, ValueError):
            return 0, "", ""

    def _write(self, value: dict[str, object] | None) -> None:
        os.ftruncate(self._handle, 0)
        if value is not None:
            os.pwrite(self._handle, orjson.dumps(value), 0)

    def close(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._handle >= 0:
            self._write(None)
            os.close(self._handle)  # the kernel frees the lock with it
            self._handle = -1

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
