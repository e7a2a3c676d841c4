"""One MLflow run per grounding, made once all queries are answered: accuracies, costs per query, tables, pictures."""

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

    datasets = []
    for one, shards in zip(result.tasks, done, strict=True):
        digest = digest_of("items", *(file.digest for file in shards.read.files))
        where = shards.plan.grounding.benchmark.path or one.task
        datasets.append(DatasetRef(f"{one.task} {one.source}".strip(), digest, where, "grounding", one.queries))
    finetuned = next((one.model.name for one in plan.tasks[0].choices if one.method == "toolformer"), None)
    training = training_run(finetuned) if finetuned is not None else None
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
        rows = [
            {"task": one.task, "method": method, "figure": kind, **asdict(accuracy)}
            for one in result.tasks
            for kind, accuracies in _kinds(one).items()
            for method, accuracy in accuracies.items()
        ]
        run.table(rows, "tables/grounding.json")
        draw_pictures(run, result)
    return run


def _parameters(plan: GroundingPlan, p: GroundParameters) -> dict[str, Any]:
    first, answers = plan.tasks[0].grounding, plan.tasks[0].answers
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


def draw_pictures(run: Any, result: GroundResult) -> None:
    from tasks.tracking.figures import bars, curves, matrix

    for method, by_task in result.confusion.items():
        named = {tool for row in by_task.values() for tool in row}
        columns = [tool for tool in (*result.tools, NO_TOOL) if tool in named]  # in the order of the library
        counts = {task: {tool: row.get(tool, 0) for tool in columns} for task, row in by_task.items()}
        run.figure(matrix(f"Chosen by {method}", "chosen tool", counts), f"figures/confusion_{method}.png")
        chosen = {one.task: one.chosen[method] for one in result.tasks}
        shares = {task: (one.value, one.low, one.high) for task, one in chosen.items()}
        figure = bars(f"Right tool chosen by {method}", "share of queries", shares)
        run.figure(figure, f"figures/grounding_{method}.png")
    if len(result.sizes) > 1:
        methods = result.sizes[0].chosen
        series = {method: [(size.tools, size.chosen[method].value) for size in result.sizes] for method in methods}
        figure = curves("Right tool chosen, by size of the library", "share of queries", series, x_label="tools")
        run.figure(figure, "figures/accuracy_by_size.png")
