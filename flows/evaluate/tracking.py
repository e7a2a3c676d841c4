"""One MLflow run per evaluation, made once all items are answered: figures with k as the step, tables, plots."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.build_dataset.tracking import CALLS_FROM
from flows.evaluate.metrics import ArmFigures, EvaluateResult, row_of
from flows.evaluate.parameters import EvaluateParameters
from flows.evaluate.resolve import EvaluationPlan
from tasks.provenance import versions
from tasks.shards.run_shard import ShardResult
from tasks.specs.evaluation_spec import ARMS
from tasks.training.registry import training_run
from tasks.viewer_links import arm_key, arms_page
from toolformer_core.evaluate.items import Rule
from toolformer_core.records import digest_of
from warehouse.queries.evaluations import accuracies


def track(
    plan: EvaluationPlan, p: EvaluateParameters, read: ShardResult, result: EvaluateResult, snapshot: Path
) -> Any:
    """Make the evaluation's run in MLflow; return the `TrackedRun`."""
    from tasks.tracking import DatasetRef, Tracking, project

    digest = digest_of("items", *(file.digest for file in read.files))
    name = f"{plan.task.name} {plan.benchmark.source}".strip()
    models = {e.arm: {"model": e.model, "digest": e.model_digest} for e in plan.evaluations}
    tracking, runs = Tracking(plan.tracking), {ARMS[e.arm][0]: training_run(e.model) for e in plan.evaluations}
    trainings = {which: run_id for which, run_id in sorted(runs.items()) if run_id is not None}
    trained = [one for one in ("toolformer", "cc", "base") if one in runs]
    run = tracking.start(
        experiment=project(p.data),
        name=f"{', '.join(trained)}: {name}, {Path(p.model).name}",
        params={
            "task": plan.task.name,
            "source": plan.benchmark.path or "",
            "source_digest": plan.benchmark.digest,
            "items": result.items,
            "limit": p.limit,
            "model": p.model,
            "arms": {_safe(arm): model for arm, model in models.items()},
            "k": sorted({e.k for e in plan.evaluations}),
            "tools": sorted({key for e in plan.evaluations for key in e.offered}),
            "max_new_tokens": plan.evaluations[0].max_new_tokens,
            **tracking.params(trainings, CALLS_FROM),
            "trigger": {key: theta for e in plan.evaluations for key, theta in e.trigger},
            **({"max_calls": p.max_calls} if p.max_calls != 1 else {}),
            "code": versions(),
        },
        tags={"kind": "evaluate", "task": plan.task.name, "dataset_digest": digest, "flow_run": plan.benchmark.run_id},
        datasets=[DatasetRef(name, digest, plan.benchmark.path or plan.task.name, "evaluation", result.items)],
        sources=trainings,
        system_metrics=False,
        links={"Its items in the viewer": items_page(plan)},
    )
    with run:
        for one in result.arms:
            run.metrics(_metrics(one), step=one.k)
        for text in result.perplexities:
            run.metrics({f"perplexity/{_safe(text.arm)}": text.perplexity}, step=0)
        run.table([*map(row_of, result.arms), *map(row_of, result.perplexities)], "tables/arms.json")
        if result.arms:
            # arms without tools have one figure, whatever the number of calls
            sizes = accuracies(snapshot, plan.task.name)
            alike = [row for row in sizes if not row["k"] or row["max_calls"] == p.max_calls]
            _plots(run, plan.task.title, result.arms, alike)
    return run


def _safe(arm: str) -> str:
    # MLflow allows no plus sign.
    return arm.replace("+", "-")


def _metrics(one: ArmFigures) -> dict[str, float]:
    names = ("accuracy", "call_rate", "accuracy_called", "accuracy_uncalled", "failed")
    figures = {name: float(getattr(one, name)) for name in names}
    figures |= {"accuracy_low": one.low, "accuracy_high": one.high}
    figures |= {f"calls_{tool}": rate for tool, rate in one.rates.items()}
    if one.calls_per_item is not None:
        figures["calls_per_item"] = one.calls_per_item
    for other, test in (("base", one.versus_base), ("disabled", one.versus_disabled)):
        if test is not None:
            figures |= {f"gain_over_{other}": test.difference, f"p_versus_{other}": test.p}
    return {f"{name}/{_safe(one.arm)}": value for name, value in figures.items() if math.isfinite(value)}


def accuracy_figure(title: str, arms: Sequence[ArmFigures]) -> Any:
    from tasks.tracking.figures import bars

    named = {f"{one.arm}, k = {one.k}" if one.k else one.arm: (one.accuracy, one.low, one.high) for one in arms}
    return bars(f"{title}: accuracy by arm", "accuracy", named)


def _plots(run: Any, title: str, arms: Sequence[ArmFigures], sizes: Sequence[Mapping[str, Any]]) -> None:
    from tasks.tracking.figures import curves

    run.figure(accuracy_figure(title, arms), "figures/accuracy_by_arm.png")
    by_k: dict[str, list[tuple[int, float]]] = defaultdict(list)
    off = {"base": "base+tools", "toolformer-disabled": "toolformer"}
    for one in sorted(arms, key=lambda a: a.k):
        by_k[off.get(one.arm, one.arm)].append((one.k, one.accuracy))
    if any(len(points) > 1 for points in by_k.values()):
        figure = curves(f"{title}: accuracy by k", "accuracy", by_k, x_label="k (0: disabled)")
        run.figure(figure, "figures/accuracy_by_k.png")
    by_size: dict[str, dict[int, float]] = defaultdict(dict)
    for row in sizes:
        by_size[f"{row['arm']}, k = {row['k']}" if row["k"] else row["arm"]][row["parameters"]] = row["accuracy"]
    if len({size for points in by_size.values() for size in points}) > 1:
        series = {label: sorted(points.items()) for label, points in by_size.items()}
        figure = curves(f"{title}: accuracy by size", "accuracy", series, x_label="parameters", logarithmic=True)
        run.figure(figure, "figures/accuracy_by_size.png")


def items_page(plan: EvaluationPlan) -> str | None:
    """Return the address of the viewer's page with the evaluation's items; None if no viewer is known, or of texts."""
    if plan.task.rule is Rule.PERPLEXITY:
        return None
    return arms_page([arm_key(e.arm, e.k, e.model_digest) for e in plan.evaluations], plan.task.name)
