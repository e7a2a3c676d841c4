"""Queries on calls: the best ones with the text around them, and how much the calls of each tool gain."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from warehouse.errors import SnapshotError
from warehouse.queries.rows import data_root, open_snapshot, rows_in, rows_of
from warehouse.snapshot.index import BIN_NATS
from warehouse.snapshot.relations import parquet_sql
from warehouse.snapshot.views import CHAIN_PRECEDENCE, MEASURED, PRECEDENCE, RULES

__all__ = [
    "GainBin",
    "Link",
    "Sample",
    "calls_of_documents",
    "calls_with_text",
    "gain_histogram",
    "nearest_call",
    "samples",
    "tool_names",
]

_PRECEDING_TOOLS = "SELECT slot, preceding_tools FROM facts.slots WHERE slot IN (SELECT unnest($slots))"

_FILES_OF_DOCUMENTS = """SELECT DISTINCT f.path
FROM facts.document_locations AS l JOIN facts.document_files AS d USING (file)
JOIN facts.slots AS s USING (shard) JOIN facts.files AS f USING (commit_id)
WHERE l.doc_id IN (SELECT unnest($ids)) AND f.table_name = $table ORDER BY ALL"""

_TOOL_NAMES = "SELECT parameters::JSON->'tool_names' AS names FROM facts.runs ORDER BY started, run_id"

# The index has hashes of documents, which decide among equal gains.
_BEST = """
SELECT slot, tool, doc, "position", gain FROM facts.gains JOIN facts.slots USING (slot)
WHERE best AND ($tool IS NULL OR tool = $tool) ORDER BY gain DESC, tool, doc, "position" LIMIT $n"""

_KEPT = """
SELECT doc_id, call.tool AS tool, call.position AS "position", call.input AS input, call.response AS response,
       call.gain AS gain
FROM (SELECT doc_id, unnest(calls) AS call FROM examples) WHERE $tool IS NULL OR call.tool = $tool
ORDER BY gain DESC, doc_id, "position", tool LIMIT $n"""

_NEAREST = f"""
SELECT c.doc_id, c.tool, c."position", c.input, c.response, c.gain,
       substring(d.text, greatest(c."position" - $width, 0) + 1, least($width, c."position")) AS before,
       substring(d.text, c."position" + 1, $width) AS after
FROM scored AS c JOIN documents AS d USING (doc_id) WHERE c.tool = $tool AND {MEASURED}
ORDER BY abs(c.gain - $gain), c.doc_id, c."position", c.input LIMIT 1"""

# Bins include their lower bound; the first and the last are open.
_GAINS = """
SELECT tool, least(greatest(floor(gain / $width), $low / $width - 1), $high / $width)::INT AS bin,
       sum(calls)::BIGINT AS calls
FROM ({}) GROUP BY ALL ORDER BY tool, bin"""
_BINNED = f"SELECT tool, bin * {BIN_NATS} AS gain, calls FROM facts.gain_bins JOIN facts.slots USING (slot)"
_EACH = f"SELECT tool, gain, 1 AS calls FROM (SELECT * REPLACE ({{gain}} AS gain) FROM scored) WHERE {MEASURED}"


class Link(NamedTuple):
    """A call of a chain."""

    tool: str
    input: str
    response: str


@dataclass(frozen=True, slots=True)
class Sample:
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
        """The bin's name for people."""
        if self.low is None:
            return f"below {self.high:+.1f}"
        return f"{self.low:+.1f} and more" if self.high is None else f"{self.low:+.1f} to {self.high:+.1f}"


