"""The errors that the warehouse raises on purpose, as one tree.

    WarehouseError
    ├── StoreError             a file could not be written, found or understood
    │   ├── CorruptDataError   a data file differs from what its commit says: truncated or altered
    │   └── SchemaError        a table does not have its stage's columns
    ├── ConservationError      rows are missing or surplus: in != kept + dropped + failed
    ├── CatalogError           the catalog could not be opened or written
    │   └── LockHeldError      another process holds a lock; the message says which
    ├── SnapshotError          there is no published snapshot, or it could not be written
    └── QueryError             a user's own query failed, or took more time or memory than it may
        └── RefusedQueryError  it is not one statement that only reads, or names a file beyond the data folder

This module does not know the method's errors; `tasks` translates where a user must see one line.
"""

from __future__ import annotations

import errno
import re

__all__ = [
    "CatalogError",
    "ConservationError",
    "CorruptDataError",
    "LockHeldError",
    "QueryError",
    "RefusedQueryError",
    "SchemaError",
    "SnapshotError",
    "StoreError",
    "WarehouseError",
    "error_line",
    "holder_of",
    "is_disk_full",
]

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXT = "No space left on device"
# DuckDB and SQLite do not pass the number on; the last text is SQLite's.
_HELD = re.compile(r"Conflicting lock is held(?: in (.+?) \(PID (\d+)\))?")
_FULL_TEXTS = (_FULL_TEXT, "Disk quota exceeded", "database or disk is full")


def is_disk_full(exc: BaseException) -> bool:
    """Return whether an error reports a full disk, by its number or its text."""
    return getattr(exc, "errno", None) in _FULL or any(text in str(exc) for text in _FULL_TEXTS)


def holder_of(exc: BaseException) -> tuple[str, int] | None:
    """Return which program has the DuckDB file open that an error speaks of, and its process id ("", 0: unknown).

    Returns None if the error is another one.
    """
    match = _HELD.search(str(exc))
    return (match[1] or "", int(match[2] or 0)) if match else None


def error_line(exc: BaseException) -> str:
    """Return an error's message as one line; for a full disk, also what to do about it."""
    line = getattr(exc, "strerror", None) or (str(exc).splitlines() or [type(exc).__name__])[0]
    if not is_disk_full(exc):
        return line
    line = line if _FULL_TEXT in line else f"{line}: {_FULL_TEXT}"
    return f"{line}; free some space there and run the same command again; it continues where it stopped"


class WarehouseError(Exception):
    """The root: `except WarehouseError` catches every error that the warehouse raises on purpose."""


class StoreError(WarehouseError):
    """A file could not be written, found or understood (a full disk, a missing path, a bad name)."""


class CorruptDataError(StoreError):
    """A data file differs from what its commit says: quarantine the commit and compute the shard again."""


class SchemaError(StoreError):
    """A table does not have its stage's columns and types."""


class ConservationError(WarehouseError):
    """A stage lost or invented rows: in = kept + dropped + failed does not hold. Such a shard is not committed."""


class CatalogError(WarehouseError):
    """The catalog could not be opened, read or written."""


class ConnectionLostError(CatalogError):
    """The database server ended the connection, e.g. because it restarts; nothing of the transaction was kept."""


class LockHeldError(CatalogError):
    """Another process holds a lock.

    Args:
        pid: the holder's process id; 0 if unknown.
        host: the holder's host name; "" if unknown.
        since: when the holder took the lock, ISO UTC; "" if unknown.
        command: the holder's command; "" if unknown.
    """

    def __init__(self, path: str, pid: int, host: str, since: str, command: str = "") -> None:
        self.path, self.pid, self.host, self.since, self.command = path, pid, host, since, command
        suffix = f" ({command})" if command else ""
        since = f" since {since}" if since else ""
        holder = f"process {pid} on {host}{since}{suffix}" if pid else "another process"
        super().__init__(f"{path} is held by {holder}; wait for it to finish, or stop it")

    def __reduce__(self) -> tuple[type[LockHeldError], tuple[str, int, str, str, str]]:
        return (type(self), (self.path, self.pid, self.host, self.since, self.command))


class SnapshotError(WarehouseError):
    """There is no published snapshot yet, or it could not be written or read."""


class QueryError(WarehouseError):
    """A user's own query failed, or took more time or memory than it may."""


class RefusedQueryError(QueryError):
    """A user's own query is not one statement that only reads, or names a file beyond the data folder."""
