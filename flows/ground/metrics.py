"""The results of a grounding: how often each method chose a right tool and gave a right answer, and what it cost.

They are plain records, computed from the rows of finished shards with `toolformer_core.evaluate.grounding_figures`; no
model and no tool is asked again. Nothing is printed or tracked here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flows.ground.plan import GroundingPlan, TaskPlan
from tasks import arrow
from tasks.run_shard import ShardResult
from tasks.stage import LM_TOKENS
from toolformer_core.errors import UsageError
from toolformer_core.evaluate.grounding_figures import (
    Rejection,
    ScoreTable,
    accuracy_by_paper,
    best_weights,
    confusion,
    grounding_accuracy,
    in_development_half,
    rejection,
)
from toolformer_core.evaluate.statistics import Accuracy, accuracy
from toolformer_core.grounding.records import Grounding
from toolformer_core.grounding.scores import Weights
from warehouse.store import Store

SIZES = (4, 10, 20, 50, 100)  # of libraries, as the picture shows them


@dataclass(slots=True)
class TaskShards:
    """The finished shards of one benchmark: its items, groundings, and choices and answers by method."""

    plan: TaskPlan
    read: ShardResult
    ground: list[ShardResult] = field(default_factory=list)
    choose: dict[str, list[ShardResult]] = field(default_factory=dict)
    answer: dict[str, list[ShardResult]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MethodCost:
    """What choosing and answering took, in all: LM calls and tokens, tool calls, and the shards' own seconds."""

    queries: int
    small_calls: int
    large_calls: int
    lm_tokens: int
    tool_calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """One benchmark. Shares are in [0, 1]; methods as in `tasks.grounding_spec`."""

    task: str
    title: str
    source: str
    grounding: str  # the name in the table groundings
    queries: int
    rejected: dict[str, int]  # reason -> rows of the benchmark that are no items
    chosen: dict[str, Accuracy]  # method -> share of queries with a right choice: any tool that helps
    by_paper: dict[str, Accuracy]  # the same by the paper's rule; none measured if the library lacks its tool
    best: Accuracy | None  # GEAR with the best weights, on the half that did not choose them
    answered: dict[str, Accuracy]  # method -> share of right answers, of the queries that have any; empty: not asked
    cost: dict[str, MethodCost]  # `ground`, `choose lm`, `answer gear`, ... -> what it took


@dataclass(frozen=True, slots=True)
class BestFigures:
    """The gamma and lambda that choose best on the development half; accuracies over all benchmarks."""

    gamma: float
    smoothing: float
    development: Accuracy
    measured: Accuracy  # on the other half
    as_asked: Accuracy  # there, with the weights of the run
    cosine: Accuracy  # there


@dataclass(frozen=True, slots=True)
class LibrarySize:
    """Accuracies where only the first tools of the library can be chosen, on the queries that one of them fits."""

    tools: int
    queries: int
    chosen: dict[str, Accuracy]  # gear, cosine


@dataclass(frozen=True, slots=True)
class GroundResult:
    """The result of a grounding flow."""

    run_id: str
    tools: tuple[str, ...]
    gamma: float
    smoothing: float
    threshold: float | None
    patterns: str  # the pattern set's name
    tasks: tuple[TaskFigures, ...]
    mean: dict[str, float]  # method -> mean accuracy over the benchmarks
    mean_answered: dict[str, float]
    best: BestFigures | None  # None: too few queries to be halved
    confusion: dict[str, dict[str, dict[str, int]]]  # method -> benchmark -> chosen tool -> queries
    sizes: tuple[LibrarySize, ...]
    rejection: Rejection | None  # None: there is no threshold
    snapshot: str
    tracking: str
    mlflow_run: str
    done: int  # shards that this run computed
    skipped: int  # shards that were finished before this run
    seconds: float


@dataclass(frozen=True, slots=True)
class _Rows:
    """The stored rows of all benchmarks, one entry per query."""

    tasks: list[str]
    ids: list[str]
    right: list[tuple[str, ...]]
    choices: dict[str, list[str | None]]  # method -> per query


def figures_of(plan: GroundingPlan, store: Store, done: Sequence[TaskShards], result: GroundResult) -> GroundResult:
    """Return a result with the figures of finished shards.

    Args:
        plan: what was asked.
        store: holds the shards' rows.
        done: the shards of every benchmark.
        result: what is known of the run besides.
    """
    rows, table = _rows_and_scores(plan, store, done)
    best = _best(table, rows, plan.weights)
    tasks = [_task_figures(store, one, rows, table, best) for one in done]
    methods = list(rows.choices)
    answered = dict.fromkeys(method for one in tasks for method in one.answered)
    return replace(
        result,
        tools=table.tools,
        tasks=tuple(tasks),
        mean={method: _mean([one.chosen[method] for one in tasks]) for method in methods},
        mean_answered={method: _mean([one.answered[method] for one in tasks]) for method in answered},
        best=best,
        confusion={method: confusion(rows.choices[method], rows.tasks) for method in methods},
        sizes=_sizes(table, rows, plan.weights),
        rejection=None if plan.weights.threshold is None else rejection(table, rows.right, plan.weights),
    )


