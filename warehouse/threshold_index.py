"""Answers to other thresholds of one snapshot in little time: what a slider asks again and again, from memory.

What decides whether a call is kept is small: its gain, its tool, its place, the rank and the probability of its
position, and which calls like it are nearby. These are read once, in order of documents and positions, and stay in
memory: about 25 bytes for each row of `facts.gains`. A filter is then a few passes over arrays, and only the calls
that are shown are read from files. The *kind* of a call is its tool and, in a chain, the tools of the calls in front.

The answers are those of `what_if.yields` and `call_pages.moved_calls`.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from warehouse.call_pages import CallKey, CallPage, MovedCalls, follows_sql, page_of
from warehouse.errors import SnapshotError, error_line
from warehouse.queries import Yield, open_snapshot, rows_in
from warehouse.reweighting import STORED
from warehouse.snapshot.views import better_nearby
from warehouse.what_if import BY_GAIN, CallFilter

_PART = 250_000  # calls that are read and judged at once
_LAST_RANK = 255  # this one or a later one, or an unknown one
_DOC_HASHES = 2**64

Mask = NDArray[np.bool_]  # one value for each call of a part


@dataclass(frozen=True, slots=True)
class _Limits:
    """A filter; arrays are indexed by the number of the kind of call."""

    tau_f: NDArray[np.float64]  # inf: nothing
    top_k: NDArray[np.int32] | None
    log_tau_s: NDArray[np.float64] | None  # NaN: none
    keep_repeats: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """The calls of some documents by document, position and precedence; an array has n values."""

    row: NDArray[np.int32]  # of `facts.gains`
    gain: NDArray[np.float64]
    log_p: NDArray[np.float64]  # of the position; -inf where it is unknown
    kind: NDArray[np.uint16]  # the number of the kind of call
    rank: NDArray[np.uint8]  # of the position in its document
    opens_document: Mask  # whether a call is the first one of its document
    opens_position: Mask  # ... of its position
    worse: NDArray[np.int32]  # calls that are not kept beside others like them nearby, which gain more ...
    better: NDArray[np.int32]  # ... which are these, one for one

    def allowed(self, limits: _Limits) -> Mask:
        """Return whether a filter allows a call."""
        allowed: Mask = self.gain >= limits.tau_f[self.kind]
        if limits.top_k is not None:
            allowed &= self.rank < limits.top_k[self.kind]
        if limits.log_tau_s is not None:
            floor = limits.log_tau_s[self.kind]
            allowed &= (self.log_p > floor) | np.isnan(floor)
        return allowed

    def kept(self, limits: _Limits) -> Mask:
        """Return whether a call survives a filter: the best allowed one of its position, and of those like it."""
        found = np.flatnonzero(self.allowed(limits))
        position = np.cumsum(self.opens_position, dtype=np.int32)[found]
        kept = np.zeros(len(self.gain), np.bool_)
        kept[found[np.diff(position, prepend=0) != 0]] = True
        if not limits.keep_repeats:
            kept[self.worse[kept[self.better]]] = False
        return kept

    def counts(self, kept: Mask, links: NDArray[np.int16], tools: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each tool's kept calls, and the documents with one.

        Args:
            kept: what `kept` returned.
            links: [kinds, calls of a chain] the number of the tool of each call; -1: there are fewer.
            tools: how many tools there are.
        """
        kind = self.kind[kept]
        document = np.cumsum(self.opens_document, dtype=np.int32)[kept] - 1
        has = np.zeros((int(self.opens_document.sum()), tools), np.bool_)
        calls = np.zeros(tools, np.int64)
        for of_kind in links.T:
            tool = of_kind[kind]
            there = tool >= 0
            has[document[there], tool[there]] = True
            calls += np.bincount(tool[there], minlength=tools)
        return calls, has.sum(axis=0)


