"""The method's records into Arrow tables and back: the one file that knows both the core and the warehouse."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from toolformer_core import records
from toolformer_core.annotate.pii import masked
from toolformer_core.evaluate.answer import Prediction
from toolformer_core.evaluate.items import Item, RejectedRow
from toolformer_core.evaluate.likelihood import Likelihood
from toolformer_core.grounding.records import Grounding, Query, ToolScore
from toolformer_core.records import AnsweredCall, Document, DrawnCall, Example, Execution, PrefilterResult, ScoredCall
from warehouse.schema import CALL_OUTCOMES, REJECTS, TABLES, stage_facts


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    item_id: str
    query: Query
    right: tuple[str, ...]

    @property
    def columns(self) -> dict[str, Any]:
        return {"item_id": self.item_id, "query": self.query.text, "right_tools": list(self.right)}


_Record = Document | PrefilterResult | DrawnCall | Execution | ScoredCall | Example


def _column(rows: Sequence[_Record], name: str) -> list[Any]:
    """Return one field of all records; nested ones as plain values. `asdict` would take most of a shard's time."""
    values = list(map(attrgetter(name), rows))
    if name == "spans":
        return [[{"start": start, "end": end} for start, end in spans] for spans in values]
    if name in ("calls", "preceding_calls"):
        return [[{f: getattr(call, f) for f in call.__slots__} for call in calls] for calls in values]
    return values


def stage_table(stage: str, given: Iterable[_Record]) -> pa.Table:
    rows, schema = list(given), stage_facts(stage).schema
    return pa.table([pa.array(_column(rows, field.name), field.type) for field in schema], schema)


def _rows(table: pa.Table, names: Iterable[str]) -> Iterable[tuple[Any, ...]]:
    return zip(*(_values(table, name) for name in names), strict=True)


def _values(table: pa.Table, name: str) -> list[Any]:
    values: list[Any] = table.column(name).to_pylist()
    return [tuple(AnsweredCall(**one) for one in calls) for calls in values] if name == "preceding_calls" else values


def outcomes_table(
    calls: Iterable[ScoredCall], outcomes: Iterable[tuple[str, ScoredCall | None]], tau_f: Mapping[str, float]
) -> pa.Table:
    """Return scored calls with what became of each: its reason, "" if it is kept, and the call that won over it."""
    names = [field.name for field in TABLES[CALL_OUTCOMES].field("won_by").type]
    rows = [
        {
            **{name: getattr(call, name) for name in ("doc_id", *names)},
            "preceding_calls": [asdict(one) for one in call.preceding_calls],
            "tau_f": tau_f.get(call.tool),
            "outcome": reason or "kept",
            "won_by": None if winner is None else {name: getattr(winner, name) for name in names},
        }
        for call, (reason, winner) in zip(calls, outcomes, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=TABLES[CALL_OUTCOMES])


def rejects_table(rejections: Iterable[records.Rejection | RejectedRow]) -> pa.Table:
    """Return rejected rows as a table; of those of a benchmark no raw text is kept."""
    return pa.Table.from_pylist([{"raw": "", **asdict(r)} for r in rejections], schema=REJECTS)


def evaluation_table(
    stage: str, given: Iterable[Item | Prediction | Likelihood], about: Mapping[str, Any] | None = None
) -> pa.Table:
    """Return records of an evaluation as their stage's table, with columns that all rows share."""
    rows = [{**(about or {}), **asdict(one)} for one in given]
    return rows_table(stage, [{**row, "group_name": row.get("group")} for row in rows])  # `group` is a word of SQL


def rows_table(stage: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=stage_facts(stage).schema)


def with_masked_texts(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("text")
    return table.set_column(at, table.schema.field(at), pa.array(map(masked, table["text"].to_pylist()), pa.string()))


def documents_of(table: pa.Table) -> list[Document]:
    return [Document(*row) for row in _rows(table, Document.__slots__)]


def prefilter_results(table: pa.Table) -> list[PrefilterResult]:
    return [
        PrefilterResult(*(*row, tuple((s["start"], s["end"]) for s in spans or ())))
        for *row, spans in _rows(table, PrefilterResult.__slots__)
    ]


def drawn_of(table: pa.Table) -> list[DrawnCall]:
    names: tuple[str, ...] = DrawnCall.__slots__
    if "preceding_calls" not in table.column_names:  # samples of single calls
        names = names[: names.index("preceding_calls")]
    return [DrawnCall(*row) for row in _rows(table, names)]


def parsed_calls_of(table: pa.Table) -> list[DrawnCall]:
    return [call for call in drawn_of(table) if call.outcome == "ok"]


def executions_of(table: pa.Table) -> list[Execution]:
    return [Execution(*row) for row in _rows(table, Execution.__slots__)]


def scored_of(table: pa.Table, *, decoys: bool = False) -> list[ScoredCall]:
    """Return scored calls, without the log-probabilities of the next tokens, nor their decoys unless requested."""
    names = ScoredCall.__slots__[: ScoredCall.__slots__.index("log_p_plain")]
    calls = [ScoredCall(*row) for row in _rows(table, names)]
    further: dict[str, list[Any]] = {}
    if decoys:
        further["decoy_gains"] = [None if gains is None else tuple(gains) for gains in _values(table, "decoy_gains")]
    if "preceding_calls" in table.column_names:  # chains
        further |= {name: _values(table, name) for name in ("preceding_calls", "loss_shorter")}
    if not further:
        return calls
    return [
        replace(call, **dict(zip(further, values, strict=True)))
        for call, *values in zip(calls, *further.values(), strict=True)
    ]


def examples_of(table: pa.Table) -> list[Example]:
    return [
        Example(row["doc_id"], row["text"], tuple(records.InsertedCall(**call) for call in row["calls"]))
        for row in table.to_pylist()
    ]


def items_of(table: pa.Table) -> list[Item]:
    rows = table.rename_columns({"group_name": "group"}).to_pylist()
    return [Item(**{**row, "answers": tuple(row["answers"])}) for row in rows]


def groundings_table(
    name: str, task: str, queries: Sequence[LabelledQuery], groundings: Sequence[Grounding], patterns: Sequence[str]
) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for query, g in zip(queries, groundings, strict=True):
        about = {"grounding": name, "task": task, **query.columns, "context": query.query.context}
        about |= {"preliminary": g.answer, "preliminary_counts": list(g.counts), "patterns": list(patterns)}
        about |= {"pattern_weights": list(g.pattern_weights)}
        rows += [{**about, "rank": rank, **asdict(score)} for rank, score in enumerate(g.scores)]
    return rows_table("ground", rows)


def groundings_of(table: pa.Table) -> list[tuple[str, tuple[str, ...], Grounding]]:
    """Return the groundings of a table, each with its item's id and the right tools."""
    out = []
    for item_id, group in groupby(table.to_pylist(), key=itemgetter("item_id")):
        rows = sorted(group, key=itemgetter("rank"))
        scores = tuple(
            ToolScore(**({name: row[name] for name in ToolScore.__slots__} | {"counts": tuple(row["counts"])}))
            for row in rows
        )
        first, query = rows[0], Query(rows[0]["query"], rows[0]["context"])
        counts, weights = tuple(first["preliminary_counts"]), tuple(first["pattern_weights"])
        grounding = Grounding(query, first["preliminary"], counts, scores, weights)
        out.append((item_id, tuple(first["right_tools"]), grounding))
    return out


def choices_of(table: pa.Table) -> list[tuple[str, tuple[str, ...], str | None]]:
    return [(row["item_id"], tuple(row["right_tools"]), row["tool"]) for row in table.to_pylist()]
