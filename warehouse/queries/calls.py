"""Queries on calls: the best ones with the text around them, and how much the calls of each tool gain."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from warehouse.errors import SnapshotError
from warehouse.queries.rows import files_sql, open_snapshot, rows_in, rows_of
from warehouse.snapshot.index import BIN_NATS
from warehouse.snapshot.views import CHAIN_PRECEDENCE, MEASURED, PRECEDENCE, queries_beside

WIDTH = 60  # characters of text before and after the position of a call that is shown
_LOW, _HIGH, _BIN = -2.0, 4.0, 0.5  # nats: the first and the last bin of gains end and begin here

_SQL = queries_beside(__file__)
_BINNED = f"SELECT tool, bin * {BIN_NATS} AS gain, calls FROM facts.gain_bins JOIN facts.slots USING (slot)"


class Link(NamedTuple):
    tool: str
    input: str
    response: str


@dataclass(frozen=True, slots=True)
class CallInContext:
    """A call, or the last one of a chain, with the text around its position."""

    doc_id: str
    tool: str
    position: int
    input: str
    response: str
    gain: float
    before: str
    after: str
    preceding_calls: tuple[Link, ...] = ()  # the calls in front of it in its chain, in order

    @property
    def links(self) -> tuple[Link, ...]:
        """The calls of its chain in order, the last one being this; a single call is alone in it."""
        return (*self.preceding_calls, Link(self.tool, self.input, self.response))


@dataclass(frozen=True, slots=True)
class GainBin:
    """The number of scored calls of a tool that gain at least `low` and less than `high` nats; None: no bound."""

    tool: str
    low: float | None
    high: float | None
    calls: int

    @property
    def label(self) -> str:
        if self.low is None:
            return f"below {self.high:+.1f}"
        return f"{self.low:+.1f} and more" if self.high is None else f"{self.low:+.1f} to {self.high:+.1f}"


def best_calls(path: str | Path, n: int = 10, kept: bool = False) -> list[CallInContext]:
    """Return the `n` calls with the largest gains: of C*, or of all calls that a lower threshold could keep."""
    with open_snapshot(path) as connection:
        calls = rows_in(connection, _SQL["kept" if kept else "best"], {"n": n})
        if kept:
            texts = _texts(connection, calls)
            return [_in_context(row, texts) for row in calls]
        found = calls_with_text(connection, calls)
        return sorted(found, key=lambda call: (-call.gain, call.doc_id, call.position, call.tool))


def tool_names(path: str | Path) -> dict[str, str]:
    """Return the names in calls of the tools of all builds, by key."""
    names: dict[str, str] = {}
    for row in rows_of(path, _SQL["tool_names"]):
        names |= json.loads(row["names"] or "null") or {}
    return names


def nearest_call(path: str | Path, tool: str, gain: float) -> CallInContext | None:
    """Return the tool's scored call, kept or not, whose gain (nats) is nearest; None if the tool has no calls."""
    rows = rows_of(path, _SQL["nearest"], {"tool": tool, "gain": gain, "width": 40})
    return CallInContext(**rows[0]) if rows else None


def gain_histogram(path: str | Path) -> list[GainBin]:
    """Return how many scored calls, kept or not, gain how much: by tool, all its bins in rising order."""
    bounds = {"low": _LOW, "high": _HIGH, "width": _BIN}
    return [GainBin(**row) for row in rows_of(path, _SQL["gains"].format(_BINNED), bounds)]


def calls_with_text(
    connection: duckdb.DuckDBPyConnection, picked: list[dict[str, Any]], width: int = WIDTH
) -> tuple[CallInContext, ...]:
    """Return calls of the index, given as rows of `facts.gains` with `tool`, with the text around them, in this order.

    Only their shards' files are read.
    """
    if not picked:
        return ()
    slots = rows_in(connection, _SQL["preceding_tools"], {"slots": [row["slot"] for row in picked]})
    chains = {row["slot"] for row in slots if row["preceding_tools"]}
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    for table, chained in (("scored", False), ("chain_scored", True)):
        own = [row for row in picked if (row["slot"] in chains) is chained]
        for row in _scored_rows(connection, table, own) if own else ():
            found[row.pop("slot"), row.pop("doc"), row["position"]] = row
    texts = _texts(connection, found.values())
    keys = [(row["slot"], row["doc"], row["position"]) for row in picked]
    if not found.keys() >= set(keys):
        raise SnapshotError("the snapshot does not match its data: run toolformer reconcile")
    return tuple(_in_context(found[key], texts, width) for key in keys)


def _scored_rows(
    connection: duckdb.DuckDBPyConnection, table: str, picked: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    names = {"docs": "doc", "positions": "position", "slots": "slot"}
    given = {name: [row[column] for row in picked] for name, column in names.items()}
    relation = files_sql(connection, table, _SQL["files_of_slots"], {"slots": given["slots"], "table": table})
    tools, front, order = "[]::VARCHAR[]", "", PRECEDENCE
    if table == "chain_scored":
        tools, front, order = "[one.tool FOR one IN s.preceding_calls]", ", preceding_calls", CHAIN_PRECEDENCE
    sql = _SQL["picked"].format(front=front, relation=relation, tools=tools, order=order)
    return rows_in(connection, sql, given)


def calls_of_documents(path: str | Path, doc_ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return the current scored calls of documents: doc_id, tool, position, input, response, gain.

    Chains come first, each as its last call. Only the files of the documents' shards are read.
    """
    ids = sorted(set(doc_ids))
    found: list[dict[str, Any]] = []
    with open_snapshot(path) as connection:
        for table in ("chain_scored", "scored"):
            relation = files_sql(connection, table, _SQL["files_of_documents"], {"ids": ids, "table": table})
            sql = f"""SELECT doc_id, tool, "position", input, response, gain FROM {relation}
                WHERE doc_id IN (SELECT unnest($ids)) AND {MEASURED}"""
            found += rows_in(connection, sql, {"ids": ids}) if relation else []
    return found


def _in_context(call: dict[str, Any], texts: dict[str, str], width: int = WIDTH) -> CallInContext:
    text, at = texts.get(call["doc_id"], ""), call["position"]
    links = tuple(Link(**one) for one in call.get("preceding_calls", ()))
    around = {"before": text[max(0, at - width) : at], "after": text[at : at + width]}
    return CallInContext(**{**call, **around, "preceding_calls": links})


def _texts(connection: duckdb.DuckDBPyConnection, calls: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    doc_ids = sorted({call["doc_id"] for call in calls})
    relation = files_sql(connection, "documents", _SQL["files_of_texts"], {"ids": doc_ids})
    sql = f"SELECT doc_id, text FROM {relation} WHERE doc_id IN (SELECT unnest($ids))"
    return {row["doc_id"]: row["text"] for row in rows_in(connection, sql, {"ids": doc_ids})} if relation else {}
