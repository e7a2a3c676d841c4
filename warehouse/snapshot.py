"""The published snapshot: one DuckDB file that users query at any time, replaced in one step.

Small facts are copied into it (schema `facts`); the big tables are views over the current commits' Parquet files by
absolute path, so no row is copied and publishing stays cheap. A reader keeps the file it opened, whole, however long
it holds it; the next opening sees the next snapshot. The file is read-only: it is an answer, not a place to write.
It does not know the filtering rules or any query: those stand in `views`, `analyst_views` and `queries`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from warehouse import analyst_views, index, views
from warehouse.catalog import Catalog
from warehouse.commits import DataFile
from warehouse.dataset_views import add_dataset_examples, current_version_sql
from warehouse.errors import SnapshotError, told
from warehouse.facts import Facts, facts_of
from warehouse.files import temporary_beside
from warehouse.folders import fsync_folder, make_folder, make_private, private_mode
from warehouse.records import prompts_table, trainings_table
from warehouse.schema import STAGES, TABLES
from warehouse.store import Store

__all__ = ["SNAPSHOT", "create_views", "publish", "snapshot_of"]

SNAPSHOT = "warehouse.duckdb"

_ABOUT = {facts.table: facts.about for facts in STAGES.values()} | {
    "rejects": "Rows that a stage could not use at all, with the start of each.",
    "shards": "Every commit: what was done, whether it is current (of the newest build or evaluation) and intact.",
    "drops": "Which rows of the current shards were not kept: dropped or failed, by reason.",
    "runs": "One row per build, evaluation or what-if, newest last; times in UTC.",
    "datasets": "Versions of C*; one row for each way in which a version was made.",
    "dataset_examples": "The texts of every version of C* whose files are there, each once per version.",
    "kept_calls": "The calls that stand in the current C*, with their losses (nats).",
    "costs": "Seconds and LM tokens of the current build per stage and tool, in all and per kept call.",
    "prompts": "The annotation prompts of all builds; the text is NULL where it was not stored yet.",
    "trainings": "Finished trainings: what they were given, losses, perplexities, where the checkpoint lies.",
    "lineage": "Which commits and files each dataset version, made in one way, rests on.",
    "best_calls": "Of the calls that the rules allow, the best of each position, and of those repeated nearby.",
    "yield_by_threshold": "Examples and calls per tool that the thresholds 0.5, 1 and 2 would keep.",
    "evaluations": "One row per evaluation: an arm at one k on one task, and whether its run was completed.",
    "accuracy": "Per evaluation: the share of right examples, of all, with a call and without.",
    "call_rates": "Per evaluation and tool: on how many examples it was called.",
    "perplexity": "Per evaluation: perplexity over all tokens, tools disabled.",
}

_VIEWS = {
    "shards": views.SHARDS,
    "drops": views.DROPS,
    "runs": analyst_views.RUNS,
    "datasets": analyst_views.DATASETS,
    "lineage": views.LINEAGE,
    "best_calls": views.BEST_CALLS,
    "kept_calls": analyst_views.KEPT_CALLS,
    "costs": analyst_views.COSTS,
    "prompts": analyst_views.PROMPTS,
    "trainings": analyst_views.TRAININGS,
    "yield_by_threshold": views.yield_sql(views.THRESHOLDS),
    "evaluations": views.EVALUATIONS,
    "accuracy": views.ACCURACY,
    "call_rates": views.CALL_RATES,
    "perplexity": views.PERPLEXITY,
}


def publish(store: Store, catalog: Catalog | None, root: str | Path | None = None, *, again: bool = True) -> Path:
    """Write `warehouse.duckdb` into a local folder, replacing the last one in one step; return its path.

    Args:
        store: where the data is.
        catalog: the index to copy; None: read the store's commits instead.
        root: the folder; default: the store's own, which must then be local.
        again: look at every data file, whether it is still what its commit says; False: only at those that this store
            has not found sound before, so that the work of a refresh does not grow with all that was ever written.

    Raises:
        SnapshotError: it could not be written; the last snapshot stays.
        CatalogError: the catalog could not be read.
    """
    if root is None and not store.is_local:
        raise SnapshotError(f"{store.root} is not local: name a local folder for the snapshot")
    target = Path(store.root if root is None else root).absolute() / SNAPSHOT
    facts = catalog.facts() if catalog is not None else facts_of(store.commits(), store.runs(), store.datasets())
    temporary = temporary_beside(target)
    try:
        make_folder(target.parent)
        try:
            _write(temporary, store, facts, target, again)
            _read_through(temporary)
        except duckdb.Error:  # DuckDB has had checkpoints that wrote what it could not read, and a file may be gone
            temporary.unlink(missing_ok=True)
            _write(temporary, store, facts, target, True)  # once more, from nothing
            _read_through(temporary)
        _replace(temporary, target)
    except (OSError, duckdb.Error) as exc:
        raise SnapshotError(f"cannot publish {target}: {told(exc)}") from exc
    finally:
        _remove(temporary)
    return target


@contextlib.contextmanager
def snapshot_of(store: Store, catalog: Catalog, run_id: str) -> Iterator[Path]:
    """Yield a snapshot that knows one run alone; it is removed afterwards.

    The published one may speak of another run: of one that began later, or that has published since.

    Args:
        store: where the data is; of the run's files, those that it has found sound before are not looked at again.
        catalog: it knows the run and its commits.
        run_id: the run's.

    Raises:
        SnapshotError: it could not be written.
        CatalogError: the catalog could not be read.
    """
    published = store.beside / SNAPSHOT
    facts = _of_run(catalog.facts(), run_id)
    temporary = temporary_beside(published)
    try:
        try:
            make_folder(temporary.parent)
            try:
                _write(temporary, store, facts, published, again=False)
            except duckdb.Error:  # a file may be gone since it was found sound
                temporary.unlink(missing_ok=True)
                _write(temporary, store, facts, published, again=True)
        except (OSError, duckdb.Error) as exc:
            raise SnapshotError(f"cannot write a snapshot of run {run_id} beside {published}: {told(exc)}") from exc
        yield temporary
    finally:
        _remove(temporary)


def _of_run(facts: Facts, run_id: str) -> Facts:
    """Return the facts that one run rests on, without datasets."""
    own = pc.field("run_id") == run_id
    used = facts["run_commits"].filter(own)
    among = pc.field("commit_id").isin(used["commit_id"].combine_chunks())
    out = {name: rows.filter(among) if "commit_id" in rows.column_names else rows for name, rows in facts.items()}
    return out | {
        "run_commits": used,
        "runs": facts["runs"].filter(own),
        **{name: facts[name].slice(0, 0) for name in ("datasets", "dataset_files")},
    }


def _remove(temporary: Path) -> None:
    for left in (temporary, temporary.with_name(temporary.name + ".wal")):
        with contextlib.suppress(OSError):
            left.unlink(missing_ok=True)


def _write(temporary: Path, store: Store, facts: Facts, earlier: Path, again: bool) -> None:
    with duckdb.connect(str(temporary)) as connection:
        make_private(temporary, create=False)
        _fill(connection, store, facts, earlier, again)
        connection.execute("CHECKPOINT")


def _read_through(snapshot: Path) -> None:
    """Open a snapshot as a reader does, and count the rows of its own tables: nothing is published that cannot be read.

    Raises:
        duckdb.Error: it cannot be.
    """
    with duckdb.connect(str(snapshot), read_only=True) as connection:
        names = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'facts'").fetchall()
        for (name,) in names:
            connection.execute(f"SELECT count(*) FROM facts.{name}").fetchall()


def _replace(temporary: Path, target: Path) -> None:
    handle = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.fchmod(handle, private_mode(target.parent) & 0o444)  # nobody writes it
    finally:
        os.close(handle)
    os.replace(temporary, target)
    fsync_folder(target.parent)


def _fill(connection: duckdb.DuckDBPyConnection, store: Store, facts: Facts, earlier: Path, again: bool) -> None:
    connection.execute("BEGIN")
    connection.execute("CREATE SCHEMA facts")
    stages = pa.table({"rank": list(range(len(STAGES))), "stage": list(STAGES)})
    broken = pa.table({"commit_id": pa.array(_broken(store, facts, again), pa.string())})
    about = {"published": datetime.now(UTC).isoformat(), "data": store.root}
    extra = {
        "stages": stages,
        "broken": broken,
        "about": pa.table({"name": list(about), "value": list(about.values())}),
        "prompts": prompts_table(store),
        "trainings": trainings_table(store),
    }
    for name, rows in (facts | extra).items():
        connection.register("_rows", rows)
        connection.execute(f"CREATE TABLE facts.{name} AS SELECT * FROM _rows")
        connection.unregister("_rows")
    connection.execute(f"CREATE TABLE facts.current AS {views.CURRENT}")
    index.build(connection, store, earlier)
    more = {"examples": current_version_sql(connection)}
    for table, schema in TABLES.items():
        if table != "dataset_examples" or not add_dataset_examples(connection, store, again):
            _big_table(connection, store, table, schema, more.get(table, ""))
    create_views(connection)
    connection.execute("COMMIT")


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the views over the big tables and the facts of a database that holds these, and say what each is."""
    for view, sql in _VIEWS.items():
        connection.execute(f"CREATE VIEW {view} AS {sql}")
    kinds = dict(
        connection.execute(
            "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'main'"
        ).fetchall()
    )
    for name, text in _ABOUT.items():
        kind = "VIEW" if kinds[name] == "VIEW" else "TABLE"
        connection.execute(f"COMMENT ON {kind} {name} IS {index.quoted(text)}")


