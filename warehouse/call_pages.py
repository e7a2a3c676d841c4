"""Lists of calls, a page at a time, over the snapshot's index alone: by gain, or those that two filters disagree on.

A page begins behind the last call of the page before, by that call's place in the order and not by its number: so every
call is on one page, and a late page costs what the first one does. The index has the best scored call of each tool at a
position; `explain` has all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import duckdb

from warehouse.queries import Sample, calls_with_text, open_snapshot, rows_in
from warehouse.snapshot.relations import sql_text
from warehouse.snapshot.views import survivors_sql
from warehouse.what_if import BY_GAIN, CallFilter, allowed_sql, moved_sql

# kept; below the threshold; allowed by it, but a better call at the position or nearby is kept instead; any of these
Outcome = Literal["kept", "below_threshold", "outdone", ""]


class CallKey(NamedTuple):
    """A call's place in the order of a list: the largest gain first."""

    gain: float
    slot: int
    doc: int  # the index has hashes of ids
    position: int


@dataclass(frozen=True, slots=True)
class CallPage:
    """Some calls of a list."""

    calls: tuple[Sample, ...]
    total: int  # on all pages
    last: CallKey | None  # behind which the next page begins; None: this is the last page


@dataclass(frozen=True, slots=True)
class MovedCalls:
    """Pages of the calls on which two filters disagree."""

    comes: CallPage  # that survive only the second
    goes: CallPage  # ... only the first


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """The next call of a random order, and how many there are."""

    call: Sample | None  # None: there are no more
    total: int  # kept calls of the tool
    left: int  # of them, those that may still be drawn, this one included


def draw_call(
    path: str | Path,
    call_filter: CallFilter,
    tool: str,
    seed: int,
    without: Iterable[tuple[str, int]] = (),
    width: int = 60,
) -> DrawnCall:
    """Return the next of a tool's kept calls in an order that the seed shuffles.

    Args:
        path: the snapshot.
        call_filter: which calls are kept.
        tool: the tool's key.
        seed: of the order; the same seed gives the same order.
        without: document and position of calls that are passed over.
        width: characters of text before and after the call's position.

    Raises:
        SnapshotError: there is no snapshot, or data that it refers to is gone.
    """
    passed = sorted(set(without))
    indexed = f"SELECT g.*, tool FROM facts.gains AS g JOIN facts.slots USING (slot) WHERE {allowed_sql(call_filter)}"
    kept = survivors_sql(indexed, "true" if call_filter.keep_repeats else "false")
    sql = f"""
WITH kept AS MATERIALIZED (FROM ({kept}) WHERE tool = $tool),
passed AS (SELECT hash(unnest($ids)) AS doc, unnest($positions) AS "position"),
open AS MATERIALIZED (FROM kept ANTI JOIN passed USING (doc, "position"))
SELECT *, (SELECT count(*) FROM kept) AS total, (SELECT count(*) FROM open) AS "left"
FROM (SELECT 1) LEFT JOIN (FROM open ORDER BY hash(doc, "position", $seed), slot LIMIT 1) ON true"""
    ids, positions = [one for one, _ in passed], [position for _, position in passed]
    with open_snapshot(path) as connection:
        asked = {"tool": tool, "ids": ids, "positions": positions, "seed": seed}
        [row] = rows_in(connection, sql, asked)
        found = calls_with_text(connection, [row], width) if row["left"] else (None,)
    return DrawnCall(found[0], row["total"], row["left"])


def calls_by_gain(
    path: str | Path,
    call_filter: CallFilter,
    n: int,
    *,
    outcome: Outcome = "",
    tool: str = "",
    low: float = -math.inf,
    high: float = math.inf,
    after: CallKey | None = None,
    width: int = 60,
) -> CallPage:
    """Return a page of the best call of each tool at each position.

    Args:
        path: the snapshot.
        call_filter: which calls are kept; the tools that it does not name have none.
        n: how many calls to return at most.
        outcome: only calls of this outcome under the filter; "": all.
        tool: only calls of this tool; "": of all tools.
        low: only gains from here on, in nats.
        high: only gains below this.
        after: the last call of the page before; None: this is the first page.
        width: characters of text before and after a call's position.

    Raises:
        SnapshotError: there is no snapshot, or data that it refers to is gone.
    """
    indexed = "FROM facts.gains AS g JOIN facts.slots USING (slot)"
    allowed, repeats = allowed_sql(call_filter), "true" if call_filter.keep_repeats else "false"
    everything = f"""SELECT slot, tool, doc, "position", gain {indexed}"""
    kept = survivors_sql(f"SELECT g.*, tool {indexed} WHERE {allowed}", repeats)
    calls = {
        "": everything,
        "kept": kept,
        "below_threshold": f"{everything} WHERE NOT {allowed}",
        "outdone": f"""FROM ({everything} WHERE {allowed}) ANTI JOIN ({kept}) USING (slot, doc, "position")""",
    }[outcome]
    conditions = [f"tool = {sql_text(tool)}"] if tool else []
    conditions += [f"gain >= {low!r}::DOUBLE"] if math.isfinite(low) else []
    conditions += [f"gain < {high!r}::DOUBLE"] if math.isfinite(high) else []
    with open_snapshot(path) as connection:
        [page] = _pages(connection, calls, n, {" AND ".join(conditions) or "true": after}, width)
    return page


