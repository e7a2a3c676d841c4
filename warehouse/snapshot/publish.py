"""The published snapshot: one DuckDB file that users query at any time; it is replaced in one step.

Small tables are copied into it (schema `facts`); the big tables are views over the current commits' Parquet files. A
new snapshot is a copy of the last one with the changes applied, so that it costs what changed, or begins as an empty
file.
"""

import contextlib
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from warehouse.catalog import Catalog
from warehouse.commits import DataFile
from warehouse.errors import SnapshotError, error_line
from warehouse.files.base import remove_database, replace_file, temporary_beside
from warehouse.files.folders import make_folder, make_private, private_mode
from warehouse.records import certificates_table, prompts_table, trainings_table
from warehouse.schema import STAGES, columns, table_of
from warehouse.snapshot import views
from warehouse.snapshot.changes import apply_changes
from warehouse.snapshot.index import FORMAT, update_index
from warehouse.snapshot.relations import execute_with
from warehouse.snapshot.remote import register_files
from warehouse.snapshot.tables import update_tables
from warehouse.store import Store

SNAPSHOT = "warehouse.duckdb"
_BLOCK_BYTES = 16_384  # DuckDB's least: of 262,144, its default, small tables would leave most unused in every copy
_MANY_BLOCKS = 256  # a file of fewer may be mostly unused
_FEW, _LISTED_SHARE = 256, 0.05  # files that are looked at one by one; of more than a share of all, listing is cheaper

_CHECKED = """
CREATE OR REPLACE TEMP TABLE checked AS
SELECT f.commit_id, f.path, f.digest, f.rows, f.bytes, c.created
FROM facts.files AS f JOIN facts.commits AS c USING (commit_id)
WHERE {} OR commit_id IN (FROM new_commits) OR commit_id IN (FROM facts.broken)"""


def publish(store: Store, catalog: Catalog, *, recheck: bool = True, anew: bool = False) -> Path:
    """Write `warehouse.duckdb` into the local folder, replacing the last snapshot in one step; return its path.

    On a `SnapshotError` or `CatalogError` the last one stays.

    Args:
        recheck: check whether every data file is still as its commit says; False: only those of new and broken commits.
        anew: take nothing from the last snapshot.
    """
    target = store.local_folder / SNAPSHOT
    temporary = temporary_beside(target)
    try:
        make_folder(target.parent)
        _write_readable(temporary, store, catalog, None if anew else target, recheck)
        replace_file(temporary, target, private_mode(target.parent) & 0o444)  # nobody writes to it
    except (OSError, duckdb.Error) as exc:
        raise SnapshotError(f"cannot publish {target}: {error_line(exc)}") from exc
    finally:
        remove_database(temporary)
    return target


@contextlib.contextmanager
def run_snapshot(store: Store, catalog: Catalog, run_id: str) -> Iterator[Path]:
    """Yield a snapshot of one run alone, as the published one may show another; it is deleted afterwards.

    Files of commits that the published one shows are not checked again. Errors are those of `publish`.
    """
    published = store.local_folder / SNAPSHOT
    temporary = temporary_beside(published)
    with contextlib.ExitStack() as stack:
        stack.callback(remove_database, temporary)
        try:
            make_folder(temporary.parent)
            _write_readable(temporary, store, catalog, published, False, run_id)
        except (OSError, duckdb.Error) as exc:
            raise SnapshotError(f"cannot write a snapshot of run {run_id}: {error_line(exc)}") from exc
        yield temporary


def _write_readable(
    temporary: Path, store: Store, catalog: Catalog, last: Path | None, recheck: bool, run_id: str = ""
) -> None:
    """Write a snapshot and read it through; if that fails, as it may be DuckDB's fault, once more from nothing."""
    try:
        _write(temporary, store, catalog, last, recheck, run_id)
        _read_through(temporary, store)
    except duckdb.Error:
        remove_database(temporary)
        _write(temporary, store, catalog, None, True, run_id)
        _read_through(temporary, store)


def _write(temporary: Path, store: Store, catalog: Catalog, last: Path | None, recheck: bool, run_id: str) -> None:
    if last is not None:
        _begin_as_copy(last, temporary)
    with duckdb.connect(str(temporary), config={"default_block_size": _BLOCK_BYTES}) as connection:
        make_private(temporary, create=False)
        register_files(connection, store)
        connection.execute("BEGIN")
        _update(connection, store, catalog, recheck, run_id)
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")


def _begin_as_copy(last: Path, temporary: Path) -> None:
    """Copy the last snapshot, unless another version of this program wrote it or more than half of it is unused."""
    if not last.exists():
        return
    make_private(temporary)
    shutil.copyfile(last, temporary)
    if not _can_be_changed(temporary):
        temporary.unlink()


