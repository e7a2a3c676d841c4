"""The results of a grounding as plain records: how often each method chose a right tool and gave a right answer."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.ground.resolve import GroundingPlan, TaskPlan
from tasks.settings import shown_url
from tasks.shards import arrow
from tasks.shards.run_shard import ShardResult
from tasks.shards.stage import LM_TOKENS
from toolformer_core.evaluate.queries import Rejection, accuracy_by_paper, confusion, grounding_accuracy, rejection
from toolformer_core.evaluate.statistics import Accuracy, accuracy
from toolformer_core.grounding.records import Grounding, Weights, best_of
from warehouse.store import Store

_SIZES = (4, 10, 20, 50, 100)  # of libraries, as the picture shows them


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
    """One benchmark. Shares are in [0, 1]; methods as in `tasks.specs.grounding_spec`."""

    task: str
    title: str
    source: str
    grounding: str  # the name in the table groundings
    queries: int
    rejected: dict[str, int]  # reason -> rows of the benchmark that are no items
    chosen: dict[str, Accuracy]  # method -> share of queries with a right choice: any tool that helps
    by_paper: dict[str, Accuracy]  # the same by the paper's rule; none measured if the library lacks its tool
    answered: dict[str, Accuracy]  # method -> share of right answers, of the queries that have any; empty: not measured
    cost: dict[str, MethodCost]  # `ground`, `choose lm`, `answer gear`, ... -> what it took


@dataclass(frozen=True, slots=True)
class LibrarySize:
    """Accuracies where only the first tools of the library can be chosen, on the queries that one of them fits."""

    tools: int
    queries: int
    chosen: dict[str, Accuracy]  # gear, cosine


@dataclass(frozen=True, slots=True)
class GroundResult:
    run_id: str
    tools: tuple[str, ...]
    gamma: float
    smoothing: float
    threshold: float | None
    patterns: str  # the pattern set's name
    tasks: tuple[TaskFigures, ...]
    mean: dict[str, float]  # method -> mean accuracy over the benchmarks
    mean_answered: dict[str, float]
    confusion: dict[str, dict[str, dict[str, int]]]  # method -> benchmark -> chosen tool -> queries
    sizes: tuple[LibrarySize, ...]
    rejection: Rejection | None  # None: there is no threshold
    tracking: str
    snapshot: str = ""
    mlflow_run: str = ""
    runs_view: str = ""  # how to open the table of runs in MLflow
    done: int = 0  # shards that this run computed
    skipped: int = 0  # shards that were finished before this run
    seconds: float = math.nan


@dataclass(frozen=True, slots=True)
class _Rows:
    tools: tuple[str, ...]
    tasks: list[str]
    right: list[tuple[str, ...]]
    totals: dict[str, list[list[tuple[str, float]]]]  # gear, cosine -> per query, every tool's total score
    choices: dict[str, list[str | None]]  # method -> per query


def figures_of(plan: GroundingPlan, store: Store, done: Sequence[TaskShards]) -> GroundResult:
    """Return the result of finished shards, without what follows from the run alone (snapshot, MLflow run, ...)."""
    threshold = plan.weights.threshold
    rows = _rows(plan, store, done)
    tasks = [_task_figures(store, one, rows) for one in done]
    answered = dict.fromkeys(method for one in tasks for method in one.answered)
    return GroundResult(
        run_id=plan.run_id,
        tools=rows.tools,
        gamma=plan.weights.gamma,
        smoothing=plan.weights.smoothing,
        threshold=threshold,
        patterns=plan.tasks[0].grounding.patterns.name,
        tasks=tuple(tasks),
        mean={method: mean([one.chosen[method] for one in tasks]) for method in rows.choices},
        mean_answered={method: mean([one.answered[method] for one in tasks]) for method in answered},
        confusion={method: confusion(choices, rows.tasks) for method, choices in rows.choices.items()},
        sizes=_sizes(rows, threshold),
        rejection=None if threshold is None else rejection(rows.choices["gear"], rows.right, threshold),
        tracking=shown_url(plan.tracking),
    )


def _rows(plan: GroundingPlan, store: Store, done: Sequence[TaskShards]) -> _Rows:
    tasks: list[str] = []
    right: list[tuple[str, ...]] = []
    choices: dict[str, list[str | None]] = {}
    groundings: list[Grounding] = []
    for one in done:
        grounded = [row for table in _tables(store, one.ground) for row in arrow.groundings_of(table)]
        tasks.extend([one.plan.task.name] * len(grounded))
        right.extend(tools for _, tools, _ in grounded)
        groundings.extend(grounding for _, _, grounding in grounded)
        for method, shards in one.choose.items():
            chosen = {i: tool for table in _tables(store, shards) for i, _, tool in arrow.choices_of(table)}
            choices.setdefault(method, []).extend(chosen[item_id] for item_id, _, _ in grounded)
    tools = tuple(score.tool for score in groundings[0].scores) if groundings else ()
    totals = {
        "gear": [grounding.totals(plan.weights) for grounding in groundings],
        "cosine": [grounding.totals(Weights(gamma=1)) for grounding in groundings],
    }
    return _Rows(tools, tasks, right, totals, {**_choices(totals, plan.weights.threshold), **choices})


def _choices(
    totals: Mapping[str, Sequence[Sequence[tuple[str, float]]]], threshold: float | None, size: int | None = None
) -> dict[str, list[str | None]]:
    return {
        method: [best_of(scores[:size], threshold if method == "gear" else None) for scores in by_query]
        for method, by_query in totals.items()
    }


def _task_figures(store: Store, one: TaskShards, rows: _Rows) -> TaskFigures:
    name = one.plan.task.name
    at = [row for row, task in enumerate(rows.tasks) if task == name]
    right = [rows.right[row] for row in at]
    choices = {method: [chosen[row] for row in at] for method, chosen in rows.choices.items()}
    stages = {"ground": one.ground, **{f"choose {method}": shards for method, shards in one.choose.items()}}
    stages |= {f"answer {method}": shards for method, shards in one.answer.items()}
    return TaskFigures(
        task=name,
        title=one.plan.task.title,
        source=one.plan.grounding.benchmark.source,
        grounding=one.plan.grounding.name,
        queries=len(at),
        rejected=dict(one.read.counts[0].failed),
        chosen={method: grounding_accuracy(chosen, right) for method, chosen in choices.items()},
        by_paper={method: accuracy_by_paper(name, chosen, right, rows.tools) for method, chosen in choices.items()},
        answered={method: _answered(store, shards) for method, shards in one.answer.items()},
        cost={stage: _cost(store, shards, len(at)) for stage, shards in stages.items()},
    )


def _answered(store: Store, shards: Sequence[ShardResult]) -> Accuracy:
    rows = (row for table in _tables(store, shards) for row in table.select(["answers", "correct"]).to_pylist())
    return accuracy(row["correct"] for row in rows if row["answers"])


def _cost(store: Store, shards: Sequence[ShardResult], queries: int) -> MethodCost:
    counters = [commit.counters for shard in shards if (commit := store.read_commit(shard.key)) is not None]
    names = ("small_calls", "large_calls", LM_TOKENS, "tool_calls")
    small, large, tokens, calls = (int(sum(own.get(name, 0) for own in counters)) for name in names)
    return MethodCost(queries, small, large, tokens, calls, sum(shard.seconds for shard in shards))


def _sizes(rows: _Rows, threshold: float | None) -> tuple[LibrarySize, ...]:
    out = []
    for size in [*(n for n in _SIZES if n < len(rows.tools)), len(rows.tools)]:
        inside = set(rows.tools[:size])
        at = [row for row, right in enumerate(rows.right) if not right or inside & set(right)]
        right = [rows.right[row] for row in at]
        chosen = _choices(rows.totals, threshold, size)
        accuracies = {m: grounding_accuracy([choices[row] for row in at], right) for m, choices in chosen.items()}
        out.append(LibrarySize(size, len(at), accuracies))
    return tuple(out)


def mean(accuracies: Iterable[Accuracy]) -> float:
    """Return the mean over benchmarks, of those that have the figure; nan if none has."""
    known = [one.value for one in accuracies if one.items]
    return sum(known) / len(known) if known else math.nan


def _tables(store: Store, shards: Sequence[ShardResult]) -> list[Any]:
    return [store.read(file) for shard in shards for file in shard.files]