class ThresholdIndex:
    """What thresholds of one snapshot are asked about.

    Args:
        path: the snapshot.
        wanted: asked from time to time while it is read; if it is false, reading ends.

    Raises:
        SnapshotError: there is no snapshot, or it is not wanted any more.
    """

    def __init__(self, path: str | Path, wanted: Callable[[], bool] = lambda: True) -> None:
        self._path = path
        self._parts: list[_Part] = []
        # The present filter, the one that is tried now, and that of somebody else: a byte for each call.
        self._known: deque[tuple[CallFilter, list[Mask]]] = deque(maxlen=3)
        with open_snapshot(path) as connection:
            kinds = rows_in(connection, "SELECT DISTINCT behind, tool FROM facts.slots ORDER BY ALL")
            self._kinds = [(*row["behind"], row["tool"]) for row in kinds]  # tools in order, the call's own last
            self._tools = sorted({tool for kind in self._kinds for tool in kind})
            longest = max(map(len, self._kinds), default=1)
            number = {tool: i for i, tool in enumerate(self._tools)}
            numbers = [[*map(number.__getitem__, kind), *[-1] * (longest - len(kind))] for kind in self._kinds]
            self._links = np.array(numbers, np.int16).reshape(len(numbers), longest)
            [counted] = rows_in(connection, "SELECT count(*) AS n FROM facts.gains")
            parts = counted["n"] // _PART + 1
            edges = [_DOC_HASHES * i // parts for i in range(parts + 1)]  # hashes lie evenly
            for low, high in itertools.pairwise(edges):
                if not wanted():
                    raise SnapshotError("the snapshot was replaced while it was read")
                try:
                    self._parts.append(self._read(connection, low, high))
                except duckdb.Error as exc:
                    raise SnapshotError(f"the index cannot be read: {error_line(exc)}") from exc

    def covers(self, call_filter: CallFilter) -> bool:
        """Return whether the answers to a filter are here: its gains are the stored ones, and no k is very large."""
        return call_filter.gains == STORED and all(k <= _LAST_RANK for k in call_filter.top_k.values())

    def yields(self, call_filter: CallFilter) -> list[Yield]:
        """Return examples and calls per tool under a filter that is covered; see `what_if.yields`."""
        calls, documents = np.zeros((2, len(self._tools)), np.int64)
        for part, kept in zip(self._parts, self._kept(call_filter), strict=True):
            of_part = part.counts(kept, self._links, len(self._tools))
            calls += of_part[0]
            documents += of_part[1]
        counted = dict(zip(self._tools, zip(documents.tolist(), calls.tolist(), strict=True), strict=True))
        return [Yield(tool, float(tau), *counted.get(tool, (0, 0))) for tool, tau in sorted(call_filter.tau_f.items())]

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
        both = list(zip(self._kept(before), self._kept(after), strict=True))
        sides = [holds & ~held for held, holds in both], [held & ~holds for held, holds in both]
        with open_snapshot(self._path) as connection:
            pages = [
                self._page(connection, masks, n, key, width)
                for masks, key in zip(sides, (comes_after, goes_after), strict=True)
            ]
        return MovedCalls(*pages)

    def _page(
        self, connection: duckdb.DuckDBPyConnection, masks: list[Mask], n: int, key: CallKey | None, width: int
    ) -> CallPage:
        """Return a page of the calls of the masks."""
        gains, rows = [], []
        for part, mask in zip(self._parts, masks, strict=True):
            gains.append(part.gain[mask])
            rows.append(part.row[mask])
        gain, row = np.concatenate(gains), np.concatenate(rows)
        total = len(gain)
        wanted = n + 1
        if key is not None:
            behind = gain <= key.gain
            gain, row = gain[behind], row[behind]
            wanted += int((gain == key.gain).sum())  # some of them come before the page
        if len(gain) > wanted:
            least = np.partition(gain, len(gain) - wanted)[len(gain) - wanted]
            row = row[gain >= least]  # whatever gains alike: the order of these is not known here
        shown = pa.table({"row": row.astype(np.int64)})
        connection.register("_shown", shown)
        found = rows_in(
            connection,
            f"""SELECT slot, tool, doc, "position", gain FROM facts.gains AS g JOIN facts.slots USING (slot)
            WHERE g.rowid IN (SELECT "row" FROM _shown) AND {follows_sql(key)} {BY_GAIN} LIMIT {n + 1}""",
        )
        return page_of(connection, found, total, n, width)

    def _kept(self, call_filter: CallFilter) -> list[Mask]:
        """Return what a filter keeps of each part; the answers to the last few filters are there."""
        found = next((kept for known, kept in tuple(self._known) if known == call_filter), None)
        if found is None:
            limits = self._limits(call_filter)
            found = [part.kept(limits) for part in self._parts]
            self._known.append((call_filter, found))
        return found

    def _limits(self, call_filter: CallFilter) -> _Limits:
        tau_f = np.array([call_filter.tau_f.get(kind[-1], math.inf) for kind in self._kinds], np.float64)
        top_k, log_tau_s = None, None
        if call_filter.top_k:  # a chain stands where its first call was drawn
            top_k = np.array([call_filter.top_k.get(kind[0], _LAST_RANK + 1) for kind in self._kinds], np.int32)
        if any(p > 0 for p in call_filter.tau_s.values()):
            floors = (call_filter.tau_s.get(kind[0], 0.0) for kind in self._kinds)
            log_tau_s = np.array([math.log(p) if p > 0 else math.nan for p in floors], np.float64)
        return _Limits(tau_f, top_k, log_tau_s, call_filter.keep_repeats)

    def _read(self, connection: duckdb.DuckDBPyConnection, low: int, high: int) -> _Part:
        """Read the calls of the documents whose hash is at least `low` and less than `high`."""
        read = connection.execute(
            f"""SELECT g.rowid::INTEGER AS row, gain, coalesce(log_p, '-inf'::DOUBLE) AS log_p, kind, doc, "position",
                least(coalesce("rank", {_LAST_RANK}), {_LAST_RANK})::UTINYINT AS rank, repeated, input, window_end
            FROM facts.gains AS g JOIN (
                SELECT slot, (dense_rank() OVER (ORDER BY behind, tool) - 1)::USMALLINT AS kind FROM facts.slots
            ) USING (slot) WHERE doc BETWEEN {low} AND {high - 1} ORDER BY doc, "position", precedence"""
        ).fetchnumpy()
        own = {name: np.ma.getdata(values) for name, values in read.items()}
        opens_document = _changes(own["doc"])
        opens_position = opens_document | _changes(own["position"])
        columns = {name: own[name] for name in ("row", "gain", "log_p", "kind", "rank")}
        worse, better = _repeats(connection, own)
        return _Part(
            **columns, opens_document=opens_document, opens_position=opens_position, worse=worse, better=better
        )


def _changes(values: NDArray[Any]) -> Mask:
    """Return whether a value is another one than that before it."""
    out = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=out[1:])
    return out


def _repeats(connection: duckdb.DuckDBPyConnection, own: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int32], ...]:
    """Return the pairs of calls of which one is not kept where the other one is: the one, and the other."""
    names = ("doc", "kind", "input", "position", "window_end", "gain")
    repeated = np.flatnonzero(own["repeated"])
    columns = {"call": repeated.astype(np.int32), **{name: own[name][repeated] for name in names}}
    connection.register("_again", pa.table(columns))
    same = better_nearby(("doc", "kind", "input"))
    pairs = connection.execute(f"SELECT w.call AS worse, o.call AS better FROM _again AS w JOIN _again AS o ON {same}")
    found = pairs.fetchnumpy()
    return tuple(np.ma.getdata(found[name]).astype(np.int32) for name in ("worse", "better"))
