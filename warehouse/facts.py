"""The index tables ("facts"), declared once, and how commits, runs and datasets become their rows.

The catalog, on DuckDB or PostgreSQL, and the published snapshot have the same tables. Keys are natural ones; times are
ISO UTC text, and order nothing that has a number; nested values (config, counters, ...) are JSON text.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa

from warehouse.commits import Commit, Dataset, Run, canonical_json
from warehouse.schema import CALL_OUTCOMES, STAGES, columns, table_of

METADATA = sa.MetaData()
Facts = dict[str, pa.Table]  # table name -> rows

# The tables that hold the rows of a commit, a run and a dataset record; the first has one row for each.
COMMIT_TABLES = ("commits", "commit_parts", "commit_inputs", "files", "balances")
RUN_TABLES = ("runs", "run_commits")
DATASET_TABLES = ("datasets", "dataset_files")

_TYPES = {pa.string(): sa.Text, pa.int64(): sa.BigInteger, pa.float64(): sa.Double}
ARROW_SCHEMAS: dict[str, pa.Schema] = {}  # by table


def _table(name: str, text: str, *keys: str) -> None:
    """Declare a table by its columns, as `schema.columns` reads them, and those of its primary key."""
    fields = columns(text)
    ARROW_SCHEMAS[name] = pa.schema([(field.name, field.type) for field in fields])
    declared = (sa.Column(f.name, _TYPES[f.type], primary_key=f.name in keys, nullable=f.nullable) for f in fields)
    sa.Table(name, METADATA, *declared)


_table(
    "commits",
    "commit_id text, stage text, stage_version text, tool text, shard text, fingerprint text, rows int, bytes int, "
    "seconds real, host text, created text, run_id text, content_digest text, config text, counters text, "
    "versions text",
    "commit_id",
)
_table("commit_parts", "commit_id text, part text, value text")
_table("commit_inputs", "commit_id text, digest text")
_table("files", "commit_id text, path text, table_name text, digest text, rows int, bytes int")
_table("balances", "commit_id text, unit text, kind text, reason text, rows int")
_table(
    "runs",
    "run_id text, flow text, started text, finished text?, state text, parameters text, corpus text, model text, "
    "dataset text, number int",
    "run_id",
)
_table("run_commits", "run_id text, commit_id text")
_table(
    "datasets",
    "name text, version text, made text, counts text, thresholds text, run_id text, model text, corpus text, "
    "created text, licence text, notes text, number int",
    *("name", "version", "made"),
)
_table("dataset_files", "name text, version text, made text, path text, digest text, rows int, bytes int")

# The columns in which two versions of a commit, a run or a dataset record differ. A commit is replaced only after its
# data was damaged: the shard is then computed again, at another time.
IDENTITIES: dict[str, tuple[str, ...]] = {
    "commits": ("commit_id", "created", "content_digest", "run_id", "host", "seconds"),
    **{name: tuple(METADATA.tables[name].columns.keys()) for name in ("runs", "datasets")},
}

# DuckDB's SQL of a row for every run, in which two versions of its list of commits differ; {} is the table of pairs.
RUN_SUMMARIES = "SELECT run_id, count(*) AS commits, bit_xor(hash(commit_id)) AS digest FROM {} GROUP BY run_id"


def run_summaries(run_commits: pa.Table) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("pairs", run_commits)
        return connection.sql(RUN_SUMMARIES.format("pairs")).to_arrow_table()


def facts_from_records(
    commits: Iterable[Commit] = (), runs: Iterable[Run] = (), datasets: Iterable[Dataset] = ()
) -> Facts:
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in METADATA.tables}
    for commit in commits:
        own = commit.id
        rows["commits"].append(_row("commits", commit, commit_id=own, bytes=sum(file.bytes for file in commit.files)))
        rows["commit_parts"] += [(own, part, value) for part, value in sorted(commit.parts.items())]
        rows["commit_inputs"] += [(own, input_digest) for input_digest in commit.inputs]
        tables = ((file, _table_name(file.path, commit.stage)) for file in commit.files)
        rows["files"] += [_row("files", file, commit_id=own, table_name=table) for file, table in tables]
        for one in commit.balances:
            rows["balances"] += [(own, one.unit, "in", "in", one.rows_in), (own, one.unit, "kept", "kept", one.kept)]
            for kind, counts in (("dropped", one.dropped), ("failed", one.failed)):
                rows["balances"] += [(own, one.unit, kind, reason, n) for reason, n in sorted(counts.items())]
    for run in runs:
        rows["runs"].append(_row("runs", run))
        rows["run_commits"] += [(run.run_id, commit_id) for commit_id in dict.fromkeys(key.id for key in run.commits)]
    for dataset in datasets:
        rows["datasets"].append(_row("datasets", dataset))
        key = {"name": dataset.name, "version": dataset.version, "made": dataset.made}
        rows["dataset_files"] += [_row("dataset_files", file, **key) for file in dataset.files]
    return {name: table_of(ARROW_SCHEMAS[name], table_rows) for name, table_rows in rows.items()}


def _row(table: str, record: Any, **more: Any) -> tuple[Any, ...]:
    """Return a row: the record's attributes with the columns' names, and more; nested values become JSON text."""
    values = (more[name] if name in more else getattr(record, name) for name in ARROW_SCHEMAS[table].names)
    return tuple(canonical_json(value).decode() if isinstance(value, Mapping) else value for value in values)


def _table_name(path: str, stage: str) -> str:
    if path.startswith("rejects/"):
        return "rejects"
    if path.startswith(f"shards/{CALL_OUTCOMES}/"):
        return CALL_OUTCOMES
    return STAGES[stage].table if stage in STAGES else stage
