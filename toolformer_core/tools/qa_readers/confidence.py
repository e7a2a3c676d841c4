"""The probability that a span found by a reader answers the question: a logistic regression on six measures.

This module knows no text, only measures of the span. The weights minimise the logistic loss of whether the best span
holds an accepted answer, on every second question of NQ-open's development set (`python
benchmarks/tools/qa_precision.py --fit` at commit 17d35ba). Most of those questions had a relevant passage; if few do,
answers are right less often than predicted here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WEIGHTS = (1.35, 0.86, 1.49, 1.77, 1.48, -0.45)  # one per measure, in the order of `Evidence`
BIAS = -5.6
_MAX_MARGIN = 1.5  # a larger margin carries no more information
_MAX_RANK = 4


@dataclass(frozen=True, slots=True)
class Evidence:
    """The measures of a span."""

    fit: float  # how well it is of the kind that the question word asks for, 0 to 2
    margin: float  # by how much its score exceeds that of the best other answer; infinite if there is none
    covered: float  # share of the question's words in its sentence and its passage's title, 0 to 1
    named: float  # whether it is about the question's subject: the larger of the share of the title's words in the
    #               question and the share of the question's words in the sentence, 0 to 1
    direct: float  # share of its sentence's words that are in the question or in the span, 0 to 1
    rank: int  # of its passage among the retrieved ones, from 0

    @property
    def measures(self) -> tuple[float, ...]:
        """The six measures, in the order of the weights."""
        margin, rank = min(self.margin, _MAX_MARGIN), min(self.rank, _MAX_RANK)
        return (self.fit, margin, self.covered, self.named, self.direct, float(rank))


def confidence(evidence: Evidence, weights: Sequence[float] = WEIGHTS, bias: float = BIAS) -> float:
    """Return the probability that the span answers the question, in (0, 1)."""
    return 1 / (1 + math.exp(-bias - sum(w * m for w, m in zip(weights, evidence.measures, strict=True))))
