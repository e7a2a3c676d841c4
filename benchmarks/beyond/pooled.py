"""Figures of several seeds, taken together: sums, shares with Wilson's interval, means with their spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scipy.stats import binomtest

__all__ = ["Share", "accuracy_of", "answers_of", "each", "needless_of", "of_part", "right_share", "summed"]


@dataclass(frozen=True, slots=True)
class Share:
    """Part of a whole, with Wilson's 95 % interval."""

    part: float
    whole: float
    low: float
    high: float

    @classmethod
    def of(cls, part: int, whole: int, independent: int | None = None) -> Share | None:
        """Return the share, None of nothing.

        Args:
            part: counted.
            whole: counted.
            independent: observations that do not depend on each other, if fewer: calls of one document resemble each
                other, so a document counts once. The interval is that of as many.
        """
        if not whole:
            return None
        trials = min(whole, independent or whole)
        interval = binomtest(round(trials * part / whole), trials).proportion_ci(method="wilson")
        return cls(part, whole, float(interval.low), float(interval.high))

    @property
    def value(self) -> float:
        return self.part / self.whole

    def percent(self) -> str:
        """Return `3 (1 to 6)`."""
        return f"{100 * self.value:.0f} ({100 * self.low:.0f} to {100 * self.high:.0f})"

    def said(self, digits: int = 3) -> str:
        """Return `0.026 (0.010 to 0.061)`."""
        return f"{self.value:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def of_part(figures: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return the figures of a part, by seed, for those seeds that have it."""
    return {seed: one[part] for seed, one in sorted(figures.items()) if part in one}


def summed(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of every number in some rows of the same columns."""
    out: dict[str, Any] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                out[name] = out.get(name, 0) + value
    return out


def each(seeds: Mapping[str, Any], *path: str) -> Iterator[Any]:
    """Yield what stands at a path in every seed's figures."""
    for one in seeds.values():
        for name in path:
            one = one[name]
        yield one


def answers_of(asked: Mapping[str, Any], arm: str, k: int) -> list[dict[str, Any]]:
    """Return the rows of an arm's answers, one for each tool and kind of frames (see `trained.ask`)."""
    return [row for row in asked["answers"] if (row["arm"], row["k"]) == (arm, k)]


def accuracy_of(asked: Mapping[str, Any], arm: str, k: int, new: bool) -> float:
    """Return the percentage of items of one kind of frames that an arm answers right."""
    row = summed(row for row in answers_of(asked, arm, k) if row["new"] == new)
    return float(100 * row["right"] / row["items"])


def right_share(asked: Iterable[Mapping[str, Any]], arm: str, k: int, new: bool, tool: str) -> Share | None:
    """Return the share of a tool's items of one kind of frames that an arm answers right, all models together."""
    rows = [row for one in asked for row in answers_of(one, arm, k) if (row["tool"], row["new"]) == (tool, new)]
    total = summed({"right": row["right"], "items": row["items"]} for row in rows)
    return Share.of(total.get("right", 0), total.get("items", 0))


def needless_of(asked: Mapping[str, Any], arm: str, k: int) -> float | None:
    """Return the percentage of items without need of a tool on which an arm calls one; None if none were asked."""
    row = asked["needless"].get(f"{arm} {k}")
    return 100 * row["called"] / row["items"] if row and row["items"] else None
