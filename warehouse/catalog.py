"""The catalog: an index over the commits, which only the flow process writes; `reconcile` rebuilds it from the store.

On DuckDB it is one file under an exclusive lock; on PostgreSQL several flow processes share it, and writers take turns.
"""

import contextlib
import dataclasses
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
import sqlalchemy.exc

from warehouse.commits import Commit, Dataset, Run, split_dataset_key
from warehouse.errors import CatalogError, LockHeldError, error_line, holder_of
from warehouse.facts import (
    ARROW_SCHEMAS,
    COMMIT_TABLES,
    DATASET_TABLES,
    IDENTITIES,
    METADATA,
    RUN_SUMMARIES,
    RUN_TABLES,
    Facts,
    facts_from_records,
    run_summaries,
)
from warehouse.files.folders import make_private
from warehouse.files.lock import FileLock
from warehouse.files.paths import database_problem
from warehouse.shared import again_if_lost, connect_schema, open_database, without_secrets, write_transaction
from warehouse.snapshot.relations import execute_with
from warehouse.store import Store

_log = logging.getLogger(__name__)

_BATCH = 500  # values of one IN list, rows of one insert
_OWNED = (COMMIT_TABLES, RUN_TABLES, DATASET_TABLES)
_PROBE_BYTES = 1 << 20  # without so much space no database can be opened


