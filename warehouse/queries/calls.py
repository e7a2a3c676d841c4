"""Queries on calls: the best ones with the text around them, and how much the calls of each tool gain."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from warehouse.queries.rows import rows_of
from warehouse.snapshot.views import MEASURED

__all__ = ["GainBin", "Sample", "gain_histogram", "nearest_call", "samples", "tool_names"]

_TOOL_NAMES = "SELECT parameters::JSON->'tool_names' AS names FROM facts.runs ORDER BY started, run_id"

_SAMPLES = """
WITH picked AS (SELECT doc_id, tool, "position", input, response, gain FROM {calls}
                WHERE $tool IS NULL OR tool = $tool
                ORDER BY gain DESC, doc_id, "position", tool LIMIT $n)
SELECT c.doc_id, c.tool, c."position", c.input, c.response, c.gain,
       substring(d.text, greatest(c."position" - $width, 0) + 1, least($width, c."position")) AS before,
       substring(d.text, c."position" + 1, $width) AS after
FROM picked AS c JOIN documents AS d USING (doc_id) ORDER BY c.gain DESC, c.doc_id, c."position", c.tool"""

_NEAREST = f"""
SELECT c.doc_id, c.tool, c."position", c.input, c.response, c.gain,
       substring(d.text, greatest(c."position" - $width, 0) + 1, least($width, c."position")) AS before,
       substring(d.text, c."position" + 1, $width) AS after
FROM scored AS c JOIN documents AS d USING (doc_id) WHERE c.tool = $tool AND {MEASURED}
ORDER BY abs(c.gain - $gain), c.doc_id, c."position", c.input LIMIT 1"""

# Bins include their lower bound; the first and the last are open.
_GAINS = f"""
SELECT tool, least(greatest(floor(gain / $width), $low / $width - 1), $high / $width)::INT AS bin, count(*) AS calls
FROM scored WHERE {MEASURED} GROUP BY ALL ORDER BY tool, bin"""


@dataclass(frozen=True, slots=True)
class Sample:
    """A call with the text around its position."""

    doc_id: str
    tool: str
    position: int
    input: str
    response: str
    gain: float
    before: str
    after: str


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
        path: the snapshot.
        n: how many calls at most.
        tool: only calls of this tool; None: of all tools.
        width: characters of text before and after the call's position.
        kept: only calls in C*; False: all calls that a lower threshold could keep.

    Raises:
        SnapshotError: there is no snapshot.
    """
    sql = _SAMPLES.format(calls="kept_calls" if kept else "best_calls")
    return [Sample(**row) for row in rows_of(path, sql, {"n": n, "tool": tool, "width": width})]


def tool_names(path: str | Path) -> dict[str, str]:
    """Return the names in calls of the tools of all builds, by key; builds of earlier versions recorded none.

    Raises:
        SnapshotError: there is no snapshot.
    """
    names: dict[str, str] = {}
    for row in rows_of(path, _TOOL_NAMES):
        names |= json.loads(row["names"] or "null") or {}
    return names


def nearest_call(path: str | Path, tool: str, gain: float, width: int = 40) -> Sample | None:
    """Return the tool's scored call, kept or not, whose gain (nats) is nearest; None if the tool has no calls.

    Raises:
        SnapshotError: there is no snapshot.
    """
    rows = rows_of(path, _NEAREST, {"tool": tool, "gain": gain, "width": width})
    return Sample(**rows[0]) if rows else None


def gain_histogram(path: str | Path, low: float = -2.0, high: float = 4.0, width: float = 0.5) -> list[GainBin]:
    """Return how many scored calls of every tool, kept or not, gain how much: by tool, all its bins in rising order.

    Args:
        path: the snapshot.
        low: all calls below this gain (nats) are in one bin; a multiple of `width`, like `high`.
        high: all calls from this gain on are in one bin.
        width: nats of a bin between them.

    Raises:
        SnapshotError: there is no snapshot.
    """
    rows = rows_of(path, _GAINS, {"low": low, "high": high, "width": width})
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
