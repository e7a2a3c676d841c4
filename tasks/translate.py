"""The method's records into Arrow tables and back: the one file that knows both the core and the warehouse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from toolformer_core.evaluate.answer import Likelihood, Prediction
from toolformer_core.evaluate.items import Item, Rejected
from toolformer_core.records import (
    Document,
    DrawnCall,
    Example,
    Execution,
    InsertedCall,
    Rejection,
    ScoredCall,
    Verdict,
)
from warehouse.schema import REJECTS, stage_facts

__all__ = [
    "documents_of",
    "drawn_of",
    "examples_of",
    "executions_of",
    "items_of",
    "items_table",
    "likelihoods_table",
    "predictions_table",
    "rejected_table",
    "rejects_table",
    "scored_of",
    "stage_table",
    "verdicts_of",
]

_Record = Document | Verdict | DrawnCall | Execution | ScoredCall | Example


def _row(record: _Record) -> dict[str, Any]:
    row = asdict(record)
    if isinstance(record, Verdict):
        row["spans"] = [{"start": start, "end": end} for start, end in record.spans]
    elif isinstance(record, ScoredCall):
        row["gain"] = record.gain
    return row


def stage_table(stage: str, records: Iterable[_Record]) -> pa.Table:
    """Return a stage's records as its table."""
    return pa.Table.from_pylist([_row(r) for r in records], schema=stage_facts(stage).schema)


def rejects_table(rejections: Iterable[Rejection]) -> pa.Table:
    return pa.Table.from_pylist([asdict(r) for r in rejections], schema=REJECTS)


def documents_of(table: pa.Table) -> list[Document]:
    return [Document(**row) for row in table.to_pylist()]


def verdicts_of(table: pa.Table) -> list[Verdict]:
    return [
        Verdict(**{**row, "spans": tuple((s["start"], s["end"]) for s in row["spans"] or ())})
        for row in table.to_pylist()
    ]


def drawn_of(table: pa.Table) -> list[DrawnCall]:
    return [DrawnCall(**row) for row in table.to_pylist()]


def executions_of(table: pa.Table) -> list[Execution]:
    return [Execution(**row) for row in table.to_pylist()]


def scored_of(table: pa.Table) -> list[ScoredCall]:
    return [ScoredCall(**row) for row in table.drop_columns(["gain"]).to_pylist()]


def examples_of(table: pa.Table) -> list[Example]:
    return [
        Example(row["doc_id"], row["text"], tuple(InsertedCall(**call) for call in row["calls"]))
        for row in table.to_pylist()
    ]


def items_table(items: Iterable[Item]) -> pa.Table:
    rows = [_renamed(asdict(item)) for item in items]
    return pa.Table.from_pylist(rows, schema=stage_facts("benchmark").schema)


def items_of(table: pa.Table) -> list[Item]:
    return [
        Item(**{**row, "answers": tuple(row["answers"]), "group": group})
        for row in table.to_pylist()
        for group in (row.pop("group_name"),)
    ]


def rejected_table(rejected: Iterable[Rejected]) -> pa.Table:
    """Return the rows of a benchmark that are no items; of these the reader keeps no raw text."""
    return pa.Table.from_pylist([{**asdict(r), "raw": ""} for r in rejected], schema=REJECTS)


def predictions_table(predictions: Iterable[Prediction], about: Mapping[str, Any]) -> pa.Table:
    """Return predictions as a table.

    Args:
        about: the columns all of them share: evaluation, task, arm, k, parameters.
    """
    rows = [{**about, **_renamed(asdict(p))} for p in predictions]
    return pa.Table.from_pylist(rows, schema=stage_facts("evaluate").schema)


def likelihoods_table(likelihoods: Iterable[Likelihood], about: Mapping[str, Any]) -> pa.Table:
    """Return texts' likelihoods as a table; see `predictions_table`."""
    rows = [{**about, **asdict(one)} for one in likelihoods]
    return pa.Table.from_pylist(rows, schema=stage_facts("perplexity").schema)


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """`group` is a word of SQL."""
    row["group_name"] = row.pop("group")
    return row
