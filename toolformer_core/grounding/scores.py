"""GEAR's scores (§3, eq. 1 to 3) as plain arithmetic on numbers that are stored: no text, model or tool is needed.

    f_i = gamma S(Q, d_i) + (1 - gamma) P(a, a_i)

    S  the cosine of the embeddings of query and description, in [-1, 1]
    P  sum_j (C_j(a) + lambda) C_j(a_i) / ((|a| + lambda |S|) |a_i|) log(1 / P_j);  0 for an answer without patterns

C_j counts pattern j in the preliminary answer a, or in a tool's response a_i; |a| is the sum of its counts, |S| the
number of patterns. Since every fraction is a product of two distributions, 0 <= P <= log(1 / min P_j). As counts and
cosines are stored, every gamma and lambda can be tried without asking anything again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from toolformer_core.errors import UsageError

GEAR_GAMMA, GEAR_LAMBDA = 0.75, 1.0  # the authors' code

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Weights:
    """How scores are made and when none is good enough.

    Args:
        gamma: weight of the semantic score, in [0, 1]; 1: the cosine alone (ART_cs).
        smoothing: lambda, added to every count of the preliminary answer; at least 0.
        threshold: smallest total score of a tool that may be chosen; None: the best tool always is.
    """

    gamma: float = GEAR_GAMMA
    smoothing: float = GEAR_LAMBDA
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise UsageError(f"gamma must lie in [0, 1], got {self.gamma}")
        if not 0 <= self.smoothing < float("inf"):
            raise UsageError(f"lambda must be at least 0, got {self.smoothing}")


def pattern_similarity(
    answer: Sequence[int], response: Sequence[int], weights: Sequence[float], smoothing: float = GEAR_LAMBDA
) -> float:
    """Return P(a, a_i), in [0, max_j log(1 / P_j)]; 0 if the response, or an answer without smoothing, has no pattern.

    Of each pattern: C_j(a), C_j(a_i) and the weight log(1 / P_j).
    """
    response_length = sum(response)
    answer_length = sum(answer) + smoothing * len(weights)
    if not response_length or not answer_length:
        return 0.0
    total = sum((a + smoothing) * r * w for a, r, w in zip(answer, response, weights, strict=True))
    return total / (answer_length * response_length)


def total_score(semantic: float, pattern: float, gamma: float = GEAR_GAMMA) -> float:
    """Return f_i."""
    return gamma * semantic + (1 - gamma) * pattern


def best_of(scores: Sequence[tuple[Key, float]], threshold: float | None = None) -> Key | None:
    """Return the key of the highest score, the first one if several are equal; None if it is below the threshold."""
    if not scores:
        return None
    key, score = max(scores, key=lambda pair: pair[1])
    return None if threshold is not None and score < threshold else key