def moved_calls(
    path: str | Path,
    before: CallFilter,
    after: CallFilter,
    n: int,
    *,
    comes_after: CallKey | None = None,
    goes_after: CallKey | None = None,
    width: int = 60,
) -> MovedCalls:
    """Return a page of the calls that survive only the second of two filters, and one of those only the first keeps.

    Args:
        path: the snapshot.
        before: the first filter.
        after: the second filter, with the same tools.
        n: how many calls to return at most of each list.
        comes_after: where the last page of those that come ended; None: this is the first page.
        goes_after: ... of those that go.
        width: characters of text before and after a call's position.

    Raises:
        SnapshotError: there is no snapshot, or data that it refers to is gone.
    """
    with open_snapshot(path) as connection:
        lists = {"holds": comes_after, "NOT holds": goes_after}
        gains = after.gains.of_call, before.gains.of_call
        comes, goes = _pages(connection, moved_sql(before, after), n, lists, width, gains)
    return MovedCalls(comes, goes)


def _pages(
    connection: duckdb.DuckDBPyConnection,
    calls: str,
    n: int,
    lists: Mapping[str, CallKey | None],
    width: int,
    gains: Sequence[str] = ("gain",),
) -> list[CallPage]:
    """Return a page of each of several lists.

    Args:
        connection: to the snapshot.
        calls: SQL of a relation with the columns slot, tool, doc, "position", gain and those of the conditions.
        n: calls of a page.
        lists: for each list the condition by which it is chosen, and the last call of its page before.
        width: characters of text before and after a call's position.
        gains: for each list SQL of the gain of a scored row.
    """
    return [
        page_of(connection, rows, total, n, width, gain)
        for (rows, total), gain in zip(listed_rows(connection, calls, n, lists), gains, strict=True)
    ]


def listed_rows(
    connection: duckdb.DuckDBPyConnection, calls: str, n: int, lists: Mapping[str, CallKey | None]
) -> list[tuple[list[dict[str, Any]], int]]:
    """Return the first n + 1 rows of each of several lists behind a place, and how many there are in all.

    Args:
        connection: to the snapshot.
        calls: SQL of a relation with the columns slot, tool, doc, "position", gain and those of the conditions.
        n: calls of a page.
        lists: for each list the condition by which it is chosen, and the last call of its page before.
    """
    parts = [
        f"""(SELECT {number} AS list, slot, tool, doc, "position", gain, total
             FROM (SELECT count(*) AS total FROM listed WHERE {condition}) LEFT JOIN (
                 FROM listed WHERE {condition} AND {follows_sql(key)} {BY_GAIN} LIMIT {int(n) + 1}) ON true)"""
        for number, (condition, key) in enumerate(lists.items())
    ]
    order = BY_GAIN.replace("ORDER BY", "ORDER BY list,")
    sql = f"WITH listed AS MATERIALIZED ({calls}) {' UNION ALL '.join(parts)} {order}"
    rows = rows_in(connection, sql)
    own = [[row for row in rows if row["list"] == number] for number in range(len(lists))]
    return [([row for row in found if row["slot"] is not None], found[0]["total"]) for found in own]


def page_of(
    connection: duckdb.DuckDBPyConnection,
    rows: list[dict[str, Any]],
    total: int,
    n: int,
    width: int,
    gain: str = "gain",
) -> CallPage:
    """Return a page of n calls, of which the rows are the first ones or more; the arguments are those of `_pages`."""
    last = _key(rows[n - 1]) if len(rows) > n else None
    return CallPage(calls_with_text(connection, rows[:n], width, gain), total, last)


def _key(row: dict[str, Any]) -> CallKey:
    return CallKey(row["gain"], row["slot"], row["doc"], row["position"])


def follows_sql(key: CallKey | None) -> str:
    """Return SQL of whether a call comes behind another in the order `BY_GAIN`."""
    if key is None:
        return "true"
    behind = f'(slot, doc, "position") > ({int(key.slot)}, {int(key.doc)}::UBIGINT, {int(key.position)})'
    return f"(gain < {float(key.gain)!r}::DOUBLE OR (gain = {float(key.gain)!r}::DOUBLE AND {behind}))"
