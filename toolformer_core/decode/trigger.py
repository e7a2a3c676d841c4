"""Fits theta_tool: for each tool, the smallest p(" [") at which it is called, from openings in documents of C*.

An *opening* is a place in x* at which " [" is among the k most likely tokens. It counts for the tool t whose name the
model then writes: as wanted, W_t, if x* has a call of t there, as needless, N_t, if x* has none. Left out are openings
at a call of another tool, those less than five tokens before a call of t (the loss that chose the place looks at the
five tokens after it, Toolformer §4.1), and those at which the model names no tool, as decoding takes them back.

    needless_t(theta) = |{n in N_t : n >= theta}| / |N_t|      lost_t(theta) = |{w in W_t : w < theta}| / |W_t|
    theta_t = min( min{theta : needless_t(theta) <= a},  max{theta : lost_t(theta) <= b} )      a = 0.05, b = 0.02

Neither share depends on how many openings are wanted, which differs between C* and the texts to come. Theta is 0 or
halfway between two neighbouring probabilities: no rounding error moves an opening across it. The least of few wanted
openings says little about the least of those to come (with seven, the next one lies below all with probability 1/8):
with |W_t| < 20, theta_t is also at most a tenth of it, and with |W_t| < 5 there is none. Both numbers and the tenth are
judgements: p(" [") of wanted and of needless openings mostly lie more than ten times apart. This module knows no model
and no text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = ["CurvePoint", "FitConfig", "Opening", "ToolFit", "fit_tool", "fit_triggers"]

_CURVE = 60  # points of a curve at most
_CAUTION = 0.1  # with few wanted openings: the largest threshold, as a share of the least of them


@dataclass(frozen=True, slots=True)
class Opening:
    """A place in x* at which " [" is among the k most likely tokens."""

    named: str  # key of the tool that the model names there; "" if it names none
    called: str  # key of the tool that x* calls there; "" if it calls none
    probability: float  # p(" [")
    early: bool = False  # x* calls the named tool less than five tokens later


@dataclass(frozen=True, slots=True)
class FitConfig:
    """What a threshold may cost.

    Args:
        needless: a, the largest share of needless openings that remain.
        lost: b, the largest share of wanted openings that are lost. It takes precedence over `needless`.
        min_calls: wanted openings that a tool needs for a threshold, at least 1.
        few_calls: with fewer wanted openings, the threshold is at most a tenth of the least of them.
    """

    needless: float = 0.05
    lost: float = 0.02
    min_calls: int = 5
    few_calls: int = 20


class CurvePoint(NamedTuple):
    """What a threshold leaves."""

    threshold: float
    needless: int  # openings that remain
    kept: int  # calls that are still made


@dataclass(frozen=True, slots=True)
class ToolFit:
    """The threshold of one tool, and what it was fitted on."""

    tool: str
    threshold: float | None  # None: too few wanted openings
    bound: str  # what limits it: needless | lost | few_calls | too_few_calls
    wanted: int  # |W_t|
    needless: int  # |N_t|
    kept: int  # wanted openings at the threshold
    needless_left: int  # needless openings at the threshold
    early: int  # left out: less than five tokens before a call of the tool
    other_tool: int  # left out: at a call of another tool
    curve: tuple[CurvePoint, ...]  # by threshold, ascending; thinned to some 60 points


def fit_triggers(openings: Iterable[Opening], tools: Sequence[str], config: FitConfig) -> list[ToolFit]:
    """Fit the thresholds of some tools (their keys), in that order."""
    by_tool: dict[str, list[Opening]] = {tool: [] for tool in tools}
    for opening in openings:
        if opening.named in by_tool:
            by_tool[opening.named].append(opening)
    fits = []
    for tool, own in by_tool.items():
        wanted = [o.probability for o in own if o.called == tool]
        uncalled = [o for o in own if not o.called]
        needless = [o.probability for o in uncalled if not o.early]
        early, other_tool = len(uncalled) - len(needless), len(own) - len(wanted) - len(uncalled)
        fits.append(fit_tool(tool, wanted, needless, config, early=early, other_tool=other_tool))
    return fits


def fit_tool(
    tool: str,
    wanted: Sequence[float],
    needless: Sequence[float],
    config: FitConfig,
    *,
    early: int = 0,
    other_tool: int = 0,
) -> ToolFit:
    """Fit the threshold of one tool from p(" [") of its openings; `early` and `other_tool` were left out."""
    w, n = np.sort(np.asarray(wanted, dtype=np.float64)), np.sort(np.asarray(needless, dtype=np.float64))
    distinct = np.unique(np.concatenate([w, n]))
    thresholds = np.concatenate([[0.0], (distinct[:-1] + distinct[1:]) / 2])
    kept = len(w) - np.searchsorted(w, thresholds)  # (m,)
    left = len(n) - np.searchsorted(n, thresholds)  # (m,)
    curve = [CurvePoint(*point) for point in zip(thresholds.tolist(), left.tolist(), kept.tolist(), strict=True)]
    if len(w) < config.min_calls:
        bound, at = "too_few_calls", 0
    else:
        few_lost = int(np.flatnonzero((len(w) - kept) / len(w) <= config.lost)[-1])  # always true of the first, 0
        few_left = np.flatnonzero(left / max(1, len(n)) <= config.needless)
        enough = len(few_left) > 0 and int(few_left[0]) <= few_lost
        bound, at = ("needless", int(few_left[0])) if enough else ("lost", few_lost)
        cautious = int(np.searchsorted(thresholds, _CAUTION * w[0], side="right")) - 1  # the first is 0
        if len(w) < config.few_calls and cautious < at:
            bound, at = "few_calls", cautious
    threshold, needless_left, calls_kept = curve[at]
    counts = {"wanted": len(w), "needless": len(n), "kept": calls_kept, "needless_left": needless_left}
    shown = {at, *np.linspace(0, len(curve) - 1, min(len(curve), _CURVE)).astype(int).tolist()}
    points = tuple(curve[i] for i in sorted(shown))
    known = None if bound == "too_few_calls" else threshold
    return ToolFit(tool, known, bound, **counts, early=early, other_tool=other_tool, curve=points)
