"""Statistics of one evaluation, as shares in [0, 1]: accuracy with its interval, and whether two arms differ.

The bootstrap draws counts from their exact distribution (binomial; for pairs multinomial), so a sample costs the same
for every n. Where all items have the same outcome, Wilson's interval is used.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from toolformer_core.errors import UsageError

_LEVEL = 0.95  # of intervals
_DRAWS = 10_000  # of a bootstrap
_SEED = 0  # equal outcomes give equal intervals


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    item_id: str
    right: bool
    tools: tuple[str, ...] = ()  # keys of the tools called; empty if no call was made


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The share of right items and its interval; value, low and high are nan if there are no items."""

    items: int
    right: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    items: int
    only_first: int  # items that only the first arm got right (McNemar's b)
    only_second: int  # ... only the second (c)
    difference: float  # accuracy of the first minus accuracy of the second
    low: float  # bootstrap interval of the difference
    high: float
    p: float  # McNemar's exact test, two-sided
    p_bootstrap: float  # twice the smaller tail of the draws at or beyond zero, with one draw added; at most 1


@dataclass(frozen=True, slots=True)
class CallSplit:
    """The columns of the paper's Table 9: all items, items with a call, items without."""

    all: Accuracy
    called: Accuracy
    uncalled: Accuracy
    rate: float  # share of items with a call; nan if there are no items


def accuracy(right: Iterable[bool]) -> Accuracy:
    """Return the share of right items and a 95 % percentile bootstrap interval; Wilson's if all or none are right."""
    outcomes = list(right)
    n, k = len(outcomes), sum(outcomes)
    if not n:
        return Accuracy(0, 0, math.nan, math.nan, math.nan)
    if k in (0, n):
        return Accuracy(n, k, k / n, *wilson(k, n))
    shares = np.random.default_rng(_SEED).binomial(n, k / n, size=_DRAWS) / n
    low, high = np.quantile(shares, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Accuracy(n, k, k / n, float(low), float(high))


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p of McNemar's exact test, a binomial test of the differing items; 1 if there are none."""
    from scipy.stats import binomtest

    differing = only_first + only_second
    return float(binomtest(min(only_first, only_second), differing, 0.5).pvalue) if differing else 1.0


def compare(first: Mapping[str, bool], second: Mapping[str, bool]) -> Comparison:
    """Compare two arms: whether each got an item right, by item id, at least one; a UsageError if the items differ."""
    if first.keys() != second.keys():
        unpaired = len(first.keys() ^ second.keys())
        raise UsageError(
            f"both arms must hold the same items, but {unpaired} are in only one of them; evaluate both on all items"
        )
    n = len(first)
    b = sum(first[i] and not second[i] for i in first)
    c = sum(second[i] and not first[i] for i in first)
    counts = np.random.default_rng(_SEED).multinomial(n, [b / n, c / n, (n - b - c) / n], size=_DRAWS)  # (draws, 3)
    differences = (counts[:, 0] - counts[:, 1]) / n
    low, high = np.quantile(differences, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    unseen = wilson(0, n)[1]  # the largest plausible share of a kind of pair that was never seen
    if b == c == 0:
        low, high = -unseen, unseen
    elif n in (b, c):  # every pair differs in the same direction; those never seen may differ in the other
        low, high = (1 - 2 * unseen, 1.0) if b else (-1.0, 2 * unseen - 1)
    tail = (1 + min(int(np.sum(differences <= 0)), int(np.sum(differences >= 0)))) / (1 + _DRAWS)
    return Comparison(n, b, c, (b - c) / n, float(low), float(high), mcnemar(b, c), min(1.0, 2 * tail))


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share; with no successes it is 0 to z^2 / (n + z^2)."""
    from scipy.stats import binomtest

    interval = binomtest(successes, n).proportion_ci(_LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


def cohens_kappa(pairs: Iterable[tuple[str, str]]) -> float:
    """Return how far two people agree beyond chance: (p_o - p_e) / (1 - p_e).

    p_e is the share on which they would by chance, if each kept to the shares of verdicts that he or she gave. nan if
    there are no items, or if both gave all of them one verdict.
    """
    given = list(pairs)
    n, first, second = len(given), *(Counter(pair[i] for pair in given) for i in (0, 1))
    agreed, by_chance = sum(one == other for one, other in given), sum(first[one] * second[one] for one in first)
    return (n * agreed - by_chance) / (n**2 - by_chance) if by_chance < n**2 else math.nan


def call_split(outcomes: Sequence[ItemOutcome]) -> CallSplit:
    called = [o for o in outcomes if o.tools]
    return CallSplit(
        accuracy(o.right for o in outcomes),
        accuracy(o.right for o in called),
        accuracy(o.right for o in outcomes if not o.tools),
        len(called) / len(outcomes) if outcomes else math.nan,
    )


def call_rates(outcomes: Sequence[ItemOutcome]) -> dict[str, float]:
    """Return, per tool, the share of items on which it was called at least once; most called first."""
    counts = Counter(tool for o in outcomes for tool in set(o.tools))
    return {tool: n / len(outcomes) for tool, n in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))}
