"""One MLflow run per grounding: accuracies with their intervals, costs per query, tables and pictures.

It is created after all queries have been answered, so a killed grounding leaves no run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.build_dataset.tracking import CALLS_FROM
from flows.ground.metrics import GroundResult, TaskFigures, TaskShards
from flows.ground.parameters import GroundParameters
from flows.ground.resolve import GroundingPlan
from tasks.provenance import versions
from tasks.training.registry import training_run
from toolformer_core.evaluate.queries import NO_TOOL
from toolformer_core.evaluate.statistics import Accuracy
from toolformer_core.records import digest_of


def track(plan: GroundingPlan, p: GroundParameters, done: Sequence[TaskShards], result: GroundResult) -> Any:
    """Make the grounding's run in MLflow; return the `TrackedRun`."""
    from tasks.tracking import DatasetRef, Tracking, project

    digests = {one.plan.task.name: digest_of("items", *(file.digest for file in one.read.files)) for one in done}
    datasets = [
        DatasetRef(
            f"{one.task} {one.source}".strip(),
            digests[one.task],
            shards.plan.grounding.benchmark.path or one.task,
            "grounding",
            one.queries,
        )
        for one, shards in zip(result.tasks, done, strict=True)
    ]
    models = [choice.model.name for one in plan.tasks for choice in one.choices if choice.method == "toolformer"]
    training = training_run(models[0]) if models else None
    tracking, trainings = Tracking(plan.tracking), {} if training is None else {"toolformer": training}
    run = tracking.start(
        experiment=project(p.data),
        name=f"ground {len(result.tools)} tools, {Path(p.model).name}",
        params=_parameters(plan, p) | tracking.params(trainings, CALLS_FROM),
        tags={"kind": "ground", "flow_run": plan.run_id},
        datasets=datasets,
        sources=trainings,
        system_metrics=False,
    )
    with run:
        run.metrics(_overall(result), step=0)
        for one in result.tasks:
            run.metrics(_metrics(one), step=0)
        run.table(_rows(result), "tables/grounding.json")
        draw_pictures(run, result)
    return run


def _parameters(plan: GroundingPlan, p: GroundParameters) -> dict[str, Any]:
    first = plan.tasks[0].grounding
    answers = plan.tasks[0].answers
    return {
        "tasks": [one.task.name for one in plan.tasks],
        "limit": p.limit,
        "seed": p.seed,
        "model": p.model,
        "model_digest": first.small.digest,
        "large_model": answers[0].large.name if answers else "",
        "toolformer": p.toolformer or "",
        "encoder": p.encoder or "hidden states",
        "patterns": first.patterns.name,
        "patterns_digest": first.patterns.digest,
        "tools": len(first.library.tools),
        "distractors": p.distractors,
        "mocked": list(first.library.mocked),
        **asdict(plan.weights),
        "code": versions(),
    }


def _overall(result: GroundResult) -> dict[str, float]:
    figures = {f"mean_grounding/{method}": value for method, value in result.mean.items()}
    figures |= {f"mean_answers/{method}": value for method, value in result.mean_answered.items()}
    if result.rejection is not None:
        figures |= {"rejection/precision": result.rejection.precision, "rejection/recall": result.rejection.recall}
    return _finite(figures)


def _metrics(one: TaskFigures) -> dict[str, float]:
    figures: dict[str, float] = {}
    for kind, accuracies in _kinds(one).items():
        for method, accuracy in accuracies.items():
            name = f"{kind}/{one.task}/{method}"
            figures |= {name: accuracy.value, f"{name}_low": accuracy.low, f"{name}_high": accuracy.high}
    for step, cost in one.cost.items():
        for name in ("small_calls", "large_calls", "lm_tokens", "tool_calls", "seconds"):
            shown = name.removeprefix("lm_").replace("_", " ")
            figures[f"cost/{one.task}/{step} {shown}"] = getattr(cost, name) / max(1, cost.queries)
    return _finite(figures)


def _kinds(one: TaskFigures) -> dict[str, Mapping[str, Accuracy]]:
    return {"grounding": one.chosen, "grounding_by_paper": one.by_paper, "answers": one.answered}


def _finite(figures: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def _rows(result: GroundResult) -> list[dict[str, Any]]:
    return [
        {"task": one.task, "method": method, "figure": kind, **asdict(accuracy)}
        for one in result.tasks
        for kind, accuracies in _kinds(one).items()
        for method, accuracy in accuracies.items()
    ]


def _in_order(counts: Mapping[str, Mapping[str, int]], tools: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return a confusion matrix with its columns in the order of the library, the choice of no tool last."""
    named = {tool for row in counts.values() for tool in row}
    columns = [tool for tool in (*tools, NO_TOOL) if tool in named]
    return {label: {tool: row.get(tool, 0) for tool in columns} for label, row in counts.items()}


def draw_pictures(run: Any, result: GroundResult) -> None:
    from tasks.tracking.figures import bars, curves, matrix

    for method in result.confusion:
        counts = _in_order(result.confusion[method], result.tools)
        figure = matrix(f"Chosen by {method}", "chosen tool", counts)
        run.figure(figure, f"figures/confusion_{method}.png")
        chosen = {one.task: one.chosen[method] for one in result.tasks}
        named = {task: (one.value, one.low, one.high) for task, one in chosen.items()}
        figure = bars(f"Right tool chosen by {method}", "share of queries", named)
        run.figure(figure, f"figures/grounding_{method}.png")
    if len(result.sizes) > 1:
        methods = result.sizes[0].chosen
        series = {method: [(size.tools, size.chosen[method].value) for size in result.sizes] for method in methods}
        figure = curves("Right tool chosen, by size of the library", "share of queries", series, x_label="tools")
        run.figure(figure, "figures/accuracy_by_size.png")
