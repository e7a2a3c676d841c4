"""The published snapshot: one DuckDB file that users query at any time; it is replaced in one step.

Small tables are copied into it (schema `facts`). The big tables are views over the Parquet files of the current
commits, by absolute path, so no row is copied and publishing stays cheap. A reader that has opened the file keeps
reading that snapshot; whoever opens it later reads the newest one. The file is read-only. This module does not know the
filtering rules or any query: these are in `views`, `analyst_views` and `warehouse.queries`.
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

from warehouse.catalog import Catalog
from warehouse.commits import DataFile
from warehouse.errors import SnapshotError, error_line
from warehouse.facts import Facts, facts_from_records
from warehouse.files.base import temporary_beside
from warehouse.files.folders import fsync_folder, make_folder, make_private, private_mode
from warehouse.records import prompts_table, trainings_table
from warehouse.schema import STAGES, TABLES
from warehouse.snapshot import analyst_views, grounding_views, index, views
from warehouse.snapshot.dataset_views import add_dataset_examples, current_version_sql
from warehouse.snapshot.tool_views import TOOL_COSTS
from warehouse.store import Store

__all__ = ["SNAPSHOT", "create_views", "publish", "run_snapshot"]

SNAPSHOT = "warehouse.duckdb"

# The comment of each table and view.
_ABOUT = {facts.table: facts.about for facts in STAGES.values()} | {
    "rejects": "Rows that a stage could not use at all, with the beginning of each.",
    "shards": "Every commit: what was done, and whether it is current (of the newest build or evaluation) and intact.",
    "drops": "Which rows of the current shards were not kept: dropped or failed, by reason.",
    "runs": "One row per build, evaluation or what-if, newest last; times in UTC.",
    "datasets": "Versions of C*; one row for each way in which a version was made.",
    "dataset_examples": "The texts of every version of C* whose files are all there, each text once per version.",
    "kept_calls": "The calls in the current C*, with their losses (nats).",
    "costs": "Seconds and LM tokens of the current build per stage and tool, in total and per kept call.",
    "tool_costs": "Calls per tool of the current build: answered, failed, from the cache; their durations and cost.",
    "prompts": "The annotation prompts of all builds; the text is NULL for builds of earlier program versions.",
    "trainings": "Finished trainings: their inputs, losses, perplexities, and the path of the checkpoint.",
    "lineage": "The commits and files on which each dataset version depends, for each way in which it was made.",
    "best_calls": "Of the calls that the rules allow, the best at each position and of those repeated nearby.",
    "yield_by_threshold": "Examples and calls per tool that the thresholds 0.5, 1 and 2 would keep.",
    "evaluations": "One row per evaluation: an arm at one k on one task, and whether its run was completed.",
    "accuracy": "Per evaluation: the share of right examples, among all and among those with and without a call.",
    "call_rates": "Per evaluation and tool: the number of examples on which it was called.",
    "perplexity": "Per evaluation: perplexity over all tokens, tools disabled.",
    "choice_accuracy": "Per grounding and method (lm, toolformer): the share of queries with a right choice.",
    "grounded_accuracy": "Per method of choosing: the share of queries with a right answer.",
    "grounding_costs": "LM calls, tokens, tool calls and seconds of each step of a grounding.",
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
    "tool_costs": TOOL_COSTS,
    "prompts": analyst_views.PROMPTS,
    "trainings": analyst_views.TRAININGS,
    "yield_by_threshold": views.yield_sql(views.THRESHOLDS),
    "evaluations": views.EVALUATIONS,
    "accuracy": views.ACCURACY,
    "call_rates": views.CALL_RATES,
    "perplexity": views.PERPLEXITY,
    "choice_accuracy": grounding_views.CHOICE_ACCURACY,
    "grounded_accuracy": grounding_views.GROUNDED_ACCURACY,
    "grounding_costs": grounding_views.GROUNDING_COSTS,
}


def publish(store: Store, catalog: Catalog | None, root: str | Path | None = None, *, recheck: bool = True) -> Path:
    """Write `warehouse.duckdb` into a local folder, replacing the last snapshot in one step; return its path.

    Args:
        store: the data folder.
        catalog: whose facts are copied; None: read the store's commits instead.
        root: the folder; default: the data folder, which must then be local.
        recheck: check whether every data file is still as its commit says; False: only those that this store has not
            found unaltered before, so that the work of a refresh does not grow with everything that was ever written.

    Raises:
        SnapshotError: the snapshot could not be written; the last one stays.
        CatalogError: the catalog could not be read.
    """
    if root is None and not store.is_local:
        raise SnapshotError(f"{store.root} is not local: choose a local folder for the snapshot")
    target = Path(store.root if root is None else root).absolute() / SNAPSHOT
    facts = (
        catalog.facts() if catalog is not None else facts_from_records(store.commits(), store.runs(), store.datasets())
    )
    temporary = temporary_beside(target)
    try:
        make_folder(target.parent)
        try:
            _write(temporary, store, facts, target, recheck)
            _read_through(temporary)
        except duckdb.Error:  # DuckDB has written checkpoints that it could not read, and a data file may be gone
            temporary.unlink(missing_ok=True)
            _write(temporary, store, facts, target, True)  # once more, from the beginning
            _read_through(temporary)
        _replace(temporary, target)
    except (OSError, duckdb.Error) as exc:
        raise SnapshotError(f"cannot publish {target}: {error_line(exc)}") from exc
    finally:
        _remove(temporary)
    return target


@contextlib.contextmanager
def run_snapshot(store: Store, catalog: Catalog, run_id: str) -> Iterator[Path]:
    """Yield a snapshot of one run alone; it is deleted afterwards.

    The published snapshot may show another run: one that began later, or that has been published since.

    Args:
        store: the data folder; files that it has found unaltered before are not checked again.
        catalog: contains the run and its commits.
        run_id: the run's id.

    Raises:
        SnapshotError: the snapshot could not be written.
        CatalogError: the catalog could not be read.
    """
    published = store.local_folder / SNAPSHOT
    facts = _facts_of_run(catalog.facts(), run_id)
    temporary = temporary_beside(published)
    try:
        try:
            make_folder(temporary.parent)
            try:
                _write(temporary, store, facts, published, recheck=False)
            except duckdb.Error:  # a data file may be gone since it was checked
                temporary.unlink(missing_ok=True)
                _write(temporary, store, facts, published, recheck=True)
        except (OSError, duckdb.Error) as exc:
            raise SnapshotError(
                f"cannot write a snapshot of run {run_id} beside {published}: {error_line(exc)}"
            ) from exc
        yield temporary
    finally:
        _remove(temporary)


def _facts_of_run(facts: Facts, run_id: str) -> Facts:
    """Return the facts about one run and the commits that it used, without datasets."""
    is_of_run = pc.field("run_id") == run_id
    used = facts["run_commits"].filter(is_of_run)
    is_of_used_commit = pc.field("commit_id").isin(used["commit_id"].combine_chunks())
    kept = {
        name: rows.filter(is_of_used_commit) if "commit_id" in rows.column_names else rows
        for name, rows in facts.items()
    }
    return kept | {
        "run_commits": used,
        "runs": facts["runs"].filter(is_of_run),
        **{name: facts[name].slice(0, 0) for name in ("datasets", "dataset_files")},
    }


def _remove(temporary: Path) -> None:
    for file in (temporary, temporary.with_name(temporary.name + ".wal")):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def _write(temporary: Path, store: Store, facts: Facts, last_snapshot: Path, recheck: bool) -> None:
    with duckdb.connect(str(temporary)) as connection:
        make_private(temporary, create=False)
        _fill(connection, store, facts, last_snapshot, recheck)
        connection.execute("CHECKPOINT")


def _read_through(snapshot: Path) -> None:
    """Open a snapshot as a reader does and count the rows of its tables, so that an unreadable one is not published.

    Raises:
        duckdb.Error: it cannot be read.
    """
    with duckdb.connect(str(snapshot), read_only=True) as connection:
        names = connection.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'facts'").fetchall()
        for (name,) in names:
            connection.execute(f"SELECT count(*) FROM facts.{name}").fetchall()


def _replace(temporary: Path, target: Path) -> None:
    handle = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.fchmod(handle, private_mode(target.parent) & 0o444)  # nobody writes to it
    finally:
        os.close(handle)
    os.replace(temporary, target)
    fsync_folder(target.parent)


def _fill(
    connection: duckdb.DuckDBPyConnection, store: Store, facts: Facts, last_snapshot: Path, recheck: bool
) -> None:
    connection.execute("BEGIN")
    connection.execute("CREATE SCHEMA facts")
    user_stages = sorted(set(facts["commits"]["stage"].to_pylist()) - STAGES.keys())
    names = [*STAGES, *user_stages]
    stages = pa.table({"rank": list(range(len(names))), "stage": names})
    broken = pa.table({"commit_id": pa.array(_broken(store, facts, recheck), pa.string())})
    about = {"published": datetime.now(UTC).isoformat(), "data": store.root}
    more_facts = {
        "stages": stages,
        "broken": broken,
        "about": pa.table({"name": list(about), "value": list(about.values())}),
        "prompts": prompts_table(store),
        "trainings": trainings_table(store),
    }
    for name, rows in (facts | more_facts).items():
        connection.register("_rows", rows)
        connection.execute(f"CREATE TABLE facts.{name} AS SELECT * FROM _rows")
        connection.unregister("_rows")
    connection.execute(f"CREATE TABLE facts.current AS {views.CURRENT}")
    index.build_index(connection, store, last_snapshot)
    added_columns = {"examples": current_version_sql(connection)}
    added = {"dataset_examples"} if add_dataset_examples(connection, store, recheck) else set()
    for table in (name for name in TABLES if name not in added):
        _add_big_table(connection, store, table, TABLES[table], added_columns.get(table, ""))
    for stage in user_stages:
        if stage not in TABLES and stage not in _VIEWS:
            _add_big_table(connection, store, stage, None)
    create_views(connection)
    connection.execute("COMMIT")


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the views and macros over the tables and facts of a database that has these, and comment on each."""
    for view, sql in _VIEWS.items():
        connection.execute(f"CREATE VIEW {view} AS {sql}")
    for macro, (parameters, sql) in grounding_views.MACROS.items():
        connection.execute(f"CREATE MACRO {macro}({parameters}) AS TABLE {sql}")
        connection.execute(f"COMMENT ON MACRO TABLE {macro} IS {index.sql_text(grounding_views.MACRO_COMMENTS[macro])}")
    kinds = dict(
        connection.execute(
            "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'main'"
        ).fetchall()
    )
    for name, text in _ABOUT.items():
        kind = "VIEW" if kinds[name] == "VIEW" else "TABLE"
        connection.execute(f"COMMENT ON {kind} {name} IS {index.sql_text(text)}")


