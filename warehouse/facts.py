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

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from warehouse.commits import Commit, Dataset, RowCounts, Run, canonical_json
from warehouse.schema import STAGES

METADATA = sa.MetaData()
Facts = dict[str, pa.Table]  # table name -> rows

# The tables that hold the rows of a commit, a run and a dataset record; the first has one row for each.
COMMIT_TABLES = ("commits", "commit_parts", "commit_inputs", "files", "balances")
RUN_TABLES = ("runs", "run_commits")
DATASET_TABLES = ("datasets", "dataset_files")


def _text(name: str, *, key: bool = False, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=key, nullable=null)


def _int(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _real(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=False)


sa.Table(
    "commits",
    METADATA,
    _text("commit_id", key=True),
    _text("stage"),
    _text("stage_version"),
    _text("tool"),
    _text("shard"),
    _text("fingerprint"),
    _int("rows"),
    _int("bytes"),
    _real("seconds"),
    _text("host"),
    _text("created"),
    _text("run_id"),
    _text("content_digest"),
    _text("config"),
    _text("counters"),
    _text("versions"),
)
sa.Table("commit_parts", METADATA, _text("commit_id"), _text("part"), _text("value"))
sa.Table("commit_inputs", METADATA, _text("commit_id"), _text("digest"))
sa.Table(
    "files",
    METADATA,
    _text("commit_id"),
    _text("path"),
    _text("table_name"),
    _text("digest"),
    _int("rows"),
    _int("bytes"),
)
sa.Table("balances", METADATA, _text("commit_id"), _text("unit"), _text("kind"), _text("reason"), _int("rows"))
sa.Table(
    "runs",
    METADATA,
    _text("run_id", key=True),
    _text("flow"),
    _text("started"),
    _text("finished", null=True),
    _text("state"),
    _text("parameters"),
    _text("corpus"),
    _text("model"),
    _text("dataset"),
    _int("number"),
)
sa.Table("run_commits", METADATA, _text("run_id"), _text("commit_id"))
sa.Table(
    "datasets",
    METADATA,
    _text("name", key=True),
    _text("version", key=True),
    _text("made", key=True),
    _text("counts"),
    _text("thresholds"),
    _text("run_id"),
    _text("model"),
    _text("corpus"),
    _text("created"),
    _text("licence"),
    _text("notes"),
    _int("number"),
)
sa.Table(
    "dataset_files",
    METADATA,
    _text("name"),
    _text("version"),
    _text("made"),
    _text("path"),
    _text("digest"),
    _int("rows"),
    _int("bytes"),
)

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
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema)
