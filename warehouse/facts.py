"""The index tables ("facts"), declared once, and how commits, runs and datasets become their rows.

    commits        one row per commit            commit_parts   the parts of its fingerprint
    files          its data files                commit_inputs  digests of the files that it read
    balances       where its rows went           runs           one row per run
    run_commits    the commits that a run used   datasets       one row per way in which a dataset version was made
    dataset_files  the files of each of them

The catalog on DuckDB, the catalog on PostgreSQL and the published snapshot have the same tables. Every key is a natural
one, so no table needs a sequence or an autoincrement (which duckdb-engine cannot do). Times are ISO UTC text, and
order nothing that has a number; nested values (config, counters, ...) are JSON text.

This module opens no database and no file.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from warehouse.commits import Commit, Dataset, RowCounts, Run, canonical_json
from warehouse.schema import CALL_OUTCOMES, STAGES, columns

METADATA = sa.MetaData()
Facts = dict[str, pa.Table]  # table name -> rows

# The tables that hold the rows of a commit, a run and a dataset record; the first has one row for each.
COMMIT_TABLES = ("commits", "commit_parts", "commit_inputs", "files", "balances")
RUN_TABLES = ("runs", "run_commits")
DATASET_TABLES = ("datasets", "dataset_files")


_TYPES = {pa.string(): sa.Text, pa.int64(): sa.BigInteger, pa.float64(): sa.Double}


def _table(name: str, text: str, *keys: str) -> None:
    """Declare a table by its columns, as `schema.columns` reads them, and those of its primary key."""
    declared = (
        sa.Column(field.name, _TYPES[field.type], primary_key=field.name in keys, nullable=field.nullable)
        for field in columns(text)
    )
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


def _arrow_type(column: sa.Column[Any]) -> pa.DataType:
    if isinstance(column.type, sa.BigInteger):
        return pa.int64()
    return pa.float64() if isinstance(column.type, sa.Double) else pa.string()


def arrow_schema(table: sa.Table) -> pa.Schema:
    """Return an index table's columns as an Arrow schema."""
    return pa.schema([(column.name, _arrow_type(column)) for column in table.columns])


def _json(value: Any) -> str:
    return canonical_json(value).decode()


def _table_name(path: str, stage: str) -> str:
    if path.startswith("rejects/"):
        return "rejects"
    if path.startswith(f"shards/{CALL_OUTCOMES}/"):
        return CALL_OUTCOMES
    return STAGES[stage].table if stage in STAGES else stage


def _balance_rows(commit_id: str, balance: RowCounts) -> Iterator[tuple[Any, ...]]:
    yield commit_id, balance.unit, "in", "in", balance.rows_in
    yield commit_id, balance.unit, "kept", "kept", balance.kept
    for kind, counts in (("dropped", balance.dropped), ("failed", balance.failed)):
        for reason, rows in sorted(counts.items()):
            yield commit_id, balance.unit, kind, reason, rows


def _commit_row(commit: Commit) -> tuple[Any, ...]:
    return (
        commit.id,
        commit.stage,
        commit.stage_version,
        commit.tool,
        commit.shard,
        commit.fingerprint,
        commit.rows,
        sum(file.bytes for file in commit.files),
        commit.seconds,
        commit.host,
        commit.created,
        commit.run_id,
        commit.content_digest,
        _json(commit.config),
        _json(commit.counters),
        _json(commit.versions),
    )


def facts_from_records(
    commits: Iterable[Commit] = (), runs: Iterable[Run] = (), datasets: Iterable[Dataset] = ()
) -> Facts:
    """Return the rows of all index tables for these records."""
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in METADATA.tables}
    for commit in commits:
        commit_id = commit.id
        rows["commits"].append(_commit_row(commit))
        rows["commit_parts"] += [(commit_id, part, value) for part, value in sorted(commit.parts.items())]
        rows["commit_inputs"] += [(commit_id, input_digest) for input_digest in commit.inputs]
        rows["files"] += [
            (commit_id, f.path, _table_name(f.path, commit.stage), f.digest, f.rows, f.bytes) for f in commit.files
        ]
        for balance in commit.balances:
            rows["balances"] += _balance_rows(commit_id, balance)
    for run in runs:
        began = (run.run_id, run.flow, run.started, run.finished, run.state, _json(run.parameters))
        rows["runs"].append((*began, run.corpus, run.model, run.dataset, run.number))
        rows["run_commits"] += [(run.run_id, commit_id) for commit_id in dict.fromkeys(key.id for key in run.commits)]
    for dataset in datasets:
        counts, thresholds = _json(dataset.counts), _json(dataset.thresholds)
        card = (counts, thresholds, dataset.run_id, dataset.model, dataset.corpus, dataset.created)
        key = (dataset.name, dataset.version, dataset.made)
        rows["datasets"].append((*key, *card, dataset.licence, dataset.notes, dataset.number))
        rows["dataset_files"] += [(*key, f.path, f.digest, f.rows, f.bytes) for f in dataset.files]
    return {name: _arrow(METADATA.tables[name], table_rows) for name, table_rows in rows.items()}


def _arrow(table: sa.Table, rows: list[tuple[Any, ...]]) -> pa.Table:
    schema = arrow_schema(table)
    values = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    return pa.table([pa.array(column, field.type) for column, field in zip(values, schema, strict=True)], schema)