class Catalog(contextlib.AbstractContextManager["Catalog"]):
    """A catalog that is open, usually as long as a flow runs; a context manager. Threads may share it.

    Args:
        url: a path (or `duckdb:///path`) for DuckDB, or a SQLAlchemy URL (`postgresql+psycopg://...`).
        store: to bring it up to date with, or, with `rebuild` or if a DuckDB file is damaged, to rebuild it from; None:
            the catalog is taken as it is.
        wait_s, on_wait: as of `FileLock`, of the DuckDB file.

    Raises:
        LockHeldError: another process still has the DuckDB file open after `wait_s`, or a program that is none of ours.
        CatalogError: the file is not a catalog, or the server cannot be reached.
    """

    def __init__(
        self,
        url: str | Path,
        *,
        store: Store | None = None,
        rebuild: bool = False,
        wait_s: float = 0.0,
        on_wait: Callable[[LockHeldError], None] | None = None,
    ) -> None:
        text = str(url).removeprefix("duckdb:///")
        self._path = path = Path(text).absolute() if "://" not in text else None
        self._write_lock = threading.RLock()  # tasks of one flow process call from several threads
        with contextlib.ExitStack() as stack:
            if path is not None:
                if problem := database_problem(path):
                    raise CatalogError(problem)
                lock = FileLock(path.with_name(path.name + ".lock"), wait_s=wait_s, on_wait=on_wait)
                stack.callback(lock.close)
                self._engine = open_database(sa.URL.create("duckdb", database=str(path)))
            else:
                self._engine = connect_schema(text, store) if store is not None else open_database(text)
            stack.callback(self._engine.dispose)
            self.is_duckdb = self._engine.dialect.name == "duckdb"
            self._name = str(path) if path is not None else without_secrets(self._engine.url)
            self._open(store, rebuild)
            self._opened = stack.pop_all()

    def _open(self, store: Store | None, rebuild: bool) -> None:
        try:
            self._create_tables()
            if store is not None:
                (self.reconcile if rebuild else self.catch_up)(store)
        except LockHeldError:
            raise
        except CatalogError as exc:
            if store is None:
                raise CatalogError(f"{exc} (if it is damaged, toolformer reconcile rebuilds it)") from exc
            if self._path is not None:
                self._set_aside(self._path, exc)
                self._create_tables()
            self.reconcile(store)

    @again_if_lost
    def _create_tables(self) -> None:
        with self._write() as connection:
            METADATA.create_all(connection)

    def _set_aside(self, path: Path, error: CatalogError) -> None:
        """Move a database that cannot be used to quarantine; `StoreError` means that its folder is the problem."""
        self._engine.dispose()
        folder = Store(path.parent)
        folder.files.put(f"{path.name}.probe", bytes(_PROBE_BYTES))
        folder.files.delete(f"{path.name}.probe")
        _log.warning("the catalog %s is damaged and is rebuilt from the commits: %s", path, error)
        for name in (path.name, path.name + ".wal"):
            folder.set_aside(name, str(error))

    def record(
        self, commits: Iterable[Commit] = (), runs: Iterable[Run] = (), datasets: Iterable[Dataset] = ()
    ) -> None:
        """Add records, or replace those with the same ids; adding one twice changes nothing."""
        self._change(facts_from_records({commit.id: commit for commit in commits}.values(), runs, datasets), {})

    @again_if_lost
    def _change(self, facts: Facts, gone: Mapping[str, Sequence[tuple[str, ...]]]) -> None:
        with self._write() as connection:
            for tables in _OWNED:
                self._delete(connection, tables, gone.get(tables[0], ()))
                self._replace(connection, facts, tables)

    @again_if_lost
    def begin(self, store: Store, run: Run) -> Run:
        """Give a run a number one larger than that of every run known, and write its manifest; return the run.

        A run that began after another one was known has the larger number, on any machine and whatever its clock says.
        Of two that began on two machines at once, with a catalog each, the numbers may be the same.
        """
        tables = (METADATA.tables[name] for name in ("runs", "datasets"))
        with self._write() as connection:
            numbers = [connection.scalar(sa.select(sa.func.max(table.c.number))) or 0 for table in tables]
            run = dataclasses.replace(run, number=1 + max(numbers))
            store.write_run(run)
            self._replace(connection, facts_from_records(runs=[run]), RUN_TABLES)
        return run

    @again_if_lost
    def reconcile(self, store: Store) -> None:
        """Rebuild everything from the store's records in one transaction."""
        facts = facts_from_records(store.commits(), store.runs(), store.datasets())
        with self._write() as connection:
            METADATA.drop_all(connection)
            METADATA.create_all(connection)
            for name, rows in facts.items():
                self._insert(connection, METADATA.tables[name], rows)

    def catch_up(self, store: Store) -> None:
        """Add the records that only the store has, and remove those that only the catalog has.

        Such differences are left by a flow that was killed between a commit and its record, and by `gc`. Only names are
        compared, but runs that were running are read again.
        """
        with self._write() as connection:
            known = {
                kind: {row for (row,) in connection.execute(sa.select(*_keys(kind)))} for kind in ("commits", "runs")
            }
            rows = connection.execute(sa.select(*_keys("datasets")))
            known["datasets"] = {f"{name}/{version}-{made}".removesuffix("-") for name, version, made in rows}
            runs = METADATA.tables["runs"]
            known["runs"] -= set(connection.scalars(sa.select(runs.c.run_id).where(runs.c.state == "running")))
        stored = {kind: store.names(kind) for kind in known}
        new = {kind: sorted(stored[kind] - known[kind]) for kind in known}
        gone = {kind: [(name,) for name in known[kind] - stored[kind]] for kind in ("commits", "runs")}
        lost = [split_dataset_key(key) for key in known["datasets"] - stored["datasets"]]
        added = store.commits_by_id(new["commits"]), store.runs(new["runs"]), store.datasets(new["datasets"])
        self._change(facts_from_records(*added), {**gone, "datasets": lost})

    @again_if_lost
    def counts(self) -> dict[str, int]:
        with self._write() as connection:
            queries = {name: sa.select(sa.func.count()).select_from(table) for name, table in METADATA.tables.items()}
            return {name: int(connection.execute(query).scalar_one()) for name, query in queries.items()}

    @again_if_lost
    def identities(self, run_id: str = "") -> Facts:
        """Return `commits`, `runs` and `datasets` with the columns of `IDENTITIES`, and `run_commits` by run.

        If a run is named, it is alone there with the commits that it used, and there are no datasets.
        """
        with self._write() as connection:
            facts = {name: self._select(connection, name, columns) for name, columns in IDENTITIES.items()}
            if self.is_duckdb:
                summaries = _raw(connection).sql(RUN_SUMMARIES.format("run_commits")).to_arrow_table()
            else:
                summaries = run_summaries(self._select(connection, "run_commits"))
            if not run_id:
                return {**facts, "run_commits": summaries}
            used = self._select(connection, "run_commits", keys=pa.table({"run_id": [run_id]}))["commit_id"]
        is_of_run = pc.field("run_id") == run_id
        return {
            "commits": facts["commits"].filter(pc.field("commit_id").isin(used.combine_chunks())),
            "runs": facts["runs"].filter(is_of_run),
            "run_commits": summaries.filter(is_of_run),
            "datasets": facts["datasets"].slice(0, 0),
        }

    @again_if_lost
    def facts_of(self, keys: Facts | None = None) -> Facts:
        """Return the rows of all tables: those about the commits, runs and datasets with these primary keys, or all."""
        with self._write() as connection:
            return {
                name: self._select(connection, name, keys=None if keys is None else keys[tables[0]])
                for tables in _OWNED
                for name in tables
            }

    def _select(
        self, connection: sa.Connection, name: str, columns: Sequence[str] = (), keys: pa.Table | None = None
    ) -> pa.Table:
        table, schema = METADATA.tables[name], ARROW_SCHEMAS[name]
        schema = pa.schema([schema.field(column) for column in columns or schema.names])
        if self.is_duckdb:
            listed = ", ".join(f'"{column}"' for column in schema.names)
            raw, among = _raw(connection), ""
            if keys is not None:
                raw.register("_keys", keys)
                among = f"SEMI JOIN _keys USING ({', '.join(keys.column_names)})"
            rows = raw.sql(f"SELECT {listed} FROM {name} {among}").to_arrow_table().cast(schema)
            if keys is not None:
                raw.unregister("_keys")
            return rows
        query = sa.select(*(table.c[column] for column in schema.names))
        chosen: Iterable[sa.ColumnElement[bool]] = [sa.true()]
        if keys is not None:
            wanted = [tuple(key.values()) for key in keys.to_pylist()]
            chosen = _among([table.c[column] for column in keys.column_names], wanted)
        found = [dict(row) for one in chosen for row in connection.execute(query.where(one)).mappings()]
        return pa.Table.from_pylist(found, schema=schema)

    def close(self) -> None:
        """Close the database and release the lock; a second call does nothing."""
        self._opened.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        try:
            with (
                self._write_lock,
                self._engine.begin() if self.is_duckdb else write_transaction(self._engine) as connection,
            ):
                yield connection
            if self._path is not None:  # DuckDB has no option for a file's mode, and opens no empty file
                make_private(self._path, self._path.with_name(self._path.name + ".wal"), create=False)
        except (sa.exc.SQLAlchemyError, duckdb.Error) as exc:
            if self.is_duckdb and (holder := holder_of(exc)) is not None:  # a program that knows nothing of our lock
                raise LockHeldError(self._name, holder[1], socket.gethostname(), "", holder[0]) from exc
            raise CatalogError(f"the catalog {self._name} could not be used: {error_line(exc)}") from exc

    def _replace(self, connection: sa.Connection, facts: Facts, tables: tuple[str, ...]) -> None:
        """Replace the rows with the same keys, those of the first table, which alone has an index; usually none."""
        keys = _keys(tables[0])
        owners = [tuple(row.values()) for row in facts[tables[0]].select([key.name for key in keys]).to_pylist()]
        chosen = _among(keys, owners)
        existing = [tuple(row) for one in chosen for row in connection.execute(sa.select(*keys).where(one))]
        self._delete(connection, tables, existing)
        for name in tables:
            self._insert(connection, METADATA.tables[name], facts[name])

    def _delete(self, connection: sa.Connection, tables: tuple[str, ...], owners: Sequence[tuple[str, ...]]) -> None:
        for table in (METADATA.tables[name] for name in tables):
            for chosen in _among([table.c[key.name] for key in _keys(tables[0])], owners):
                connection.execute(table.delete().where(chosen))

    def _insert(self, connection: sa.Connection, table: sa.Table, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        if self.is_duckdb:  # all at once: single rows cost about a millisecond each
            execute_with(_raw(connection), f"INSERT INTO {table.name} BY NAME SELECT * FROM _rows", rows)
        else:
            for batch in rows.to_batches(max_chunksize=_BATCH):
                connection.execute(table.insert(), batch.to_pylist())


def _keys(table: str) -> list[sa.Column[Any]]:
    return list(METADATA.tables[table].primary_key.columns)


def _among(columns: Sequence[sa.Column[Any]], rows: Sequence[tuple[str, ...]]) -> Iterator[sa.ColumnElement[bool]]:
    """Yield conditions, each for a batch, which together choose the rows with these values in some columns."""
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        yield columns[0].in_([key for (key,) in batch]) if len(columns) == 1 else sa.tuple_(*columns).in_(batch)


def _raw(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection
