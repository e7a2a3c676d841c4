"""Queries from benchmarks: what an item asks, the tools that are right, and how often they were chosen.

An item that names its tools (`tool`) is right with those alone. A choice is right if it is one of the right tools;
where there is none, that of no tool is.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolformer_core.evaluate.items import Item, Task
from toolformer_core.evaluate.prompts import query_in
from toolformer_core.evaluate.statistics import Accuracy, accuracy
from toolformer_core.grounding.records import Query

_ARITHMETIC, _KNOWLEDGE = ("calculator",), ("qa", "wikisearch")

RIGHT_TOOLS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("asdiv", "svamp", "mawps", "gsm8k"), _ARITHMETIC),
    **dict.fromkeys(("webqs", "nq", "triviaqa"), _KNOWLEDGE),
    **dict.fromkeys(("lama-squad", "lama-google-re", "lama-trex", "templama"), _KNOWLEDGE),
    **dict.fromkeys((f"mlqa-{code}" for code in ("es", "de", "hi", "vi", "zh", "ar")), ("mt",)),
    **dict.fromkeys((f"tatoeba-{code}" for code in ("de", "es", "fr", "zh")), ("mt",)),
    "dateset": ("calendar",),
}

_BY_PAPER: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("webqs", "nq", "triviaqa"), ("wikisearch",)),
    **{name: ("multilingual_qa",) for name in RIGHT_TOOLS if name.startswith("mlqa-")},
}

NO_TOOL = "no tool"  # in tables, where no tool was chosen, or none is right


def query_of(task: Task, item: Item) -> Query:
    return Query(query_in(task.form, item.prompt), item.date or "")


def right_tools(task: Task, item: Item) -> tuple[str, ...]:
    """Return the keys of the tools that are right for an item; empty if no tool is, or none is declared."""
    if item.tool is not None:
        return tuple(key for part in item.tool.split(",") if (key := part.strip()))
    return RIGHT_TOOLS.get(task.name, ())


@dataclass(frozen=True, slots=True)
class Rejection:
    """How well a threshold on the score tells the queries that no tool fits; nan where a denominator is 0."""

    threshold: float
    precision: float  # of the queries for which no tool was chosen: the share for which none is right
    recall: float  # of the queries for which no tool is right: the share for which none was chosen
    accuracy: Accuracy  # of all queries


def grounding_accuracy(choices: Sequence[str | None], right: Sequence[Sequence[str]]) -> Accuracy:
    return accuracy(choice in tools if tools else choice is None for choice, tools in zip(choices, right, strict=True))


def accuracy_by_paper(
    task: str, choices: Sequence[str | None], right: Sequence[tuple[str, ...]], library: Sequence[str]
) -> Accuracy:
    """Return the share right by the paper's rule, without queries to which it gives a tool that is not in `library`."""
    rows = [
        (choice, by_paper)
        for choice, tools in zip(choices, right, strict=True)
        if (by_paper := _BY_PAPER.get(task, tools)) == tools or not set(by_paper).isdisjoint(library)
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
    precision, recall = (both / sum(of) if any(of) else float("nan") for of in (rejected, unfit))
    return Rejection(threshold, precision, recall, grounding_accuracy(choices, right))