def _big_table(connection: duckdb.DuckDBPyConnection, store: Store, table: str, schema: pa.Schema, more: str) -> None:
    """A view over the current intact files, with `more` columns, or a table without rows."""
    found = connection.execute(
        """SELECT DISTINCT path FROM facts.files JOIN facts.current USING (commit_id)
        WHERE table_name = ? AND rows > 0 AND commit_id NOT IN (SELECT commit_id FROM facts.broken) ORDER BY path""",
        [table],
    ).fetchall()
    if found:
        places = index.parquet_sql(store.near(path) for (path,) in found)
        columns = ", ".join(filter(None, ("*", more)))
        connection.execute(f"CREATE VIEW {table} AS {index.with_later_columns(table, places, columns)}")
        return
    connection.register("_rows", schema.empty_table())
    connection.execute(f"CREATE TABLE {table} AS SELECT * FROM _rows")
    connection.unregister("_rows")


def _broken(store: Store, facts: Facts, again: bool) -> list[str]:
    """Return the ids of commits of which a file is missing, short, or altered after its commit was written."""
    commits = facts["commits"].select(["commit_id", "created"]).to_pylist()
    since = {row["commit_id"]: _written_by(row["created"]) for row in commits}
    out = set()
    for row in facts["files"].select(["commit_id", "path", "digest", "rows", "bytes"]).to_pylist():
        own = row.pop("commit_id")
        if not store.sound(DataFile(**row), since[own], again=again):
            out.add(own)
    return sorted(out)


def _written_by(created: str) -> float:
    """Return the time at which a commit's data was there, in seconds since 1970; `created` may be cut to seconds."""
    return datetime.fromisoformat(created).replace(tzinfo=UTC).timestamp() + 1.0
