"""The flow `evaluate`: every arm of a model, at every k, answers all items of a benchmark, a group of shards as a task.

Predictions stand in the warehouse, figures and plots in one MLflow run.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from prefect import flow

from flows.build_dataset.versions import write_card
from flows.evaluate.certificate import known_by_evaluation
from flows.evaluate.metrics import ArmFigures, ArmPerplexity, EvaluateResult, arm_figures, arm_perplexity, table_of
from flows.evaluate.parameters import EvaluateParameters
from flows.evaluate.resolve import EvaluationPlan, resolve
from flows.evaluate.tracking import accuracy_figure, items_page, track
from flows.forms.resolved import resolved
from flows.runtime.artifacts import embedded_picture, publish_link, publish_summary, run_name_from
from flows.runtime.ledger import Ledger
from flows.runtime.runners import check_gpus, choose_runner, cut_evenly, tasks_at_most
from flows.runtime.running import begin_flow, running
from flows.runtime.stage_tasks import Futures, finished_shards, results_of, run_source, submit_for_run
from tasks.settings import shown_url
from tasks.shards.run_shard import ShardResult, on_shard_done
from tasks.specs.evaluation_spec import ArmRun, Evaluation
from tasks.stages.benchmark import BENCHMARK, benchmark_shards
from tasks.stages.evaluate import EVALUATE
from tasks.stages.evaluate import PERPLEXITY as PERPLEXITY_STAGE
from toolformer_core.evaluate.figures import PERPLEXITY, measured_text
from toolformer_core.evaluate.items import Rule
from warehouse.records import Certificate, write_certificate
from warehouse.store import Store


@flow(name="evaluate", flow_run_name=run_name_from("evaluate {task} with {model}"))
def evaluate(parameters: EvaluateParameters) -> EvaluateResult:
    """Run a benchmark on the arms of a model, with tools and without."""
    begin = time.monotonic()
    begin_flow()
    check_gpus(parameters.workers, parameters.gpus)
    plan = resolved(parameters, resolve)
    store = plan.benchmark.store()
    items = plan.benchmark.path or plan.task.name
    with running("evaluate", plan.benchmark.run_id, store, parameters, items) as ledger:
        read, done = _run_stages(plan, ledger)
        arms, perplexities = _found(plan, store, read, done)
        _certify(store, [arm.certificate for arm in arms if arm.certificate is not None])
    result = EvaluateResult(
        run_id=plan.benchmark.run_id,
        task=plan.task.name,
        title=plan.task.title,
        source=plan.benchmark.source,
        items=sum(file.rows for file in read.files),
        rejected={**read.counts[0].dropped, **read.counts[0].failed},
        arms=tuple(arms),
        perplexities=tuple(perplexities),
        paper=_paper(plan),
        snapshot=str(ledger.snapshot),
        tracking=shown_url(plan.tracking),
        done=len(ledger.keys) - ledger.skipped,
        skipped=ledger.skipped,
    )
    run = track(plan, parameters, read, result, ledger.snapshot)
    table = table_of(result)
    bars = embedded_picture(accuracy_figure(plan.task.title, arms), "Accuracy by arm") if arms else ""
    publish_summary(f"## {table.title}\n{bars}\n\n{table.markdown()}", "evaluated", "The figures of every arm")
    publish_link(run.address, "evaluate-mlflow-run", "The run in MLflow")
    publish_link(items_page(plan), "evaluate-viewer", "The items in the viewer")
    return replace(result, mlflow_run=run.run_id, runs_view=run.runs_view, seconds=time.monotonic() - begin)


def _run_stages(plan: EvaluationPlan, ledger: Ledger) -> tuple[ShardResult, dict[Evaluation, list[ShardResult]]]:
    benchmark = plan.benchmark
    ledger.expect(BENCHMARK.name, 1)
    read = run_source(BENCHMARK, benchmark, benchmark.task, task_name=f"{BENCHMARK.name} {benchmark.task}")
    ledger.add(read)
    shards = benchmark_shards(read)
    stage = PERPLEXITY_STAGE if plan.task.rule is Rule.PERPLEXITY else EVALUATE
    ledger.expect(stage.name, len(shards) * len(plan.evaluations))
    groups = cut_evenly(shards, tasks_at_most() // len(plan.evaluations))
    futures: dict[Evaluation, Futures] = {}
    with on_shard_done(ledger.note):
        for evaluation in plan.evaluations:
            about = f"{benchmark.task} {evaluation.arm} k={evaluation.k}" if stage is EVALUATE else evaluation.arm
            futures[evaluation] = submit_for_run(stage, ArmRun(benchmark, evaluation), groups, about)
    for result in finished_shards([future for group in futures.values() for future in group]):
        ledger.add(result)
    return read, {evaluation: results_of(group) for evaluation, group in futures.items()}


def _found(
    plan: EvaluationPlan, store: Store, read: ShardResult, done: dict[Evaluation, list[ShardResult]]
) -> tuple[list[ArmFigures], list[ArmPerplexity]]:
    names = plan.names()
    if plan.task.rule is Rule.PERPLEXITY:
        return [], [arm_perplexity(store, e, names[e], shards) for e, shards in done.items()]
    known = known_by_evaluation(store, plan.task, read, done)
    return arm_figures(store, done, names, word_problems=plan.task.form == "word_problem", known=known), []


def _certify(store: Store, found: Sequence[Certificate]) -> None:
    datasets = {(one.name, one.version): one for one in store.datasets()}
    for one in found:
        write_certificate(store, one)
    for key in datasets.keys() & {(one.dataset, one.version) for one in found}:
        write_card(store, datasets[key])


def _paper(plan: EvaluationPlan) -> dict[str, float]:
    text = measured_text(plan.task.name, plan.benchmark.source)
    return dict(PERPLEXITY.get(text, {}) if plan.task.rule is Rule.PERPLEXITY else plan.task.figures)


def run_evaluate(parameters: EvaluateParameters, runner: str | None = None) -> EvaluateResult:
    """Run the flow in this process; see `choose_runner`."""
    with choose_runner(runner):
        return evaluate(parameters)