def samples(
    path: str | Path,
    n: int = 10,
    tool: str | None = None,
    width: int = 60,
    kept: bool = False,
) -> list[Sample]:
    """Return the calls with the largest gains.

    Args:
        n: how many calls at most.
        tool: only calls of this tool; None: of all tools.
        width: characters of text before and after the call's position.
        kept: only calls in C*; False: all calls that a lower threshold could keep.
    """
    values = {"n": n, "tool": tool}
    with open_snapshot(path) as connection:
        if not kept:
            found = calls_with_text(connection, rows_in(connection, _BEST, values), width)
            return sorted(found, key=lambda call: (-call.gain, call.doc_id, call.position, call.tool))
        calls = rows_in(connection, _KEPT, values)
        texts = _texts(connection, sorted({row["doc_id"] for row in calls}))
        return [_sample(row, texts, width) for row in calls]


def tool_names(path: str | Path) -> dict[str, str]:
    """Return the names in calls of the tools of all builds, by key."""
    names: dict[str, str] = {}
    for row in rows_of(path, _TOOL_NAMES):
        names |= json.loads(row["names"] or "null") or {}
    return names


def nearest_call(path: str | Path, tool: str, gain: float, width: int = 40) -> Sample | None:
    """Return the tool's scored call, kept or not, whose gain (nats) is nearest; None if the tool has no calls."""
    rows = rows_of(path, _NEAREST, {"tool": tool, "gain": gain, "width": width})
    return Sample(**rows[0]) if rows else None


def gain_histogram(
    path: str | Path, low: float = -2.0, high: float = 4.0, width: float = 0.5, gain: str = "gain"
) -> list[GainBin]:
    """Return how many scored calls of every tool, kept or not, gain how much: by tool, all its bins in rising order.

    Args:
        low: all calls below this gain (nats) are in one bin; a multiple of `width`, like `high`.
        high: all calls from this gain on are in one bin.
        width: nats of a bin between them.
        gain: SQL of the gain of a scored row; any but the stored one has every call read.
    """
    with open_snapshot(path) as connection:
        binned = gain == "gain" and width % BIN_NATS == 0
        sql = _GAINS.format(_BINNED if binned else _EACH.format(gain=gain))
        rows = rows_in(connection, sql, {"low": low, "high": high, "width": width})
    counts = {(row["tool"], row["bin"]): row["calls"] for row in rows}
    first, last = round(low / width) - 1, round(high / width)
    return [
        GainBin(
            tool,
            None if number == first else number * width,
            None if number == last else (number + 1) * width,
            counts.get((tool, number), 0),
        )
        for tool in sorted({tool for tool, _ in counts})
        for number in range(first, last + 1)
    ]


def calls_with_text(
    connection: duckdb.DuckDBPyConnection, picked: list[dict[str, Any]], width: int, gain: str = "gain"
) -> tuple[Sample, ...]:
    """Return calls of the index with the text around them, in the same order; only their shards' files are read.

    Args:
        picked: the calls, with `slot`, `tool`, `doc` and `position` as in `facts.gains`.
        width: characters of text before and after a call's position.
        gain: SQL of the gain of a scored row, by which the best call at a position is found.

    Raises:
        SnapshotError: the data is gone, or is not that of the snapshot.
    """
    if not picked:
        return ()
    slots = rows_in(connection, _PRECEDING_TOOLS, {"slots": _slots(picked)})
    chains = {row["slot"] for row in slots if row["preceding_tools"]}
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    for table, chained in (("scored", False), ("chain_scored", True)):
        own = [row for row in picked if (row["slot"] in chains) is chained]
        for row in _scored_rows(connection, table, own, gain) if own else ():
            found[row.pop("slot"), row.pop("doc"), row["position"]] = row
    texts = _texts(connection, sorted({row["doc_id"] for row in found.values()}))
    samples = []
    for row in picked:
        call = found.get((row["slot"], row["doc"], row["position"]))
        if call is None:
            raise SnapshotError("the snapshot does not match its data: run toolformer reconcile")
        samples.append(_sample(call, texts, width))
    return tuple(samples)


def _slots(picked: Iterable[Mapping[str, Any]]) -> list[int]:
    return sorted({row["slot"] for row in picked})


def _scored_rows(
    connection: duckdb.DuckDBPyConnection, table: str, picked: list[dict[str, Any]], gain: str
) -> list[dict[str, Any]]:
    """Return the scored rows of calls of the index, with `slot` and `doc`; see `calls_with_text`."""
    root, relation, chained = data_root(connection), table, table == "chain_scored"
    slots = _slots(picked)
    if root is not None:
        files = rows_in(
            connection,
            """SELECT DISTINCT f.path FROM facts.slots AS s JOIN facts.files AS f USING (commit_id)
            WHERE s.slot IN (SELECT unnest($slots)) AND f.table_name = $table ORDER BY ALL""",
            {"slots": slots, "table": table},
        )
        relation = parquet_sql(f"{root}/{row['path']}" for row in files)
    tools, front, order = "[]::VARCHAR[]", "", PRECEDENCE
    if chained:
        tools, front, order = "[one.tool FOR one IN s.preceding_calls]", ", preceding_calls", CHAIN_PRECEDENCE
    return rows_in(
        connection,
        f"""
WITH picked AS (
    SELECT doc, "position", slot, tool, preceding_tools
    FROM (SELECT unnest($docs) AS doc, unnest($positions) AS "position", unnest($slots) AS slot)
    JOIN facts.slots USING (slot)
)
SELECT doc_id, tool, "position", input, response, gain{front}, doc, slot
FROM (
    SELECT s.*, p.doc, p.slot FROM (FROM (SELECT * REPLACE ({gain} AS gain) FROM {relation}) WHERE {RULES}) AS s
    JOIN picked AS p
        ON p.doc = hash(s.doc_id) AND p."position" = s."position" AND p.tool = s.tool AND p.preceding_tools = {tools}
)
QUALIFY row_number() OVER (PARTITION BY slot, doc_id, "position" ORDER BY {order}) = 1""",
        {
            name: [row[one] for row in picked]
            for name, one in (("docs", "doc"), ("positions", "position"), ("slots", "slot"))
        },
    )


def calls_of_documents(path: str | Path, doc_ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return the current scored calls of documents: doc_id, tool, position, input, response, gain.

    Chains come first, each as its last call. Only the files of the documents' shards are read.
    """
    ids = sorted(set(doc_ids))
    found: list[dict[str, Any]] = []
    with open_snapshot(path) as connection:
        root = data_root(connection)
        for table in ("chain_scored", "scored"):
            relation = table
            if root is not None:
                files = rows_in(connection, _FILES_OF_DOCUMENTS, {"ids": ids, "table": table})
                if not files:
                    continue
                relation = parquet_sql(f"{root}/{row['path']}" for row in files)
            sql = f"""SELECT doc_id, tool, "position", input, response, gain FROM {relation}
                WHERE doc_id IN (SELECT unnest($ids)) AND {MEASURED}"""
            found += rows_in(connection, sql, {"ids": ids})
    return found


def _sample(call: dict[str, Any], texts: dict[str, str], width: int) -> Sample:
    text, at = texts.get(call["doc_id"], ""), call["position"]
    links = tuple(Link(**one) for one in call.get("preceding_calls", ()))
    around = {"before": text[max(0, at - width) : at], "after": text[at : at + width]}
    return Sample(**{**call, **around, "preceding_calls": links})


def _texts(connection: duckdb.DuckDBPyConnection, doc_ids: list[str]) -> dict[str, str]:
    """Return the texts of documents by id; only the files that contain them are read."""
    root, relation = data_root(connection), "documents"
    if root is not None:
        files = rows_in(
            connection,
            """SELECT DISTINCT d.path FROM facts.document_locations AS l JOIN facts.document_files AS d USING (file)
            WHERE l.doc_id IN (SELECT unnest($ids))""",
            {"ids": doc_ids},
        )
        if not files:
            return {}
        relation = parquet_sql(f"{root}/{row['path']}" for row in files)
    sql = f"SELECT doc_id, text FROM {relation} WHERE doc_id IN (SELECT unnest($ids))"
    return {row["doc_id"]: row["text"] for row in rows_in(connection, sql, {"ids": doc_ids})}
