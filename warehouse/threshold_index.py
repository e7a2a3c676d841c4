"""Answers to other thresholds of one snapshot in little time: what a slider asks again and again, from sorted gains.

Most calls have no rival at their position or nearby. Whether such a call is kept depends on its tool's threshold
alone, so its tool's gains, sorted, say how many calls and documents a threshold keeps, without reading any call. Calls
with rivals are judged by the query that judges all calls (`what_if`), which is short where they are few. What is sorted
stays in memory: eight bytes for each call of `facts.gains` and for each document of a tool.

The answers are those of `what_if.yields` and `call_pages.moved_calls`, for filters that differ from the first one in
their thresholds alone; for other filters there is no answer here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from warehouse.call_pages import CallKey, CallPage, MovedCalls, follows_sql, listed_rows, page_of
from warehouse.queries import Yield, open_snapshot, rows_in
from warehouse.reweighting import Gains
from warehouse.snapshot.relations import sql_text
from warehouse.what_if import BY_GAIN, CallFilter, allowed_sql, kept_sql, moved_sql

__all__ = ["ThresholdIndex"]

_LOWEST = -1e300  # nats: a threshold that every call reaches
_FREE = "NOT contested AND NOT repeated"


class ThresholdIndex:
    """The sorted gains of one snapshot.

    Args:
        path: the snapshot.
        first: a filter; which positions take part, which rule on repeated calls holds and where gains are from.

    Raises:
        SnapshotError: there is no snapshot.
    """

    def __init__(self, path: str | Path, first: CallFilter) -> None:
        self._path = path
        self._first = first
        self._rivals = Gains(f"(FROM {first.gains.relation} WHERE NOT ({_FREE}))", first.gains.of_call)
        self._calls: dict[str, NDArray[np.float64]] = {}  # tool -> gains of its calls without a rival, ascending
        self._documents: dict[str, NDArray[np.float64]] = {}  # tool -> the best of these in each document, ascending
        everything = allowed_sql(replace(first, tau_f=dict.fromkeys(first.tau_f, _LOWEST)))
        free = f"FROM {first.gains.relation} AS g JOIN facts.slots USING (slot) WHERE {_FREE} AND {everything}"
        with open_snapshot(path) as connection:
            for tool in first.tau_f:
                own = f"{free} AND tool = {sql_text(tool)}"
                self._calls[tool] = _sorted(connection, f"SELECT gain {own}")
                self._documents[tool] = _sorted(connection, f"SELECT max(gain) AS gain {own} GROUP BY doc")
            # Of documents with a rivalled call of a tool, the best of the tool's others: they may be examples already.
            self._beside = connection.sql(
                f"""SELECT tool, doc, max(gain) AS best {free} AND (tool, doc) IN (
                    SELECT tool, doc FROM {self._rivals.relation} JOIN facts.slots USING (slot)) GROUP BY ALL"""
            ).to_arrow_table()

    def covers(self, call_filter: CallFilter) -> bool:
        """Return whether a filter differs from the first one in its thresholds alone."""
        same_tools = call_filter.tau_f.keys() == self._first.tau_f.keys()
        return same_tools and replace(call_filter, tau_f=self._first.tau_f) == self._first

    def yields(self, call_filter: CallFilter) -> list[Yield]:
        """Return examples and calls per tool under a filter that is covered; see `what_if.yields`.

        Raises:
            SnapshotError: there is no snapshot.
        """
        thresholds = pa.table(
            {"tool": list(call_filter.tau_f), "tau_f": [float(t) for t in call_filter.tau_f.values()]}
        )
        sql = f"""
SELECT k.tool, count(*) AS calls, count(DISTINCT k.doc) FILTER (best IS NULL OR best < tau_f) AS examples
FROM ({kept_sql(replace(call_filter, gains=self._rivals))}) AS k JOIN _thresholds USING (tool)
LEFT JOIN _beside AS b ON b.tool = k.tool AND b.doc = k.doc GROUP BY ALL"""
        with open_snapshot(self._path) as connection:
            connection.register("_beside", self._beside)
            connection.register("_thresholds", thresholds)
            rivalled = {row["tool"]: row for row in rows_in(connection, sql)}
        none = {"calls": 0, "examples": 0}
        return [
            Yield(
                tool,
                float(tau),
                _from(self._documents[tool], tau) + rivalled.get(tool, none)["examples"],
                _from(self._calls[tool], tau) + rivalled.get(tool, none)["calls"],
            )
            for tool, tau in sorted(call_filter.tau_f.items())
        ]

    def moved(
        self,
        before: CallFilter,
        after: CallFilter,
        n: int,
        *,
        comes_after: CallKey | None = None,
        goes_after: CallKey | None = None,
        width: int = 60,
    ) -> MovedCalls:
        """Return the calls on which two filters that are covered disagree; see `call_pages.moved_calls`.

        Raises:
            SnapshotError: there is no snapshot, or data that it refers to is gone.
        """
        lists = {"holds": comes_after, "NOT holds": goes_after}
        sides = ((after.tau_f, before.tau_f), (before.tau_f, after.tau_f))
        rivals = moved_sql(replace(before, gains=self._rivals), replace(after, gains=self._rivals))
        with open_snapshot(self._path) as connection:
            found = listed_rows(connection, rivals, n, lists)
            pages = [
                self._page(connection, *rivalled, *taus, n, key, width)
                for rivalled, taus, key in zip(found, sides, lists.values(), strict=True)
            ]
        return MovedCalls(*pages)

    def _page(
        self,
        connection: duckdb.DuckDBPyConnection,
        rivalled: list[dict[str, Any]],
        total: int,
        kept_from: Mapping[str, float],
        lost_below: Mapping[str, float],
        n: int,
        key: CallKey | None,
        width: int,
    ) -> CallPage:
        """Return a page of the calls that gain from one threshold on and less than the other."""
        spans = {tool: (low, lost_below[tool]) for tool, low in kept_from.items() if low < lost_below[tool]}
        total += sum(
            _from(self._calls[tool], low) - _from(self._calls[tool], high) for tool, (low, high) in spans.items()
        )
        rows = [*rivalled]
        if spans:
            # The condition without tools comes first: it excludes most calls before their tool is looked up.
            any_tool = " OR ".join(sorted({_within(*span) for span in spans.values()}))
            cases = " ".join(f"WHEN {sql_text(tool)} THEN {_within(*span)}" for tool, span in spans.items())
            rows += rows_in(
                connection,
                f"""SELECT slot, tool, doc, "position", gain FROM {self._first.gains.relation} AS g
                JOIN facts.slots USING (slot)
                WHERE ({any_tool}) AND {_FREE} AND CASE tool {cases} ELSE false END
                AND {allowed_sql(replace(self._first, tau_f=kept_from))} AND {follows_sql(key)}
                {BY_GAIN} LIMIT {n + 1}""",
            )
        rows.sort(key=lambda row: (-row["gain"], row["slot"], row["doc"], row["position"]))
        return page_of(connection, rows, total, n, width, self._first.gains.of_call)


def _within(low: float, high: float) -> str:
    return f"(g.gain >= {float(low)!r}::DOUBLE AND g.gain < {float(high)!r}::DOUBLE)"


def _from(gains: NDArray[np.float64], threshold: float) -> int:
    """Return how many gains reach a threshold."""
    return len(gains) - int(np.searchsorted(gains, threshold, side="left"))


def _sorted(connection: duckdb.DuckDBPyConnection, sql: str) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.asarray(connection.execute(sql).fetchnumpy()["gain"], dtype=np.float64)
    found.sort()
    return found
