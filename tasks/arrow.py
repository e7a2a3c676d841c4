"""The method's records into Arrow tables and back: the one file that knows both the core and the warehouse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa

from toolformer_core.evaluate.answer import Likelihood, Prediction
from toolformer_core.evaluate.items import Item, RejectedRow
from toolformer_core.grounding.ground import Answer
from toolformer_core.grounding.records import Grounding, Query, ToolScore
from toolformer_core.records import (
    AnsweredCall,
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


@dataclass(frozen=True, slots=True)
class Asked:
    """A query with its item's id and the keys of the tools that are right for it."""

    item_id: str
    query: Query
    right: tuple[str, ...]


_LOG_PROBS = ("log_p_plain", "log_p_call", "log_p_response")

_Record = Document | PrefilterResult | DrawnCall | Execution | ScoredCall | Example


def _column(records: Sequence[_Record], name: str) -> list[Any]:
    """Return one field of all records; nested ones as plain values. `asdict` would take most of a shard's time."""
    values = list(map(attrgetter(name), records))
    if name == "spans":
        return [[{"start": start, "end": end} for start, end in spans] for spans in values]
    if name in ("calls", "behind"):
        return [[{f: getattr(call, f) for f in call.__slots__} for call in calls] for calls in values]
    return values


def stage_table(stage: str, records: Iterable[_Record]) -> pa.Table:
    """Return a stage's records as its table."""
    rows, schema = list(records), stage_facts(stage).schema
    return pa.table([pa.array(_column(rows, field.name), field.type) for field in schema], schema)


def _rows(table: pa.Table, names: Iterable[str]) -> Iterable[tuple[Any, ...]]:
    """Return a table's rows as tuples of these columns."""
    return zip(*(_values(table, name) for name in names), strict=True)


def _values(table: pa.Table, name: str) -> list[Any]:
    values: list[Any] = table.column(name).to_pylist()
    return [tuple(AnsweredCall(**one) for one in calls) for calls in values] if name == "behind" else values


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
    names: tuple[str, ...] = DrawnCall.__slots__
    if "behind" not in table.column_names:  # draws of single calls
        names = names[: names.index("behind")]
    return [DrawnCall(*row) for row in _rows(table, names)]


def parsed_calls_of(table: pa.Table) -> list[DrawnCall]:
    """Return the draws that are well-formed calls of the tool."""
    return [call for call in drawn_of(table) if call.outcome == "ok"]


def executions_of(table: pa.Table) -> list[Execution]:
    return [Execution(*row) for row in _rows(table, Execution.__slots__)]


def scored_of(table: pa.Table, *, decoys: bool = False, log_probs: bool = False) -> list[ScoredCall]:
    """Return scored calls; with their decoys and the log-probabilities of the next tokens only if asked."""
    names = ScoredCall.__slots__[: ScoredCall.__slots__.index("log_p_plain")]
    calls = [ScoredCall(*row) for row in _rows(table, names)]
    lists = [*(_LOG_PROBS if log_probs else ()), *(("decoy_gains",) if decoys else ())]
    further = {name: list(map(_as_tuple, _values(table, name))) for name in lists}
    if "behind" in table.column_names:  # chains
        further |= {name: _values(table, name) for name in ("behind", "loss_shorter")}
    if not further:
        return calls
    return [
        replace(call, **dict(zip(further, values, strict=True)))
        for call, *values in zip(calls, *further.values(), strict=True)
    ]


def _as_tuple(values: list[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(values)


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


def groundings_table(
    name: str, task: str, queries: Sequence[Asked], groundings: Sequence[Grounding], patterns: Sequence[str]
) -> pa.Table:
    """Return groundings as a table, one row per query and tool.

    Args:
        name: the grounding's.
        task: the benchmark's name.
        queries: one for each grounding, in order.
        groundings: of these queries.
        patterns: the patterns' names.
    """
    rows: list[dict[str, Any]] = []
    for asked, g in zip(queries, groundings, strict=True):
        about = {"grounding": name, "task": task, **_asked_columns(asked), "context": asked.query.context}
        about |= {"preliminary": g.answer, "preliminary_counts": list(g.counts), "patterns": list(patterns)}
        about |= {"pattern_weights": list(g.pattern_weights)}
        rows += [{**about, "rank": rank, **asdict(score)} for rank, score in enumerate(g.scores)]
    return pa.Table.from_pylist(rows, schema=stage_facts("ground").schema)


def groundings_of(table: pa.Table) -> list[tuple[str, tuple[str, ...], Grounding]]:
    """Return the groundings of a table, each with its item's id and the right tools."""
    out = []
    for item_id, group in groupby(table.to_pylist(), key=lambda row: row["item_id"]):
        rows = sorted(group, key=lambda row: row["rank"])
        first = rows[0]
        scores = tuple(_tool_score(row) for row in rows)
        grounding = Grounding(
            Query(first["query"], first["context"]),
            first["preliminary"],
            tuple(first["preliminary_counts"]),
            scores,
            tuple(first["pattern_weights"]),
        )
        out.append((item_id, tuple(first["right_tools"]), grounding))
    return out


def _tool_score(row: Mapping[str, Any]) -> ToolScore:
    fields: dict[str, Any] = {name: row[name] for name in ToolScore.__slots__}
    return ToolScore(**{**fields, "counts": tuple(row["counts"])})


def choices_table(about: Mapping[str, Any], queries: Sequence[Asked], choices: Sequence[str | None]) -> pa.Table:
    """Return the tools that a model chose; `about`: the columns all rows share: grounding, method, task."""
    rows = [{**about, **_asked_columns(one), "tool": tool} for one, tool in zip(queries, choices, strict=True)]
    return pa.Table.from_pylist(rows, schema=stage_facts("choose").schema)


def choices_of(table: pa.Table) -> list[tuple[str, tuple[str, ...], str | None]]:
    """Return item id, right tools and chosen tool of each row."""
    return [(row["item_id"], tuple(row["right_tools"]), row["tool"]) for row in table.to_pylist()]


def answers_table(
    about: Mapping[str, Any],
    items: Sequence[Item],
    queries: Sequence[Asked],
    answers: Sequence[Answer],
    correct: Sequence[bool],
) -> pa.Table:
    """Return grounded answers as a table; `about`: the columns all rows share."""
    rows = [
        {
            **about,
            **_asked_columns(asked),
            "answers": list(item.answers),
            "tool": one.tool,
            "call": one.call,
            "answer": one.text,
            "correct": right,
            "failure": one.failure,
        }
        for item, asked, one, right in zip(items, queries, answers, correct, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=stage_facts("answer_grounded").schema)


def _asked_columns(asked: Asked) -> dict[str, Any]:
    return {"item_id": asked.item_id, "query": asked.query.text, "right_tools": list(asked.right)}


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """`group` is a word of SQL."""
    row["group_name"] = row.pop("group")
    return row
