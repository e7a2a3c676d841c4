"""The flow `evaluate`: a benchmark put to a model's arms, with tools and without, sharded and resumable.

The benchmark is read and cut into shards; every arm at every k answers every shard, a task each. Killed, it goes on
where it was. Predictions stand in the warehouse, figures and plots in one MLflow run. How an arm answers, and when an
answer is right, is not known here.
"""

from __future__ import annotations

import time
from typing import Any

from prefect import flow, get_run_logger
from prefect.futures import PrefectFuture, as_completed

from flows.artifacts import named, publish_link, publish_summary, showing
from flows.evaluated import ArmFigures, ArmPerplexity, EvaluateResult, arm_figures, arm_perplexity, row_of
from flows.evaluation_plan import EvaluateParameters, EvaluationPlan, plan_evaluate
from flows.evaluation_tracking import track
from flows.ledger import Ledger, keeping, new_run_id, now
from flows.runners import check_gpus, model_resources, on, running, taking
from flows.server import guard_prefects_start, note_server
from flows.stopping import keep_stop_handler
from tasks.evaluate import Evaluation, evaluate_shard, perplexity_shard, read_benchmark, shards_of
from tasks.settings import prepare as quieten
from tasks.settings import shown_url
from tasks.shards import Done
from toolformer_core.evaluate.figures import PERPLEXITY, measured_text
from toolformer_core.evaluate.items import Rule
from warehouse.commits import Run
from warehouse.queries import accuracies
from warehouse.store import Store

__all__ = ["evaluate", "run_evaluate"]


@flow(name="evaluate", flow_run_name=named("evaluate {task} with {model}"))
def evaluate(parameters: EvaluateParameters) -> EvaluateResult:
    """Put a benchmark to the arms of a model, with tools and without.

    Args:
        parameters: benchmark, models, arms and k.
    """
    begin = time.monotonic()
    quieten()
    note_server()
    keep_stop_handler()
    check_gpus(parameters.workers, parameters.gpus)
    plan = plan_evaluate(parameters, new_run_id())
    store = plan.benchmark.store()
    run = Run(
        run_id=plan.benchmark.run_id,
        flow="evaluate",
        started=now(),
        finished=None,
        state="running",
        parameters=parameters.model_dump(mode="json"),
        corpus=plan.benchmark.path or plan.task.name,
        model=parameters.model,
    )
    with keeping(store, run) as ledger, showing(ledger, get_run_logger()), running(parameters.workers, parameters.gpus):
        read, done = _ask(plan, ledger)
    snapshot = ledger.snapshot
    arms, perplexities = _found(plan, store, done)
    tracked, address = track(plan, parameters, read, arms, perplexities, accuracies(snapshot, plan.task.name))
    result = EvaluateResult(
        run_id=run.run_id,
        task=plan.task.name,
        title=plan.task.title,
        source=plan.benchmark.source,
        items=sum(file.rows for file in read.files),
        rejected={**read.balances[0].dropped, **read.balances[0].failed},
        arms=tuple(arms),
        perplexities=tuple(perplexities),
        paper=_paper(plan),
        snapshot=str(snapshot),
        tracking=shown_url(plan.tracking),
        mlflow_run=tracked,
        done=len(ledger.keys) - ledger.skipped,
        skipped=ledger.skipped,
        seconds=time.monotonic() - begin,
    )
    publish_summary(_card(result), "evaluated")
    publish_link(address, "evaluate-mlflow-run", "The run in MLflow")
    return result


def _ask(plan: EvaluationPlan, ledger: Ledger) -> tuple[Done, dict[Evaluation, list[Done]]]:
    """Read the benchmark and have every shard answered."""
    ledger.expect("benchmark", 1)
    read = read_benchmark(plan.benchmark)
    ledger.add(read)
    shards = shards_of(read)
    work: Any = perplexity_shard if plan.task.rule is Rule.PERPLEXITY else evaluate_shard
    ledger.expect(str(work.name), len(shards) * len(plan.evaluations))
    with taking(model_resources()):
        futures: dict[Evaluation, list[PrefectFuture[Done]]] = {
            e: [work.submit(plan.benchmark, e, shard) for shard in shards] for e in plan.evaluations
        }
    for future in as_completed([f for own in futures.values() for f in own]):
        ledger.add(future.result())
    return read, {e: [f.result() for f in own] for e, own in futures.items()}


def _found(
    plan: EvaluationPlan, store: Store, done: dict[Evaluation, list[Done]]
) -> tuple[list[ArmFigures], list[ArmPerplexity]]:
    names = plan.names()
    if plan.task.rule is Rule.PERPLEXITY:
        return [], [arm_perplexity(store, e, names[e], shards) for e, shards in done.items()]
    return arm_figures(store, done, names), []


def _paper(plan: EvaluationPlan) -> dict[str, float]:
    """Return the paper's figures; of perplexity only where the text is one that the paper measured."""
    if plan.task.rule is Rule.PERPLEXITY:
        return dict(PERPLEXITY.get(measured_text(plan.task.name, plan.benchmark.source), {}))
    return dict(plan.task.figures)


def _card(result: EvaluateResult) -> str:
    rows = [*map(row_of, result.arms), *map(row_of, result.perplexities)]
    names = ["arm", "k", "items", "accuracy", "low", "high", "call_rate", "texts", "tokens", "perplexity"]
    shown = [name for name in names if any(name in row for row in rows)]

    def cell(value: object) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    lines = [f"## {result.title} {result.source}", "| " + " | ".join(shown) + " |", "|" + "---|" * len(shown)]
    lines += ["| " + " | ".join(cell(row[name]) for name in shown) + " |" for row in rows]
    return "\n".join(lines)


def run_evaluate(parameters: EvaluateParameters, runner: str | None = None) -> EvaluateResult:
    """Run the flow in this process.

    Args:
        runner: `threads`, `dask` (a local cluster of `parameters.workers` processes), or a Dask scheduler's address;
            default: as $TOOLFORMER_RUNNER says, else threads.

    Raises:
        UsageError: something asked for is wrong.
    """
    guard_prefects_start()
    with on(runner):
        return evaluate(parameters)
