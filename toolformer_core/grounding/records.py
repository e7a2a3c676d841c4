"""What grounding takes and gives, and GEAR's scores (§3, eq. 1 to 3) as plain arithmetic on stored numbers.

    f_i = gamma S(Q, d_i) + (1 - gamma) P(a, a_i)

    S  the cosine of the embeddings of query and description, in [-1, 1]
    P  sum_j (C_j(a) + lambda) C_j(a_i) / ((|a| + lambda |S|) |a_i|) log(1 / P_j);  0 for an answer without patterns

C_j counts pattern j in the preliminary answer a, or in a tool's response a_i; |a| is the sum of its counts, |S| the
number of patterns. Since every fraction is a product of two distributions, 0 <= P <= log(1 / min P_j). As counts and
cosines are stored, every gamma and lambda can be tried without asking anything again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

from toolformer_core.errors import UsageError

GEAR_GAMMA, GEAR_LAMBDA = 0.75, 1.0  # the authors' code

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Weights:
    """How scores are made and when none is good enough."""

    gamma: float = GEAR_GAMMA  # weight of the semantic score, in [0, 1]; 1: the cosine alone (ART_cs)
    smoothing: float = GEAR_LAMBDA  # lambda, added to every count of the preliminary answer; at least 0
    threshold: float | None = None  # smallest total score of a tool that may be chosen; None: the best one always is

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise UsageError(f"gamma must lie in [0, 1], got {self.gamma}")
        if not 0 <= self.smoothing < float("inf"):
            raise UsageError(f"lambda must be at least 0, got {self.smoothing}")


def pattern_similarity(
    answer: Sequence[int], response: Sequence[int], weights: Sequence[float], smoothing: float = GEAR_LAMBDA
) -> float:
    """Return P(a, a_i), in [0, max_j log(1 / P_j)], of each pattern's C_j(a), C_j(a_i) and weight log(1 / P_j)."""
    response_length = sum(response)
    answer_length = sum(answer) + smoothing * len(weights)
    if not response_length or not answer_length:
        return 0.0
    total = sum((a + smoothing) * r * w for a, r, w in zip(answer, response, weights, strict=True))
    return total / (answer_length * response_length)


def best_of(scores: Sequence[tuple[Key, float]], threshold: float | None = None) -> Key | None:
    """Return the key of the highest score, the first one if several are equal; None if it is below the threshold."""
    if not scores:
        return None
    key, score = max(scores, key=lambda pair: pair[1])
    return None if threshold is not None and score < threshold else key


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    context: str = ""  # what a tool may know besides, e.g. the date for the calendar (ISO)


@dataclass(frozen=True, slots=True)
class Cost:
    """What grounding took: calls of the small and of the large LM, tokens through them, calls of tools, seconds."""

    small_calls: int = 0
    large_calls: int = 0
    tokens: int = 0
    tool_calls: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class ToolScore:
    """One tool's part of a grounding.

    Failures: `no_call` (the small LM wrote no call of this tool), or the tool's own reason; the response is then empty.
    """

    tool: str  # key
    semantic: float  # S: cosine of the query's and the description's embedding
    call: str  # the input of the call that the small LM wrote; "" if it wrote none, or a mock response was used
    response: str  # a_i, one line; "" after a failure
    failure: str
    counts: tuple[int, ...]  # C_j of the response, in the order of the pattern set
    mock: bool = False  # the response is a stored example: neither the small LM nor the tool was called


@dataclass(frozen=True, slots=True)
class Grounding:
    """A query with its preliminary answer and the scores of all tools, in the order of the library."""

    query: Query
    answer: str  # a: the small LM's zero-shot answer
    counts: tuple[int, ...]  # C_j of that answer
    scores: tuple[ToolScore, ...]
    pattern_weights: tuple[float, ...]  # log(1 / P_j)

    def pattern(self, score: ToolScore, smoothing: float) -> float:
        return pattern_similarity(self.counts, score.counts, self.pattern_weights, smoothing)

    def totals(self, weights: Weights) -> list[tuple[str, float]]:
        """Return each tool's total score f_i, in the order of the library."""
        pattern = [(score, self.pattern(score, weights.smoothing)) for score in self.scores]
        return [(score.tool, weights.gamma * score.semantic + (1 - weights.gamma) * p) for score, p in pattern]

    def choice(self, weights: Weights) -> str | None:
        """Return the key of the best tool; None if no tool reaches the threshold."""
        return best_of(self.totals(weights), weights.threshold)

    def ranking(self, weights: Weights) -> list[tuple[ToolScore, float]]:
        """Return the scores with their totals, best first; equal ones keep the order of the library."""
        by_tool = {score.tool: score for score in self.scores}
        return [(by_tool[tool], total) for tool, total in sorted(self.totals(weights), key=lambda pair: -pair[1])]