def _add_big_table(
    connection: duckdb.DuckDBPyConnection, store: Store, table: str, schema: pa.Schema | None, added_columns: str = ""
) -> None:
    """Create a view over the current intact files, with added columns; without files, an empty table of the schema."""
    rows = connection.execute(
        """SELECT DISTINCT path FROM facts.files JOIN facts.current USING (commit_id)
        WHERE table_name = ? AND rows > 0 AND commit_id NOT IN (SELECT commit_id FROM facts.broken) ORDER BY path""",
        [table],
    ).fetchall()
    if rows:
        files = index.parquet_sql(store.local_path(path) for (path,) in rows)
        columns = ", ".join(filter(None, ("*", added_columns)))
        connection.execute(f"CREATE VIEW {table} AS {index.with_added_columns(table, files, columns)}")
        return
    if schema is None:
        return
    connection.register("_rows", schema.empty_table())
    connection.execute(f"CREATE TABLE {table} AS SELECT * FROM _rows")
    connection.unregister("_rows")


def _broken(store: Store, facts: Facts, recheck: bool) -> list[str]:
    """Return the ids of commits with a file that is missing, short, or was altered after the commit was written."""
    commits = facts["commits"].select(["commit_id", "created"]).to_pylist()
    written = {row["commit_id"]: _written_before(row["created"]) for row in commits}
    broken = set()
    for row in facts["files"].select(["commit_id", "path", "digest", "rows", "bytes"]).to_pylist():
        commit_id = row.pop("commit_id")
        if not store.is_unaltered(DataFile(**row), written[commit_id], recheck=recheck):
            broken.add(commit_id)
    return sorted(broken)


def _written_before(created: str) -> float:
    """Return the time by which a commit's data was written, in seconds since 1970; `created` may be cut to seconds."""
    return datetime.fromisoformat(created).replace(tzinfo=UTC).timestamp() + 1.0
