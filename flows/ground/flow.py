"""The flow `ground`: GEAR and models by themselves choose tools for queries of benchmarks, and each choice answers.

Scores stand in the warehouse in parts, so gamma, lambda and thresholds are queries; figures stand in one MLflow run.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prefect import flow

from flows.forms.resolved import resolved
from flows.ground.metrics import GroundResult, TaskShards, figures_of
from flows.ground.parameters import GroundParameters
from flows.ground.resolve import GroundingPlan, resolve
from flows.ground.tables import summary
from flows.ground.tracking import track
from flows.runtime.artifacts import publish_link, publish_summary, run_name_from
from flows.runtime.ledger import Ledger
from flows.runtime.runners import check_gpus, choose_runner, cut_evenly, tasks_at_most
from flows.runtime.running import begin_flow, running
from flows.runtime.stage_tasks import Futures, finished_shards, results_of, run_source, submit_for_run
from tasks.shards.run_shard import on_shard_done
from tasks.shards.stage import Stage
from tasks.specs.grounding_spec import CHOSEN_BY_A_MODEL, AnswerRun, ChoiceRun, GroundingRun
from tasks.stages.answer_grounded import ANSWER_GROUNDED
from tasks.stages.benchmark import BENCHMARK, benchmark_shards
from tasks.stages.ground import CHOOSE, GROUND
from warehouse.store import Store


@flow(name="ground", flow_run_name=run_name_from("ground {task} benchmarks with {model}"))
def ground(parameters: GroundParameters) -> GroundResult:
    """Choose a tool of a library for every query of benchmarks, and answer with it."""
    begin = time.monotonic()
    begin_flow()
    check_gpus(parameters.workers, parameters.gpus)
    plan = resolved(parameters, resolve)
    store = Store(plan.data)
    with running("ground", plan.run_id, store, parameters, ", ".join(one.task.name for one in plan.tasks)) as ledger:
        done = _run_stages(plan, ledger)
    result = figures_of(plan, store, done)
    run = track(plan, parameters, done, result)
    publish_summary(summary(result), "grounded", "Right tools and right answers, by benchmark and method")
    publish_link(run.address, "ground-mlflow-run", "The run in MLflow")
    return replace(
        result,
        snapshot=str(ledger.snapshot),
        mlflow_run=run.run_id,
        runs_view=run.runs_view,
        done=len(ledger.keys) - ledger.skipped,
        skipped=ledger.skipped,
        seconds=time.monotonic() - begin,
    )


def _run_stages(plan: GroundingPlan, ledger: Ledger) -> list[TaskShards]:
    ledger.expect(BENCHMARK.name, len(plan.tasks))
    done = []
    for planned in plan.tasks:
        benchmark = planned.grounding.benchmark
        read = run_source(BENCHMARK, benchmark, f"{benchmark.task}-sample", task_name=f"benchmark {benchmark.task}")
        ledger.add(read)
        done.append(TaskShards(planned, read))
    submitted = _submit(done, ledger)
    for result in finished_shards([future for futures in submitted.values() for future in futures]):
        ledger.add(result)
    for one in done:
        one.ground = results_of(submitted[one.plan.grounding])
        one.choose = {run.method: results_of(submitted[run]) for run in one.plan.choices}
        one.answer = {run.method: results_of(submitted[run]) for run in one.plan.answers}
    return done


def _submit(done: Sequence[TaskShards], ledger: Ledger) -> dict[GroundingRun | ChoiceRun | AnswerRun, Futures]:
    tasks = sum(1 + len(one.plan.choices) + len(one.plan.answers) for one in done)
    futures: dict[GroundingRun | ChoiceRun | AnswerRun, Futures] = {}

    def submit(stage: Stage[Any], run: Any, one: TaskShards, before: Mapping[str, Futures], about: str = "") -> None:
        cut = cut_evenly(benchmark_shards(one.read), max(1, tasks_at_most() // tasks))
        ledger.expect(stage.name, sum(map(len, cut)))
        futures[run] = submit_for_run(stage, run, cut, f"{one.plan.task.name} {about}".rstrip(), before)

    with on_shard_done(ledger.note):
        for one in done:
            submit(GROUND, one.plan.grounding, one, {})
        for method in CHOSEN_BY_A_MODEL:
            for one in done:
                for choice in (choice for choice in one.plan.choices if choice.method == method):
                    submit(CHOOSE, choice, one, {}, method)
        for one in done:
            chosen = {choice.method: {CHOOSE.name: futures[choice]} for choice in one.plan.choices}
            chosen |= {method: {GROUND.name: futures[one.plan.grounding]} for method in ("gear", "cosine")}
            for answer in one.plan.answers:
                submit(ANSWER_GROUNDED, answer, one, chosen.get(answer.method, {}), answer.method)
    return futures


def run_ground(parameters: GroundParameters, runner: str | None = None) -> GroundResult:
    """Run the flow in this process; see `choose_runner`."""
    with choose_runner(runner):
        return ground(parameters)
