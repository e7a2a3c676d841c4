"""Figures of groundings: accuracy with its interval, confusion, the best weights, library sizes, and rejection.

All are computed from stored scores: no model and no tool is asked again. A choice is right if the query's benchmark
declares that tool right; where it declares none right, the choice of no tool is.

The best gamma and lambda are found on one half of the queries, the development half, and measured on the other. The
halves depend on the queries' ids alone. `ScoreTable` holds the scores of many queries as arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolformer_core.errors import UsageError
from toolformer_core.evaluate.queries import right_by_paper
from toolformer_core.evaluate.statistics import Accuracy, accuracy
from toolformer_core.grounding.records import Grounding
from toolformer_core.grounding.scores import Weights
from toolformer_core.records import digest_of

NO_TOOL = "no tool"  # in tables, where no tool was chosen, or none is right
GAMMAS = tuple(round(i / 20, 2) for i in range(21))
LAMBDAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)


class ScoreTable:
    """The scores of N queries and T tools under any weights.

    Args:
        groundings: of one library and one pattern set, N of them.

    Raises:
        UsageError: the groundings are of different libraries or pattern sets.
    """

    def __init__(self, groundings: Sequence[Grounding]) -> None:
        self.tools = tuple(score.tool for score in groundings[0].scores) if groundings else ()
        weights = groundings[0].pattern_weights if groundings else ()
        for g in groundings:
            if tuple(score.tool for score in g.scores) != self.tools or g.pattern_weights != weights:
                raise UsageError("the groundings are of different libraries or pattern sets and cannot be compared")
        self._weights = np.asarray(weights, dtype=np.float64)  # (S,)
        n, t, s = len(groundings), len(self.tools), len(weights)
        self.semantic = np.asarray([[x.semantic for x in g.scores] for g in groundings]).reshape(n, t)
        self._answer = np.asarray([g.counts for g in groundings], dtype=np.float64).reshape(n, s)
        responses = np.asarray([[x.counts for x in g.scores] for g in groundings], dtype=np.float64).reshape(n, t, s)
        lengths = responses.sum(axis=2, keepdims=True)
        self._shares = np.divide(responses, lengths, out=np.zeros_like(responses), where=lengths > 0)  # (N, T, S)

    def pattern(self, smoothing: float) -> NDArray[np.float64]:
        """Return P of every query and tool; see `scores.pattern_similarity`.  (N, T)"""
        smoothed = self._answer + smoothing  # (N, S)
        lengths = smoothed.sum(axis=1, keepdims=True)
        shares = np.divide(smoothed, lengths, out=np.zeros_like(smoothed), where=lengths > 0)
        pattern: NDArray[np.float64] = np.einsum("ns,nts,s->nt", shares, self._shares, self._weights)
        return pattern

    def totals(self, weights: Weights) -> NDArray[np.float64]:
        """Return f_i of every query and tool.  (N, T)"""
        return weights.gamma * self.semantic + (1 - weights.gamma) * self.pattern(weights.smoothing)

    def choices(self, weights: Weights, tools: int | None = None) -> list[str | None]:
        """Return the chosen tool of every query.

        Args:
            weights: gamma, lambda and threshold.
            tools: choose among the first of the library only; None: among all.
        """
        totals = self.totals(weights)[:, :tools]
        if not totals.size:
            return [None] * len(totals)
        best = totals.argmax(axis=1)
        threshold = -np.inf if weights.threshold is None else weights.threshold
        return [
            self.tools[column] if totals[row, column] >= threshold else None for row, column in enumerate(best.tolist())
        ]


@dataclass(frozen=True, slots=True)
class BestWeights:
    """The gamma and lambda that chose best on the development half, and their accuracy on the other one."""

    weights: Weights
    development: Accuracy
    measured: Accuracy


@dataclass(frozen=True, slots=True)
class Rejection:
    """How well a threshold on the score tells the queries that no tool fits; nan where a denominator is 0."""

    threshold: float
    precision: float  # of the queries for which no tool was chosen: the share for which none is right
    recall: float  # of the queries for which no tool is right: the share for which none was chosen
    accuracy: Accuracy  # of all queries


def is_right_choice(choice: str | None, right: Sequence[str]) -> bool:
    """Return whether a choice is right; where no tool is right, only the choice of none is."""
    return choice in right if right else choice is None


def grounding_accuracy(choices: Sequence[str | None], right: Sequence[Sequence[str]]) -> Accuracy:
    """Return the share of right choices with its 95 % interval."""
    return accuracy(is_right_choice(c, r) for c, r in zip(choices, right, strict=True))


def accuracy_by_paper(
    task: str, choices: Sequence[str | None], right: Sequence[tuple[str, ...]], library: Sequence[str]
) -> Accuracy:
    """Return the share of choices that are right by the paper's rule, see `right_by_paper`.

    Args:
        task: the benchmark's name.
        choices: the chosen tool of each query.
        right: the tools that help, of each query.
        library: keys of the tools that could be chosen. Where they lack the paper's right tool, a query is left out.
    """
    rows = [
        (choice, by_paper)
        for choice, tools in zip(choices, right, strict=True)
        if (by_paper := right_by_paper(task, tools)) == tools or not set(by_paper).isdisjoint(library)
    ]
    return grounding_accuracy([choice for choice, _ in rows], [by_paper for _, by_paper in rows])


def confusion(choices: Sequence[str | None], labels: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return how often each tool was chosen, by label (a benchmark, or the right tool)."""
    rows: dict[str, Counter[str]] = {}
    for choice, label in zip(choices, labels, strict=True):
        rows.setdefault(label, Counter())[choice or NO_TOOL] += 1
    return {label: dict(sorted(counts.items())) for label, counts in rows.items()}


