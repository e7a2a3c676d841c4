"""The catalog: an index over the commits, kept by the flow process alone.

On DuckDB it is one file, opened under an exclusive lock beside it; on PostgreSQL several flow processes share it and
writers take turns by an advisory lock. Transactions are short. It holds nothing that the commits do not say:
`reconcile` rebuilds it from the store, also after its tables have changed, and `catch_up` mends what differs. Workers
never open it, and users read the published snapshot instead.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa
import sqlalchemy.exc

from warehouse.commits import Commit, Dataset, Run, key_parts
from warehouse.errors import CatalogError, LockHeldError, told
from warehouse.facts import METADATA, Facts, arrow_schema, facts_of
from warehouse.folders import make_private
from warehouse.lock import FileLock
from warehouse.shared import database, opened, shown, writing
from warehouse.store import Store

__all__ = ["Catalog"]

_log = logging.getLogger(__name__)

_OF_COMMIT = ("commits", "commit_parts", "commit_inputs", "files", "balances")
_OF_RUN = ("runs", "run_commits")
_OF_DATASET = ("datasets", "dataset_files")
_BATCH = 500  # values of one IN list, rows of one insert
_PROBE_BYTES = 1 << 20  # a database that small has no room to be opened in


class Catalog:
    """Opened for the length of a flow; a context manager.

    Args:
        url: a path (or `duckdb:///path`) for DuckDB, or a SQLAlchemy URL (`postgresql+psycopg://...`), of which a store
            has a part of its own.
        store: what it is the index of; it is then brought in step with it, and a damaged file of DuckDB's is set
            aside and rebuilt. None: what is there is taken as it is.
        rebuild: rebuild it from the store's commits whatever it holds.
        wait_s: seconds to wait for another flow on the same file before giving up.
        waiting: told once, before waiting, who has it.

    Raises:
        LockHeldError: another process has the DuckDB file open, and still had it after `wait_s`.
        CatalogError: the file is not a catalog, or the server cannot be reached.
    """

    def __init__(
        self,
        url: str | Path,
        *,
        store: Store | None = None,
        rebuild: bool = False,
        wait_s: float = 0.0,
        waiting: Callable[[LockHeldError], None] | None = None,
    ) -> None:
        text = str(url).removeprefix("duckdb:///")
        path = Path(text).absolute() if "://" not in text else None
        self._path = path
        self._lock: FileLock | None = None
        self._turn = threading.RLock()  # tasks of one flow process call from several threads
        if path is not None:
            self._lock = FileLock(path.with_name(path.name + ".lock"), wait_s=wait_s, waiting=waiting)
            text = f"duckdb:///{path}"
        try:
            self._engine = opened(text, store) if path is None and store is not None else database(text)
        except BaseException:
            self._release()
            raise
        self.is_duckdb = self._engine.dialect.name == "duckdb"
        self._shown = str(path) if path is not None else shown(self._engine.url)
        try:
            self._open(path, store, rebuild)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path | None, store: Store | None, rebuild: bool) -> None:
        try:
            self._make()
            if store is not None:
                (self.reconcile if rebuild or self._outdated() else self.catch_up)(store)
        except CatalogError as exc:
            if store is None:
                raise CatalogError(f"{exc} (if it is damaged, toolformer reconcile rebuilds it)") from exc
            if path is not None:
                self._set_aside(path, exc)
                self._make()
            self.reconcile(store)

    def _make(self) -> None:
        with self._write() as connection:
            METADATA.create_all(connection)

    def _outdated(self) -> bool:
        """True if another version of this program made the tables, with other columns."""
        places = self._engine.get_execution_options().get("schema_translate_map", {})
        schema = places.get(None, "main" if self.is_duckdb else "public")
        sql = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = :schema"
        with self._write() as connection:
            there = {tuple(row) for row in connection.execute(sa.text(sql), {"schema": schema})}
        declared = {(name, column.name) for name, table in METADATA.tables.items() for column in table.columns}
        return not declared <= there

    def _set_aside(self, path: Path, why: CatalogError) -> None:
        """Move a database that cannot be used out of the way; it holds nothing that the commits do not say.

        Raises:
            StoreError: it is not the file that is wrong, but its place: full, or not to be written.
        """
        self._engine.dispose()
        own = Store(path.parent)
        own.files.put(f"{path.name}.probe", bytes(_PROBE_BYTES))
        own.files.delete(f"{path.name}.probe")
        _log.warning("the catalog %s is damaged and is rebuilt from the commits: %s", path, why)
        for name in (path.name, path.name + ".wal"):
            own.set_aside(name, str(why))

    def record(self, commits: Iterable[Commit]) -> None:
        """Add commits, or replace those of the same id. Recording twice is recording once."""
        facts = facts_of(commits={commit.id: commit for commit in commits}.values())
        self._replace(facts, _OF_COMMIT)

    def record_run(self, run: Run) -> None:
        """Add a run's manifest, or replace it."""
        self._replace(facts_of(runs=[run]), _OF_RUN)

    def record_dataset(self, dataset: Dataset) -> None:
        """Add the record of how a dataset version was made."""
        self._replace(facts_of(datasets=[dataset]), _OF_DATASET)

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

    def catch_up(self, store: Store) -> int:
        """Add what the store has and this does not, remove what the store has no longer; return how many records.

        A flow that was killed between a commit and its record leaves such a difference, and so does `gc`. Only names
        are compared, except of runs: one that was going on is read again.
        """
        with self._write() as connection:
            known = {
                kind: {row for (row,) in connection.execute(sa.select(*_keys(kind)))} for kind in ("commits", "runs")
            }
            known["datasets"] = {
                f"{name}/{version}-{made}" if made else f"{name}/{version}"
                for name, version, made in connection.execute(sa.select(*_keys("datasets")))
            }
            runs = METADATA.tables["runs"]
            known["runs"] -= set(connection.scalars(sa.select(runs.c.run_id).where(runs.c.state == "running")))
        there = {kind: store.names(kind) for kind in known}
        new = {kind: sorted(there[kind] - known[kind]) for kind in known}
        gone = {kind: sorted(known[kind] - there[kind]) for kind in known}
        self._remove(_OF_COMMIT, [(name,) for name in gone["commits"]])
        self._remove(_OF_RUN, [(name,) for name in gone["runs"]])
        self._remove(_OF_DATASET, [key_parts(key) for key in gone["datasets"]])
        self.record(store.commits_named(new["commits"]))
        for run in store.runs(new["runs"]):
            self.record_run(run)
        for dataset in store.datasets(new["datasets"]):
            self.record_dataset(dataset)
        return sum(map(len, (*new.values(), *gone.values())))

    def counts(self) -> dict[str, int]:
        """Return the rows per table."""
        with self._write() as connection:
            counted = {name: sa.select(sa.func.count()).select_from(table) for name, table in METADATA.tables.items()}
            return {name: int(connection.execute(query).scalar_one()) for name, query in counted.items()}

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
            with self._turn, self._engine.begin() if self.is_duckdb else writing(self._engine) as connection:
                yield connection
            if self._path is not None:  # DuckDB has no word for a file's mode, and opens no empty file
                make_private(self._path, self._path.with_name(self._path.name + ".wal"), create=False)
        except (sa.exc.SQLAlchemyError, duckdb.Error) as exc:
            raise CatalogError(f"the catalog {self._shown} could not be used: {told(exc)}") from exc

    def _replace(self, facts: Facts, tables: tuple[str, ...]) -> None:
        """Put the rows in the place of those with the same keys; the first table names the keys."""
        names = [column.name for column in _keys(tables[0])]
        owners = [tuple(row.values()) for row in facts[tables[0]].select(names).to_pylist()]
        with self._write() as connection:
            self._delete(connection, tables, owners)
            for name in tables:
                self._insert(connection, METADATA.tables[name], facts[name])

    def _remove(self, tables: tuple[str, ...], owners: list[tuple[str, ...]]) -> None:
        if owners:
            with self._write() as connection:
                self._delete(connection, tables, owners)

    def _delete(self, connection: sa.Connection, tables: tuple[str, ...], owners: list[tuple[str, ...]]) -> None:
        keys = [column.name for column in _keys(tables[0])]
        for name in tables:
            table = METADATA.tables[name]
            for start in range(0, len(owners), _BATCH):
                some = owners[start : start + _BATCH]
                connection.execute(table.delete().where(sa.tuple_(*(table.c[key] for key in keys)).in_(some)))

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


def _keys(table: str) -> list[sa.Column[Any]]:
    return list(METADATA.tables[table].primary_key.columns)


def _raw(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection
