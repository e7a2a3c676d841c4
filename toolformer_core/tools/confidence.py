"""How probable it is that a span a reader has found answers the question: a logistic regression on five measures.

It knows no text, only what was measured of the span. The weights are fitted, by the least logistic loss, to whether the best
span held an accepted answer for each second question of NQ-open's development set (`benchmarks/qa_precision.py --fit`).
At 0.5 an answer is as often right as wrong on texts like those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["BIAS", "WEIGHTS", "Evidence", "confidence"]

_MOST_MARGIN = 1.5
_MOST_RANK = 4
WEIGHTS = (1.16, 0.96, 2.3, 1.3, -0.4)  # one a measure, in the order of `Evidence`
BIAS = -4.9


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for a span."""

    fit: float  # how well it is of the kind the question word asks for, 0 to 1.5
    margin: float  # by how much its score exceeds that of the best other answer
    covered: float  # share of the question's words in its sentence and its passage's title, 0 to 1
    named: float  # share of the title's words in the question, 0 to 1: the passage is about its subject
    rank: int  # of its passage among those found, from 0

    @property
    def measures(self) -> tuple[float, ...]:
        """The five figures that are weighed; a margin above 1.5 and a rank behind 4 tell no more."""
        return (self.fit, min(self.margin, _MOST_MARGIN), self.covered, self.named, float(min(self.rank, _MOST_RANK)))


def confidence(evidence: Evidence, weights: Sequence[float] = WEIGHTS, bias: float = BIAS) -> float:
    """Return the probability that the span answers the question, in (0, 1)."""
    return 1 / (1 + math.exp(-bias - sum(w * m for w, m in zip(weights, evidence.measures, strict=True))))
