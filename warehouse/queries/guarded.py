"""A user's own query on the published snapshot: it only reads, only in the data folder, and within bounds.

DuckDB opens the snapshot read-only and files below the data folder, where the views read; after that no setting can be
changed. As it could still write there (COPY TO), only statements that return rows are accepted. A query that takes too
long is interrupted; one that needs too much memory fails, as nothing is spilled to disk.
"""

import glob
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from warehouse.errors import QueryError, RefusedQueryError, error_line
from warehouse.queries.rows import open_snapshot

TIMEOUT_S = 60.0
MEMORY = "1GB"
_BATCH = 2048  # rows that are fetched at once
_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(ANALYZE\s+)?", re.IGNORECASE)


class Rows:
    """The rows of a query, fetched as they are needed."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.columns = tuple(column[0] for column in connection.description or ())
        self._connection = connection

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while batch := self._connection.fetchmany(_BATCH):
            yield from batch


def distinct_names(names: Iterable[str]) -> list[str]:
    """Return names of which no two are equal: a second `n` becomes `n_2`."""
    distinct: list[str] = []
    for name in names:
        unused, number = name, 2
        while unused in distinct:
            unused, number = f"{name}_{number}", number + 1
        distinct.append(unused)
    return distinct


@contextmanager
def run_query(path: str | Path, sql: str, timeout_s: float = TIMEOUT_S, memory: str = MEMORY) -> Iterator[Rows]:
    """Run one query in so much `memory` (e.g. `500MB`) and yield its rows, which can be read until the block ends.

    The restrictions hold for all open connections of this process to the snapshot.

    Raises:
        RefusedQueryError: it is not one statement that returns rows, or would read a file beyond the data folder.
        QueryError: it fails, or it needs too much time or memory.
    """
    with open_snapshot(path) as opened, opened.cursor() as connection:
        _check(sql)
        _restrict(connection, Path(path), memory)
        overdue = threading.Event()

        def interrupt() -> None:
            overdue.set()
            connection.interrupt()

        timer = threading.Timer(timeout_s, interrupt)
        timer.daemon = True
        timer.start()
        try:
            connection.execute(sql)
            yield Rows(connection)
        except duckdb.Error as exc:
            raise _error(exc, overdue.is_set(), timeout_s, memory) from exc
        finally:
            timer.cancel()


def _check(sql: str) -> None:
    """Refuse what is not one statement that returns rows; EXPLAIN ANALYZE would execute what it explains."""
    kinds = _kinds_of_statements(sql)
    explained = _EXPLAIN.match(sql)
    if kinds == [duckdb.StatementType.EXPLAIN] and explained is not None:
        kinds = _kinds_of_statements(sql[explained.end() :])
    if len(kinds) != 1:
        raise RefusedQueryError(f"give one statement, not {len(kinds)}")
    if kinds != [duckdb.StatementType.SELECT]:
        raise RefusedQueryError(
            f"{kinds[0].name} is refused, as queries only read: use SELECT, FROM, WITH, DESCRIBE, SUMMARIZE or "
            "EXPLAIN; toolformer pack makes a database of your own"
        )


def _kinds_of_statements(sql: str) -> list[duckdb.StatementType]:
    try:
        return [statement.type for statement in duckdb.extract_statements(sql)]
    except duckdb.Error as exc:
        raise RefusedQueryError(f"the query cannot be read: {error_line(exc)}") from exc


def _restrict(connection: duckdb.DuckDBPyConnection, snapshot: Path, memory: str) -> None:
    about = dict(connection.execute("SELECT name, value FROM facts.about").fetchall())
    folder = about.get("data") or str(snapshot.absolute().parent)
    try:
        connection.execute("SET memory_limit = $memory", {"memory": memory})
    except duckdb.Error as exc:
        raise RefusedQueryError(f"{memory!r} is no amount of memory: write it as 500MB or 2GB") from exc
    connection.execute("SET temp_directory = ''")
    # The views name their files as patterns, which DuckDB compares as they are written.
    connection.execute("SET allowed_directories = $folders", {"folders": [folder, glob.escape(folder)]})
    for setting in ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_access"):
        connection.execute(f"SET {setting} = false")
    connection.execute("SET lock_configuration = true")


def _error(exc: duckdb.Error, overdue: bool, timeout_s: float, memory: str) -> QueryError:
    if overdue:
        return QueryError(f"the query took longer than {timeout_s:g} s; give it more with --timeout, or ask for less")
    if isinstance(exc, duckdb.OutOfMemoryException):
        return QueryError(f"the query needs more than {memory} of memory; give it more with --memory, or ask for less")
    if isinstance(exc, duckdb.PermissionException):
        return RefusedQueryError(f"queries read the data folder alone: {error_line(exc)}")
    return QueryError(f"the query failed: {error_line(exc)}")
