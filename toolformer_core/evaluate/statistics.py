"""What the right and wrong items of a run say: accuracy with its uncertainty, and whether two arms differ.

Every figure is a share in [0, 1]. The bootstrap draws from its exact distribution instead of drawing items: the number
right among n items drawn with replacement is binomial, and (only first, only second, same) of n pairs is multinomial,
so a draw costs the same whatever n is. Where all items are alike there is nothing to draw: every sample is the same and
says nothing of the next item. There Wilson's interval stands in, with z of the level: the share of what was never seen
among n items is at most z^2 / (n + z^2). Nothing here knows tasks, models or where outcomes are kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from toolformer_core.errors import UsageError

__all__ = [
    "Accuracy",
    "CallSplit",
    "Comparison",
    "Outcome",
    "accuracy",
    "call_rates",
    "call_split",
    "compare",
    "mcnemar",
]

_DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one item in one arm."""

    item_id: str
    right: bool
    tools: tuple[str, ...] = ()  # the tools called, by key; empty: no call was made


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A share of right items and its interval; all three are nan if there are no items."""

    items: int
    right: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms on the same items."""

    items: int
    only_first: int  # items only the first arm got right (McNemar's b)
    only_second: int  # ... only the second (c)
    difference: float  # accuracy of the first less the second's
    low: float  # bootstrap interval of the difference
    high: float
    p: float  # McNemar's exact test, two-sided
    p_bootstrap: float  # twice the share of draws (and one more) on the far side of no difference, or on it; at most 1


@dataclass(frozen=True, slots=True)
class CallSplit:
    """Table 9's columns: all items, those with a call and those without."""

    all: Accuracy
    called: Accuracy
    uncalled: Accuracy
    rate: float  # share of items with a call; nan if there are no items


def accuracy(right: Iterable[bool], *, level: float = 0.95, draws: int = _DRAWS, seed: int = 0) -> Accuracy:
    """Return the share of right items with a percentile bootstrap interval; Wilson's if all or none are right.

    Args:
        right: one per item.
        level: of the interval.
        draws: bootstrap samples.
        seed: the same seed gives the same interval.

    Raises:
        UsageError: level or draws out of range.
    """
    _check(level, draws)
    outcomes = list(right)
    n, k = len(outcomes), sum(outcomes)
    if not n:
        return Accuracy(0, 0, math.nan, math.nan, math.nan)
    if k in (0, n):
        return Accuracy(n, k, k / n, 0.0 if k == 0 else 1 - _unseen(n, level), 1.0 if k else _unseen(n, level))
    sampled = np.random.default_rng(seed).binomial(n, k / n, size=draws) / n
    low, high = np.quantile(sampled, [(1 - level) / 2, (1 + level) / 2])
    return Accuracy(n, k, k / n, float(low), float(high))


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p of McNemar's exact test: could b and c be so far apart if either were as likely?

    p = min(1, 2 sum_{i <= min(b, c)} C(b + c, i) / 2^(b + c)); 1 if the arms never differ.
    """
    n, k = only_first + only_second, min(only_first, only_second)
    term, total = 1, 0
    for i in range(k + 1):
        total += term
        term = term * (n - i) // (i + 1)
    return min(1.0, float(2 * total / 2**n))


def compare(
    first: Mapping[str, bool],
    second: Mapping[str, bool],
    *,
    level: float = 0.95,
    draws: int = _DRAWS,
    seed: int = 0,
) -> Comparison:
    """Compare two arms on the same items, item by item.

    Args:
        first: whether each item was right, by its id.
        second: the same items.

    Raises:
        UsageError: the arms hold different items, or none; level or draws out of range.
    """
    _check(level, draws)
    if first.keys() != second.keys():
        alone = len(first.keys() ^ second.keys())
        raise UsageError(
            f"the arms must hold the same items, but {alone} stand in one alone; evaluate both on all items"
        )
    n = len(first)
    if not n:
        raise UsageError("there are no items to compare; evaluate both arms first")
    b = sum(first[i] and not second[i] for i in first)
    c = sum(second[i] and not first[i] for i in first)
    drawn = np.random.default_rng(seed).multinomial(n, [b / n, c / n, (n - b - c) / n], size=draws)  # (draws, 3)
    differences = (drawn[:, 0] - drawn[:, 1]) / n
    low, high = np.quantile(differences, [(1 - level) / 2, (1 + level) / 2])
    rest = _unseen(n, level)
    if b == c == 0:
        low, high = -rest, rest
    elif n in (b, c):  # what was never seen may be pairs that differ the other way
        low, high = (1 - 2 * rest, 1.0) if b else (-1.0, 2 * rest - 1)
    tail = (1 + min(int(np.sum(differences <= 0)), int(np.sum(differences >= 0)))) / (1 + draws)
    return Comparison(n, b, c, (b - c) / n, float(low), float(high), mcnemar(b, c), min(1.0, 2 * tail))


def _unseen(n: int, level: float) -> float:
    """Return the largest share, by Wilson's interval, of what did not occur among n items: z^2 / (n + z^2)."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    return z * z / (n + z * z)


def call_split(outcomes: Sequence[Outcome], *, level: float = 0.95, draws: int = _DRAWS, seed: int = 0) -> CallSplit:
    """Return accuracy on all items, on those with a call and on those without, and the share with a call."""

    def of(right: Iterable[bool]) -> Accuracy:
        return accuracy(right, level=level, draws=draws, seed=seed)

    called = [o for o in outcomes if o.tools]
    return CallSplit(
        of(o.right for o in outcomes),
        of(o.right for o in called),
        of(o.right for o in outcomes if not o.tools),
        len(called) / len(outcomes) if outcomes else math.nan,
    )


def call_rates(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return, per tool, the share of items on which it was called at least once; most called first."""
    counts = Counter(tool for o in outcomes for tool in set(o.tools))
    return {tool: n / len(outcomes) for tool, n in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))}


def _check(level: float, draws: int) -> None:
    if not 0 < level < 1:
        raise UsageError(f"level must lie between 0 and 1, got {level}")
    if draws < 1:
        raise UsageError(f"draws must be positive, got {draws}")
