"""The calls of a snapshot's index in memory: what a filter keeps of them, and lists of them, a page at a time.

About 50 bytes for each row of `facts.gains`, the best call of a tool at a position, are read once; a filter is then a
few passes over arrays. A page begins after a call's place in the order and not its number, so every call is on one
page.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from toolformer_core.annotate.call_filter import CallFilter, Mask
from warehouse.queries import CallInContext, Yield
from warehouse.queries.calls import WIDTH, calls_with_text
from warehouse.queries.rows import open_snapshot, rows_in, table_in
from warehouse.snapshot.outcomes import columns_of

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
    calls: tuple[CallInContext, ...]
    total: int  # on all pages
    last: CallKey | None  # after which the next page begins; None: this is the last page


@dataclass(frozen=True, slots=True)
class MovedCalls:
    comes: CallPage  # that only the second keeps
    goes: CallPage  # ... only the first


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """The next call of a random order, and how many there are."""

    call: CallInContext | None  # None: there are no more
    total: int  # kept calls of the tool
    left: int  # of them, those that may still be drawn, this one included


class IndexedCalls:
    """The best call of each tool at each position, of those that gain at least `least` nats."""

    def __init__(self, path: str | Path, least: float = -math.inf) -> None:
        self._path = path
        self._known: deque[tuple[CallFilter, Mask]] = deque(maxlen=3)  # the last filters, a byte for each call
        sql = f"""SELECT slot, doc, "position", gain, log_p, "rank", alike, window_end
            FROM facts.gains WHERE gain >= '{least!r}'::DOUBLE"""
        with open_snapshot(path) as connection:
            slots = rows_in(connection, "FROM facts.slots")
            tools = {row["slot"]: (*row["preceding_tools"], row["tool"]) for row in slots}
            read = table_in(connection, sql)
        self._slot = read["slot"].to_numpy()
        self._tool = {slot: of_slot[-1] for slot, of_slot in tools.items()}
        self._columns = columns_of(read, tools)

    def yields(self, call_filter: CallFilter) -> list[Yield]:
        """Return examples and calls per tool, each tool at its own threshold, sorted by tool."""
        counts = self._columns.count(self._kept(call_filter))
        return [Yield(tool, float(tau), *counts.get(tool, (0, 0))) for tool, tau in sorted(call_filter.tau_f.items())]

    def moved(
        self,
        before: CallFilter,
        after: CallFilter,
        n: int,
        *,
        comes_after: CallKey | None = None,
        goes_after: CallKey | None = None,
    ) -> MovedCalls:
        """Return a page of the calls that only the second of two filters keeps, and one of those only the first keeps.

        `comes_after` and `goes_after` say where the page before ended; None: this is the first.
        """
        was, becomes = self._kept(before), self._kept(after)
        return MovedCalls(self._page(becomes & ~was, n, comes_after), self._page(was & ~becomes, n, goes_after))

    def by_gain(
        self,
        call_filter: CallFilter,
        n: int,
        *,
        outcome: Outcome = "",
        tool: str = "",
        low: float = -math.inf,
        high: float = math.inf,
        after: CallKey | None = None,
    ) -> CallPage:
        """Return the page behind a call (None: the first) of the calls of an outcome ("": any) under the filter."""
        gain, allowed, kept = self._columns.gain, self._columns.allowed(call_filter), self._kept(call_filter)
        chosen = {"": np.ones_like(kept), "kept": kept, "below_threshold": ~allowed, "outdone": allowed & ~kept}
        shown = chosen[outcome] & (gain >= low) & ((gain < high) | (high == math.inf))
        return self._page(shown & self._of_tool(tool) if tool else shown, n, after)

    def draw(
        self, call_filter: CallFilter, tool: str, seed: int, without: Iterable[tuple[str, int]] = (), width: int = WIDTH
    ) -> DrawnCall:
        """Return the next of a tool's kept calls in a seeded order, with `width` characters of text on both sides.

        Calls of the documents and positions in `without` are passed over.
        """
        passed = dict.fromkeys(without)
        kept = np.flatnonzero(self._kept(call_filter) & self._of_tool(tool))
        order = np.random.default_rng(seed).permutation(kept)
        with open_snapshot(self._path) as connection:
            hashed = rows_in(connection, "SELECT hash(unnest($ids)) AS doc", {"ids": [one for one, _ in passed]})
            places = {(row["doc"], position) for row, (_, position) in zip(hashed, passed, strict=True)}
            left = [key for key in map(self._key, order) if (key.doc, key.position) not in places]
            found = calls_with_text(connection, self._rows(left[:1]), width)
        return DrawnCall(found[0] if found else None, len(kept), len(left))

    def _kept(self, call_filter: CallFilter) -> Mask:
        found = next((kept for known, kept in tuple(self._known) if known == call_filter), None)
        if found is None:
            found = self._columns.kept(call_filter)
            self._known.append((call_filter, found))
        return found

    def _of_tool(self, tool: str) -> Mask:
        of_kind = np.array([tools[-1] == tool for tools in self._columns.kinds], np.bool_)
        of_tool: Mask = of_kind[self._columns.kind]
        return of_tool

    def _page(self, mask: Mask, n: int, after: CallKey | None) -> CallPage:
        gain, rows, wanted = self._columns.gain, np.flatnonzero(mask), n + 1
        total = len(rows)
        if after is not None:
            rows = rows[gain[rows] <= after.gain]
            wanted += int((gain[rows] == after.gain).sum())  # some of them come before the page
        if len(rows) > wanted:  # of calls that gain alike, the order says which come first
            rows = rows[gain[rows] >= np.partition(gain[rows], -wanted)[-wanted]]
        keys = sorted(map(self._key, rows), key=_order)
        first = 0 if after is None else bisect_right(keys, _order(after), key=_order)
        listed = keys[first : first + n + 1]
        with open_snapshot(self._path) as connection:
            calls = calls_with_text(connection, self._rows(listed[:n]))
        return CallPage(calls, total, listed[n - 1] if len(listed) > n > 0 else None)

    def _key(self, row: np.intp) -> CallKey:
        c = self._columns
        return CallKey(float(c.gain[row]), int(self._slot[row]), int(c.doc[row]), int(c.position[row]))

    def _rows(self, keys: Iterable[CallKey]) -> list[dict[str, Any]]:
        return [{**key._asdict(), "tool": self._tool[key.slot]} for key in keys]


def _order(key: CallKey) -> tuple[float, int, int, int]:
    return -key.gain, key.slot, key.doc, key.position
