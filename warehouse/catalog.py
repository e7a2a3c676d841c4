"""The catalog: an index over the commits, kept by the flow process alone.

On DuckDB it is one file, opened under an exclusive lock beside it; on PostgreSQL several flow processes share it and
writers take turns by an advisory lock. Transactions are short. It holds nothing that the commits do not say:
`reconcile` rebuilds it from the store, also after its tables have changed. Workers never open it, and users read the
published snapshot instead.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa
import sqlalchemy.exc

from warehouse.commits import Commit, Dataset, Run
from warehouse.errors import CatalogError
from warehouse.facts import METADATA, Facts, arrow_schema, facts_of
from warehouse.lock import FileLock
from warehouse.store import Store

__all__ = ["Catalog"]

_OF_COMMIT = ("commits", "commit_parts", "commit_inputs", "files", "balances")
_OF_RUN = ("runs", "run_commits")
_OF_DATASET = ("datasets", "dataset_files")
_BATCH = 500  # values of one IN list, rows of one insert
_WRITERS_LOCK = 7_305_180_411  # PostgreSQL's advisory lock for all writers of a catalog; any constant would do


class Catalog:
    """Opened for the length of a flow; a context manager.

    Args:
        url: a path (or `duckdb:///path`) for DuckDB, or a SQLAlchemy URL (`postgresql+psycopg://...`).
        wait: wait for another flow on the same file instead of raising.

    Raises:
        LockHeldError: another process has the DuckDB file open.
        CatalogError: the file is not a catalog, or the server cannot be reached.
    """

    def __init__(self, url: str | Path, *, wait: bool = False) -> None:
        text = str(url).removeprefix("duckdb:///")
        self._lock: FileLock | None = None
        self._turn = threading.RLock()  # tasks of one flow process call from several threads
        if "://" not in text:
            path = Path(text).absolute()
            self._lock = FileLock(path.with_name(path.name + ".lock"), wait=wait)
            text = f"duckdb:///{path}"
        try:
            self._engine = sa.create_engine(text)
        except (sa.exc.SQLAlchemyError, ImportError) as exc:
            self._release()
            raise CatalogError(f"not a catalog's URL, or its driver is missing: {_line(exc)}") from exc
        try:
            self.is_duckdb = self._engine.dialect.name == "duckdb"
            with self._write() as connection:
                METADATA.create_all(connection)
        except CatalogError as exc:
            self.close()
            shown = self._engine.url.render_as_string(hide_password=True)
            raise CatalogError(f"cannot open {shown} (if it is damaged, delete it and reconcile): {exc}") from exc

    def record(self, commits: Iterable[Commit]) -> None:
        """Add commits, or replace those of the same id. Recording twice is recording once."""
        facts = facts_of(commits={commit.id: commit for commit in commits}.values())
        self._replace(facts, _OF_COMMIT, ("commit_id",))

    def record_run(self, run: Run) -> None:
        """Add a run's manifest, or replace it."""
        self._replace(facts_of(runs=[run]), _OF_RUN, ("run_id",))

    def record_dataset(self, dataset: Dataset) -> None:
        """Add a dataset version, or replace its card."""
        self._replace(facts_of(datasets=[dataset]), _OF_DATASET, ("name", "version"))

    def reconcile(self, store: Store) -> dict[str, int]:
        """Rebuild everything from the store's commits, runs and datasets; return the rows per table.

        Readers see the old catalog or the new one, nothing between.
        """
        facts = facts_of(store.commits(), store.runs(), store.datasets())
        with self._write() as connection:
            METADATA.drop_all(connection)
            METADATA.create_all(connection)
            for name, rows in facts.items():
                self._insert(connection, METADATA.tables[name], rows)
        return {name: rows.num_rows for name, rows in facts.items()}

    def facts(self) -> Facts:
        """Return all rows of all tables, for a snapshot."""
        out: Facts = {}
        with self._write() as connection:
            for name, table in METADATA.tables.items():
                schema = arrow_schema(table)
                if self.is_duckdb:
                    columns = ", ".join(f'"{column}"' for column in schema.names)
                    found = _raw(connection).sql(f"SELECT {columns} FROM {name}").to_arrow_table()
                    out[name] = found.cast(schema)
                else:
                    rows = [dict(row) for row in connection.execute(sa.select(table)).mappings()]
                    out[name] = pa.Table.from_pylist(rows, schema=schema)
        return out

    def close(self) -> None:
        """Close the database, then give the lock back; a second call does nothing."""
        self._engine.dispose()
        self._release()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()

    @contextlib.contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        """One transaction, one writer at a time."""
        try:
            with self._turn, self._engine.begin() as connection:
                if not self.is_duckdb:
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _WRITERS_LOCK})
                yield connection
        except (sa.exc.SQLAlchemyError, duckdb.Error) as exc:
            raise CatalogError(f"the catalog could not be used: {_line(exc)}") from exc

    def _replace(self, facts: Facts, tables: tuple[str, ...], keys: tuple[str, ...]) -> None:
        """Put the rows in the place of those with the same keys; the first table names the keys."""
        owners = facts[tables[0]].select(list(keys)).to_pylist()
        with self._write() as connection:
            for name in tables:
                table = METADATA.tables[name]
                for start in range(0, len(owners), _BATCH):
                    some = [tuple(owner[key] for key in keys) for owner in owners[start : start + _BATCH]]
                    connection.execute(table.delete().where(sa.tuple_(*(table.c[key] for key in keys)).in_(some)))
                self._insert(connection, table, facts[name])

    def _insert(self, connection: sa.Connection, table: sa.Table, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        if self.is_duckdb:  # in bulk: row by row costs about a millisecond each
            raw = _raw(connection)
            raw.register("_rows", rows)
            try:
                raw.execute(f"INSERT INTO {table.name} BY NAME SELECT * FROM _rows")
            finally:
                raw.unregister("_rows")
        else:
            for batch in rows.to_batches(max_chunksize=_BATCH):
                connection.execute(table.insert(), batch.to_pylist())


def _raw(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection


def _line(exc: BaseException) -> str:
    """Return the first line of an error's text."""
    return (str(exc).splitlines() or [type(exc).__name__])[0]
