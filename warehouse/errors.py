"""The errors that the warehouse raises on purpose, as one tree; the method's errors are not known here."""

import errno
import re

_HELD = re.compile(r"Conflicting lock is held(?: in (.+?) \(PID (\d+)\))?")
_FULL_TEXT = "No space left on device"
_FULL_TEXTS = (_FULL_TEXT, "Disk quota exceeded", "database or disk is full")  # the last is SQLite's


def is_disk_full(exc: BaseException) -> bool:
    """Return whether an error reports a full disk, by its number or its text; DuckDB and SQLite pass no number on."""
    return getattr(exc, "errno", 0) in (errno.ENOSPC, errno.EDQUOT) or any(text in str(exc) for text in _FULL_TEXTS)


def holder_of(exc: BaseException) -> tuple[str, int] | None:
    """Return who has the DuckDB file of an error open, and its process id ("", 0: unknown); None: another error."""
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
    """Another process holds a lock, since when (ISO UTC) and by which command; what is unknown is 0 or ""."""

    def __init__(self, path: str, pid: int, host: str, since: str, command: str) -> None:
        super().__init__(path, pid, host, since, command)  # pickled as they are
        self.path, self.pid, self.host, self.since, self.command = path, pid, host, since, command

    def __str__(self) -> str:
        since = f" since {self.since}" if self.since else ""
        command = f" ({self.command})" if self.command else ""
        holder = f"process {self.pid} on {self.host}{since}{command}" if self.pid else "another process"
        return f"{self.path} is held by {holder}; wait for it to finish, or stop it"


class SnapshotError(WarehouseError):
    """There is no published snapshot yet, or it could not be written or read."""


class QueryError(WarehouseError):
    """A user's own query failed, or took more time or memory than it may."""


class RefusedQueryError(QueryError):
    """A user's own query is not one statement that only reads, or names a file beyond the data folder."""
