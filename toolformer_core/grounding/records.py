"""What grounding takes and gives, as plain values: queries, each tool's scores, and the tool that was chosen.

The records hold everything that the score is made of (cosine, counts of patterns), so other weights can be tried on
them; see `scores`.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolformer_core.grounding.scores import Weights, best_of, pattern_similarity, total_score


@dataclass(frozen=True, slots=True)
class Query:
    """A query Q.

    Args:
        text: the query.
        context: what a tool may know besides, e.g. the date for the calendar (ISO).
    """

    text: str
    context: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """What grounding took: calls of the small and of the large LM, tokens through them, calls of tools, seconds."""

    small_calls: int = 0
    large_calls: int = 0
    tokens: int = 0
    tool_calls: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.small_calls + other.small_calls,
            self.large_calls + other.large_calls,
            self.tokens + other.tokens,
            self.tool_calls + other.tool_calls,
            self.seconds + other.seconds,
        )


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
        """Return P of one of the scores."""
        return pattern_similarity(self.counts, score.counts, self.pattern_weights, smoothing)

    def totals(self, weights: Weights) -> list[tuple[str, float]]:
        """Return each tool's total score f_i, in the order of the library."""
        return [
            (score.tool, total_score(score.semantic, self.pattern(score, weights.smoothing), weights.gamma))
            for score in self.scores
        ]

    def choice(self, weights: Weights) -> str | None:
        """Return the key of the best tool; None if no tool reaches the threshold."""
        return best_of(self.totals(weights), weights.threshold)

    def ranking(self, weights: Weights) -> list[tuple[ToolScore, float]]:
        """Return the scores with their totals, best first; equal ones keep the order of the library."""
        by_tool = {score.tool: score for score in self.scores}
        return [(by_tool[tool], total) for tool, total in sorted(self.totals(weights), key=lambda pair: -pair[1])]
