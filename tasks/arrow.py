"""The method's records into Arrow tables and back: the one file that knows both the core and the warehouse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from toolformer_core.evaluate.answer import Likelihood, Prediction
from toolformer_core.evaluate.items import Item, RejectedRow
from toolformer_core.records import (
    Document,
    DrawnCall,
    Example,
    Execution,
    InsertedCall,
    PrefilterResult,
    Rejection,
    ScoredCall,
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
    "parsed_calls_of",
    "predictions_table",
    "rejected_table",
    "rejects_table",
    "scored_of",
    "stage_table",
    "verdicts_of",
]

_Record = Document | PrefilterResult | DrawnCall | Execution | ScoredCall | Example


def _column(records: Sequence[_Record], name: str) -> list[Any]:
    """Return one field of all records; nested ones as plain values. `asdict` would take most of a shard's time."""
    values = [getattr(record, name) for record in records]
    if name == "spans":
        return [[{"start": start, "end": end} for start, end in spans] for spans in values]
    if name == "calls":
        return [[{f: getattr(call, f) for f in call.__slots__} for call in calls] for calls in values]
    return values


def stage_table(stage: str, records: Iterable[_Record]) -> pa.Table:
    """Return a stage's records as its table."""
    rows, schema = list(records), stage_facts(stage).schema
    return pa.table([pa.array(_column(rows, field.name), field.type) for field in schema], schema)


def _rows(table: pa.Table, names: Iterable[str]) -> Iterable[tuple[Any, ...]]:
    """Return a table's rows as tuples of these columns."""
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


def _held(table: pa.Table, names: Sequence[str]) -> list[str]:
    """Return the names of a record's fields up to those that a table of an earlier version lacks."""
    return [name for name in names if name in table.column_names]


def rejects_table(rejections: Iterable[Rejection]) -> pa.Table:
    return pa.Table.from_pylist([asdict(r) for r in rejections], schema=REJECTS)


def documents_of(table: pa.Table) -> list[Document]:
    return [Document(*row) for row in _rows(table, Document.__slots__)]


def verdicts_of(table: pa.Table) -> list[PrefilterResult]:
    return [
        PrefilterResult(*(*row, tuple((s["start"], s["end"]) for s in spans or ())))
        for *row, spans in _rows(table, PrefilterResult.__slots__)
    ]


def drawn_of(table: pa.Table) -> list[DrawnCall]:
    return [DrawnCall(*row) for row in _rows(table, _held(table, DrawnCall.__slots__))]


def parsed_calls_of(table: pa.Table) -> list[DrawnCall]:
    """Return the draws that are well-formed calls of the tool."""
    return [call for call in drawn_of(table) if call.outcome == "ok"]


def executions_of(table: pa.Table) -> list[Execution]:
    return [Execution(*row) for row in _rows(table, _held(table, Execution.__slots__))]


def scored_of(table: pa.Table) -> list[ScoredCall]:
    return [ScoredCall(*row) for row in _rows(table, _held(table, ScoredCall.__slots__))]


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


def rejected_table(rejected: Iterable[RejectedRow]) -> pa.Table:
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
