"""Figures of several seeds, taken together: sums, shares with Wilson's interval, means with their spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scipy.stats import binomtest

__all__ = ["Share", "each", "of_part", "summed"]


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
