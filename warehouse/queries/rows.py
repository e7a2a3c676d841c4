"""Opening the published snapshot, the rows of a query as dicts, and the data files that a snapshot refers to."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from warehouse.errors import SnapshotError, error_line, holder_of
from warehouse.snapshot.index import FORMAT
from warehouse.snapshot.relations import parquet_sql
from warehouse.snapshot.remote import register_files_of_snapshot

Rows = TypeVar("Rows")

_ATTEMPTS = 10  # to open a snapshot that is replaced meanwhile; it is usually replaced once in twenty seconds
_LITTLE = "64MB"
_limit: ContextVar[tuple[str, str] | None] = ContextVar("limit", default=None)  # memory, and a folder for the rest


@contextmanager
def low_memory(limit: str = _LITTLE, folder: Path | None = None) -> Iterator[None]:
    """Have connections of this thread take little memory while this block runs, and write what is more to a folder.

    Without a `folder` it is a new one, which goes with this block. A process that opens one snapshot in several threads
    names one that stays: DuckDB has one for all connections to a file.
    """
    new = tempfile.TemporaryDirectory
    with contextlib.ExitStack() as own:
        spill = folder or own.enter_context(new(prefix="toolformer-queries-", ignore_cleanup_errors=True))
        token = _limit.set((limit, str(spill)))
        try:
            yield
        finally:
            _limit.reset(token)


def open_snapshot(path: str | Path) -> duckdb.DuckDBPyConnection:
    """Open the snapshot read-only, or raise a SnapshotError; the caller closes it. Files on a URL are read lazily."""
    # DuckDB 2.0.0 opens the path three times. If the file is replaced in between, it reads the blocks of one by the
    # headers of the other: it fails ("No more data remaining in MetadataReader"), or might take wrong blocks for right.
    for _ in range(_ATTEMPTS):
        if (before := snapshot_identity(path)) is None:
            raise SnapshotError(f"there is no snapshot at {path} yet; build a dataset, or reconcile")
        try:
            connection = duckdb.connect(str(path), read_only=True)
            if snapshot_identity(path) == before:
                return _set_up(connection)
            connection.close()
        except duckdb.Error as exc:
            if snapshot_identity(path) == before:
                raise SnapshotError(f"cannot open the snapshot {path}: {_remedy(exc, path)}") from exc
    raise SnapshotError(f"the snapshot {path} was replaced at each of {_ATTEMPTS} attempts to open it")


def _set_up(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    register_files_of_snapshot(connection)
    if limit := _limit.get():
        with contextlib.suppress(duckdb.Error):  # open elsewhere in this process, which then has its own limits
            connection.execute("SET temp_directory = $folder", {"folder": limit[1]})
            connection.execute(f"SET memory_limit = '{limit[0]}'")
    return connection


def _remedy(exc: duckdb.Error, path: str | Path) -> str:
    if (holder := holder_of(exc)) is None:
        return f"{error_line(exc)}; run toolformer reconcile"
    program = f"{holder[0]} (process {holder[1]})" if holder[1] else "another program"
    return f"{program} may write to it; close it there, and open it with duckdb -readonly {path}"


def snapshot_identity(path: str | Path) -> tuple[int, int] | None:
    """Return what tells one published snapshot from another; None: there is none that can be looked at."""
    try:
        stat = Path(path).stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def rows_of(path: str | Path, sql: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a SELECT on a snapshot as dicts, or raise a SnapshotError; parameters are written `$name`."""
    with open_snapshot(path) as connection:
        return rows_in(connection, sql, parameters)


def rows_in(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    def fetch() -> list[dict[str, Any]]:
        result = connection.execute(sql, parameters)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    return _fetched(connection, fetch)


def data_is_gone(error: duckdb.Error) -> str:
    return (
        f"the snapshot refers to data that cannot be read ({error_line(error)}): if the folder was moved or files "
        "are gone, run toolformer reconcile with the same --data"
    )


def data_root(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Return the folder or URL of the data files; None: the snapshot is packed and holds the tables themselves."""
    rows = rows_in(connection, "SELECT value FROM facts.about WHERE name = 'data'")
    return str(rows[0]["value"]) if rows else None


def files_sql(connection: duckdb.DuckDBPyConnection, table: str, sql: str, parameters: dict[str, Any]) -> str | None:
    """Return SQL of the rows of a table in the files whose `path` a query returns (None: there are none).

    In a packed snapshot it is the table itself.
    """
    if (root := data_root(connection)) is None:
        return table
    files = rows_in(connection, sql, parameters)
    return parquet_sql(f"{root}/{row['path']}" for row in files) if files else None


def version_sql(connection: duckdb.DuckDBPyConnection, dataset: str, version: str) -> str | None:
    """Return SQL of a relation over the files of a version of C*; None if they are not all there."""
    sql = "SELECT path FROM facts.version_files WHERE dataset = $dataset AND version = $version ORDER BY path"
    files = rows_in(connection, sql, {"dataset": dataset, "version": version})
    return parquet_sql(f"{data_root(connection)}/{row['path']}" for row in files) if files else None


def table_in(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    return _fetched(connection, lambda: connection.sql(sql).to_arrow_table())


def _fetched(connection: duckdb.DuckDBPyConnection, ask: Callable[[], Rows]) -> Rows:
    try:
        try:
            return ask()
        except duckdb.OutOfMemoryException:  # not everything can be written to disk
            if _limit.get() is None:
                raise
            connection.execute("RESET memory_limit")
            return ask()
    except duckdb.IOException as exc:
        raise SnapshotError(data_is_gone(exc)) from exc
    except duckdb.Error as exc:
        other = "another version of this program wrote the snapshot: run toolformer reconcile with the same --data"
        problem = other if _is_of_another_version(connection) else f"the query failed: {error_line(exc)}"
        raise SnapshotError(problem) from exc


def _is_of_another_version(connection: duckdb.DuckDBPyConnection) -> bool:
    with contextlib.suppress(duckdb.Error):  # it has no such table
        return connection.execute("SELECT value FROM facts.about WHERE name = 'index'").fetchone() != (FORMAT,)
    return True