def _can_be_changed(copy: Path) -> bool:
    with duckdb.connect(str(copy)) as connection:
        try:
            rows = connection.execute("SELECT value FROM facts.about WHERE name = 'index'").fetchall()
        except duckdb.CatalogException:  # an older one has no such table
            return False
        [(total, free)] = connection.execute("SELECT total_blocks, free_blocks FROM pragma_database_size()").fetchall()
    return rows == [(FORMAT,)] and (total <= _MANY_BLOCKS or 2 * free <= total)


def _update(connection: duckdb.DuckDBPyConnection, store: Store, catalog: Catalog, recheck: bool, run_id: str) -> None:
    connection.execute("CREATE SCHEMA IF NOT EXISTS facts")
    connection.execute("CREATE TABLE IF NOT EXISTS facts.about (name VARCHAR, value VARCHAR)")
    about = {"published": datetime.now(UTC).isoformat(), "data": store.root, "index": FORMAT}
    about |= {} if store.is_local else {"url": store.url}
    connection.execute("DELETE FROM facts.about WHERE name IN ('published', 'data', 'index', 'url')")
    connection.executemany("INSERT INTO facts.about VALUES (?, ?)", list(about.items()))
    changed = apply_changes(connection, catalog, run_id)
    _update_broken(connection, store, recheck)
    stages = connection.execute("SELECT DISTINCT stage FROM facts.commits ORDER BY stage").fetchall()
    names = list(dict.fromkeys([*STAGES, *(stage for (stage,) in stages)]))
    records = {
        "stages": pa.table({"rank": list(range(len(names))), "stage": names}),
        "prompts": prompts_table(store),
        "trainings": trainings_table(store),
        "certificates": certificates_table(store),
    }
    for name, rows in records.items():
        execute_with(connection, f"CREATE OR REPLACE TABLE facts.{name} AS SELECT * FROM _rows", rows)
    connection.execute("CREATE TABLE IF NOT EXISTS facts.current (commit_id VARCHAR)")
    if changed:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE now_current AS {views.query('current')}")
        connection.execute("DELETE FROM facts.current WHERE commit_id NOT IN (FROM now_current)")
        connection.execute("INSERT INTO facts.current FROM now_current ANTI JOIN facts.current USING (commit_id)")
    update_index(connection, store)
    update_tables(connection, store)


def _update_broken(connection: duckdb.DuckDBPyConnection, store: Store, recheck: bool) -> None:
    """Make `facts.broken` (commit_id) contain the commits of which a file is missing, short or altered.

    Checked are the files of new and broken commits, or all; where many are, the store lists them, which an object store
    answers with one request per thousand files. Only a file that changed after its commit is read.
    """
    connection.execute("CREATE TABLE IF NOT EXISTS facts.broken (commit_id VARCHAR)")
    connection.execute(_CHECKED.format("true" if recheck else "false"))
    [(files,), (all_files,)] = connection.execute(
        "SELECT count(*) FROM checked UNION ALL SELECT count(*) FROM facts.files"
    ).fetchall()
    if files > max(_FEW, _LISTED_SHARE * all_files):
        _leave_out_unchanged(connection, store)
    broken: set[str] = set()
    for commit_id, path, digest, rows, size, created in connection.execute("FROM checked").fetchall():
        file = DataFile(path, digest, rows, size)
        written = datetime.fromisoformat(created).replace(tzinfo=UTC).timestamp() + 1.0  # `created` may be in seconds
        if commit_id not in broken and not store.is_unaltered(file, written):
            broken.add(commit_id)
    connection.execute("DELETE FROM facts.broken")
    connection.execute("INSERT INTO facts.broken SELECT unnest($ids)", {"ids": sorted(broken)})


def _leave_out_unchanged(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    listed = [(path, *stat) for folder in ("shards", "rejects") for path, stat in store.files.stats(folder)]
    sql = """DELETE FROM checked USING _rows AS l WHERE l.path = checked.path AND l.bytes = checked.bytes
        AND l.changed <= epoch(TRY_CAST(checked.created AS TIMESTAMP)) + 1"""
    execute_with(connection, sql, table_of(columns("path text, bytes int, changed real"), listed))


def _read_through(snapshot: Path, store: Store) -> None:
    """Open a snapshot as a reader does: count the rows of its tables, and open its views and the first file of each."""
    with duckdb.connect(str(snapshot), read_only=True) as connection:
        register_files(connection, store)
        tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'facts'").fetchall()
        for (name,) in tables:
            connection.execute(f"SELECT count(*) FROM facts.{name}").fetchall()
        for (name,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall():
            connection.execute(f"DESCRIBE {name}").fetchall()
