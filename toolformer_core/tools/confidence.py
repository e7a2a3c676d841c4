"""How probable it is that a span which a reader has found answers the question: a logistic regression on six measures.

It knows no text, only what was measured of the span. The weights are those of least logistic loss for whether the best
span holds an accepted answer, on every second question of NQ-open's development set
(`python benchmarks/qa_precision.py --fit`). Most of those questions
had a passage: where few have, answers are right less often than this says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["BIAS", "WEIGHTS", "Evidence", "confidence"]

WEIGHTS = (1.35, 0.86, 1.49, 1.77, 1.48, -0.45)  # one a measure, in the order of `Evidence`
BIAS = -5.6
_MOST_MARGIN = 1.5  # beyond it a margin tells no more
_MOST_RANK = 4


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for a span."""

    fit: float  # how well it is of the kind that the question word asks for, 0 to 2
    margin: float  # by how much its score exceeds that of the best other answer; infinite if there is none
    covered: float  # share of the question's words in its sentence and its passage's title, 0 to 1
    named: float  # that it is about the question's subject: share of the title's words in the question, or of the
    #               question's in the sentence alone, whichever is larger, 0 to 1
    direct: float  # share of its sentence's words that are the question's or its own, 0 to 1
    rank: int  # of its passage among those found, from 0

    @property
    def measures(self) -> tuple[float, ...]:
        """The six figures that are weighed."""
        margin, rank = min(self.margin, _MOST_MARGIN), min(self.rank, _MOST_RANK)
        return (self.fit, margin, self.covered, self.named, self.direct, float(rank))


def confidence(evidence: Evidence, weights: Sequence[float] = WEIGHTS, bias: float = BIAS) -> float:
    """Return the probability that the span answers the question, in (0, 1)."""
    return 1 / (1 + math.exp(-bias - sum(w * m for w, m in zip(weights, evidence.measures, strict=True))))