def in_development_half(query_ids: Iterable[str]) -> NDArray[np.bool_]:
    """Return for each query whether it belongs to the development half: its id alone decides."""
    return np.asarray([int(digest_of("half", query_id)[:8], 16) % 2 == 0 for query_id in query_ids], dtype=np.bool_)


def best_weights(
    table: ScoreTable,
    right: Sequence[Sequence[str]],
    query_ids: Sequence[str],
    *,
    groups: Sequence[str] | None = None,
    gammas: Sequence[float] = GAMMAS,
    smoothings: Sequence[float] = LAMBDAS,
) -> BestWeights:
    """Try all pairs on the development half, and measure the best one on the other half.

    Of equal pairs the one nearest to the authors' gamma, then lambda, is best.

    Args:
        table: the scores.
        right: the right tools of each query.
        query_ids: the queries' ids.
        groups: their benchmarks: the mean over benchmarks is maximised, so that a large one does not decide alone;
            None: all are one.
        gammas: weights of the semantic score to try.
        smoothings: lambdas to try.

    Raises:
        UsageError: one of the halves is empty.
    """
    development = in_development_half(query_ids)
    if development.all() or not development.any():
        raise UsageError(f"{len(query_ids)} queries cannot be halved; ground more of them to find the best weights")
    labels = np.asarray(groups if groups is not None else [""] * len(query_ids))
    ours = Weights()

    def right_with(weights: Weights) -> NDArray[np.bool_]:
        return np.asarray([is_right_choice(c, r) for c, r in zip(table.choices(weights), right, strict=True)])

    def mean(hits: NDArray[np.bool_]) -> float:
        parts = [hits[development & (labels == label)] for label in sorted(set(labels[development]))]
        return float(np.mean([part.mean() for part in parts]))

    tried = [Weights(gamma, smoothing) for gamma in gammas for smoothing in smoothings]
    best = max(
        tried,
        key=lambda w: (mean(right_with(w)), -abs(w.gamma - ours.gamma), -abs(w.smoothing - ours.smoothing)),
    )
    hits = right_with(best)
    return BestWeights(best, accuracy(hits[development].tolist()), accuracy(hits[~development].tolist()))


def rejection(table: ScoreTable, right: Sequence[Sequence[str]], weights: Weights) -> Rejection:
    """Return how well the threshold in `weights` rejects queries that no tool fits.

    Raises:
        UsageError: the weights have no threshold.
    """
    if weights.threshold is None:
        raise UsageError("rejection needs a threshold on the score")
    choices = table.choices(weights)
    rejected = [choice is None for choice in choices]
    unfit = [not tools for tools in right]
    both = sum(a and b for a, b in zip(rejected, unfit, strict=True))
    return Rejection(
        weights.threshold,
        both / sum(rejected) if any(rejected) else float("nan"),
        both / sum(unfit) if any(unfit) else float("nan"),
        grounding_accuracy(choices, right),
    )