def _rows_and_scores(plan: GroundingPlan, store: Store, done: Sequence[TaskShards]) -> tuple[_Rows, ScoreTable]:
    rows = _Rows([], [], [], {})
    groundings: list[Grounding] = []
    for one in done:
        grounded = [row for table in _tables(store, one.ground) for row in arrow.groundings_of(table)]
        name = one.plan.task.name
        rows.tasks.extend([name] * len(grounded))
        rows.ids.extend(f"{name}/{item_id}" for item_id, _, _ in grounded)
        rows.right.extend(right for _, right, _ in grounded)
        groundings.extend(grounding for _, _, grounding in grounded)
        for method, shards in one.choose.items():
            chosen = {i: tool for table in _tables(store, shards) for i, _, tool in arrow.choices_of(table)}
            rows.choices.setdefault(method, []).extend(chosen[item_id] for item_id, _, _ in grounded)
    table = ScoreTable(groundings)
    gear, cosine = table.choices(plan.weights), table.choices(Weights(gamma=1))
    return replace(rows, choices={"gear": gear, "cosine": cosine, **rows.choices}), table


def _best(table: ScoreTable, rows: _Rows, asked: Weights) -> BestFigures | None:
    try:
        found = best_weights(table, rows.right, rows.ids, groups=rows.tasks)
    except UsageError:  # one of the halves has no query
        return None
    other = ~in_development_half(rows.ids)

    def on_the_other_half(method: str) -> Accuracy:
        chosen = [c for c, measured in zip(rows.choices[method], other, strict=True) if measured]
        return grounding_accuracy(chosen, [r for r, measured in zip(rows.right, other, strict=True) if measured])

    return BestFigures(
        found.weights.gamma,
        found.weights.smoothing,
        found.development,
        found.measured,
        on_the_other_half("gear"),
        on_the_other_half("cosine"),
    )


def _task_figures(
    store: Store, one: TaskShards, rows: _Rows, table: ScoreTable, best: BestFigures | None
) -> TaskFigures:
    name = one.plan.task.name
    at = [row for row, task in enumerate(rows.tasks) if task == name]
    right = [rows.right[row] for row in at]
    benchmark = one.plan.grounding.benchmark
    answered = {method: _answered(store, shards) for method, shards in one.answer.items()}
    stages = {"ground": one.ground}
    stages |= {f"choose {method}": shards for method, shards in one.choose.items()}
    stages |= {f"answer {method}": shards for method, shards in one.answer.items()}
    (counts,) = one.read.counts
    return TaskFigures(
        task=name,
        title=one.plan.task.title,
        source=benchmark.source,
        grounding=one.plan.grounding.name,
        queries=len(at),
        rejected=dict(counts.failed),
        chosen={
            method: grounding_accuracy([chosen[row] for row in at], right) for method, chosen in rows.choices.items()
        },
        by_paper={
            method: accuracy_by_paper(name, [chosen[row] for row in at], right, table.tools)
            for method, chosen in rows.choices.items()
        },
        best=None if best is None else _best_of_task(table, rows, at, best),
        answered=answered,
        cost={stage: _cost(store, shards, len(at)) for stage, shards in stages.items()},
    )


def _answered(store: Store, shards: Sequence[ShardResult]) -> Accuracy:
    """Return the share of right answers, of the queries whose benchmark has answers."""
    rows = [row for table in _tables(store, shards) for row in table.select(["answers", "correct"]).to_pylist()]
    return accuracy(row["correct"] for row in rows if row["answers"])


def _best_of_task(table: ScoreTable, rows: _Rows, at: Sequence[int], best: BestFigures) -> Accuracy:
    """Return the accuracy of the best weights on a benchmark's queries of the half that did not choose them."""
    chosen = table.choices(Weights(best.gamma, best.smoothing))
    development = in_development_half(rows.ids)
    other = [row for row in at if not development[row]]
    return grounding_accuracy([chosen[row] for row in other], [rows.right[row] for row in other])


def _cost(store: Store, shards: Sequence[ShardResult], queries: int) -> MethodCost:
    counters: dict[str, float] = {}
    for shard in shards:
        commit = store.read_commit(shard.key)
        for name, value in (commit.counters if commit is not None else {}).items():
            counters[name] = counters.get(name, 0) + value
    return MethodCost(
        queries=queries,
        small_calls=int(counters.get("small_calls", 0)),
        large_calls=int(counters.get("large_calls", 0)),
        lm_tokens=int(counters.get(LM_TOKENS, 0)),
        tool_calls=int(counters.get("tool_calls", 0)),
        seconds=sum(shard.seconds for shard in shards),
    )


def _sizes(table: ScoreTable, rows: _Rows, weights: Weights) -> tuple[LibrarySize, ...]:
    out = []
    for size in sorted({n for n in SIZES if n < len(table.tools)} | {len(table.tools)}):
        inside = set(table.tools[:size])
        at = [row for row, right in enumerate(rows.right) if not right or inside & set(right)]
        right = [rows.right[row] for row in at]

        def of(chosen: Sequence[str | None], at: Sequence[int] = at, right: Any = right) -> Accuracy:
            return grounding_accuracy([chosen[row] for row in at], right)

        gear, cosine = table.choices(weights, size), table.choices(Weights(gamma=1), size)
        out.append(LibrarySize(size, len(at), {"gear": of(gear), "cosine": of(cosine)}))
    return tuple(out)


def _mean(accuracies: Sequence[Accuracy]) -> float:
    """Return the mean over benchmarks, of those that have the figure; nan if none has."""
    known = [one.value for one in accuracies if one.items]
    return sum(known) / len(known) if known else math.nan


def _tables(store: Store, shards: Sequence[ShardResult]) -> list[Any]:
    return [store.read(file) for shard in shards for file in shard.files]
