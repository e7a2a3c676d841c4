"""Figures of groundings: accuracy with its interval, confusion, and rejection.

All are computed from stored scores: no model and no tool is called again. A choice is right if the query's benchmark
declares that tool right; where it declares none right, the choice of no tool is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from toolformer_core.evaluate.queries import right_by_paper
from toolformer_core.evaluate.statistics import Accuracy, accuracy

NO_TOOL = "no tool"  # in tables, where no tool was chosen, or none is right


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


def rejection(choices: Sequence[str | None], right: Sequence[Sequence[str]], threshold: float) -> Rejection:
    """Return how well the threshold with which these choices were made rejects queries that no tool fits."""
    rejected = [choice is None for choice in choices]
    unfit = [not tools for tools in right]
    both = sum(a and b for a, b in zip(rejected, unfit, strict=True))
    return Rejection(
        threshold,
        both / sum(rejected) if any(rejected) else float("nan"),
        both / sum(unfit) if any(unfit) else float("nan"),
        grounding_accuracy(choices, right),
    )
