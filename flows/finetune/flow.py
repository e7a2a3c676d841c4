"""The flow `finetune`: launches a training job, follows it, and reports its events to Prefect and MLflow.

Cancelled or interrupted, it asks the job to stop, which saves a checkpoint for the same call to resume from. If it is
killed, the training goes on, and the same call follows it again.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.logging.loggers import flow_run_logger
from prefect.runtime import flow_run as this_run

from flows.build_dataset.notes import notes_on_training
from flows.finetune.parameters import FinetuneParameters
from flows.finetune.profiles import load_profile
from flows.finetune.resolve import FinetunePlan, check_machine, jobs_folder, resolve
from flows.finetune.tracking import close_run, start_run
from flows.forms.resolved import resolved
from flows.lineage.send import send_run
from flows.report.tables import markdown_table
from flows.runtime.artifacts import WorkProgress, publish_link, publish_summary, run_name_from
from flows.runtime.context import using
from flows.runtime.ledger import republish
from flows.runtime.running import begin_flow, stopping_if_cancelled
from flows.runtime.server import guard_prefect_server
from flows.runtime.stopping import Stopped
from tasks.environment import prepare_environment
from tasks.launch.base import LaunchError, LostError
from tasks.settings import shown_url
from tasks.training.job import FinetuneSpec, JobCard, write_job_folder
from tasks.training.monitor import follow, stop
from tasks.training.outcome import TrainingError, TrainingEvent, TrainingOutcome
from tasks.training.records import record_training
from tasks.training.registry import finished_finetune
from tasks.training.starting import job_lock, launch
from tasks.viewer_links import version_page
from toolformer_core.finetune.checkpoints import best
from toolformer_core.finetune.events import read_events
from warehouse.errors import LockHeldError, WarehouseError
from warehouse.store import Store

__all__ = ["FinetuneResult", "finetune", "reporting_events_to", "run_finetune"]

_FLOW_NOTE = "flow_run"  # in the job's folder: the flow run that follows it

Report = Callable[[TrainingEvent], None]
_report: ContextVar[Report | None] = ContextVar("report", default=None)


@dataclass(frozen=True, slots=True)
class FinetuneResult:
    folder: str
    model: str  # the best checkpoint, for `from_pretrained`
    arm: str
    dataset: str  # name@version
    steps: int
    best_step: int | None
    best_perplexity: float | None  # on the development documents
    base_perplexity: float | None  # of the model before training
    tracking: str
    run_id: str  # MLflow's
    runs_view: str  # how to open the table of runs in MLflow
    skipped: bool  # it was finished already
    seconds: float


def reporting_events_to(report: Report) -> AbstractContextManager[None]:
    """Call `report` with every event of the trainings inside this block."""
    return using(_report, report)


@task(name="prepare", task_run_name="prepare {spec.arm}")
def prepare_job(spec: FinetuneSpec, data: str) -> JobCard:
    return write_job_folder(spec, Store(data))


def _is_retryable(task: Any, run: Any, state: Any) -> bool:
    error = state.result(raise_on_failure=False)
    retryable = isinstance(error, TrainingError) and error.retryable
    if retryable and (report := _report.get()) is not None:
        report({"event": "retried", "message": error.message})
    return retryable


@task(
    name="train",
    task_run_name="train {plan.spec.arm}",
    retry_condition_fn=_is_retryable,
    retry_delay_seconds=1,
    cache_policy=NO_CACHE,
)
def train_job(plan: FinetunePlan, run: Any, started: float) -> TrainingOutcome:
    """Launch the job, or find it running, and follow it until it ends."""
    folder, logger, report = plan.spec.folder, get_run_logger(), _report.get()
    (folder / _FLOW_NOTE).write_text(f"{this_run.id}\n", encoding="utf-8")
    handle = launch(plan.launcher, folder, plan.processes, plan.profile.python or None)
    logger.info("%s: %s, output in %s", plan.launcher.name, handle, folder / "log.txt")
    progress, steps = WorkProgress("finetune"), plan.spec.recipe.steps

    def on_events(events: list[TrainingEvent]) -> None:
        run.record(events)
        if (last := next((event for event in reversed(events) if event["event"] == "step"), None)) is not None:
            speed = f"{last['tokens_per_second']:,.0f} tokens/s, {last['eta_s']:,.0f} s left"
            line = f"step {last['step']:,} of {steps:,}, loss {last['loss']:.3f}, {speed}"
            progress.show(100.0 * last["step"] / steps, line)
        for event in (event for event in events if event["t"] >= started):  # a retry reads the whole file again
            if event["event"] == "evaluated":
                logger.info("step %s: perplexity %.3f on the dev documents", event["step"], event["perplexity"])
            if event["event"] == "damaged":
                logger.warning("the checkpoint at step %s is damaged, and passed over", event["step"])
            if report is not None:
                report(event)

    def on_wait(detail: str) -> None:
        logger.info("not begun yet: %s", detail or "no reason given")
        if report is not None:
            report({"event": "waiting", "reason": detail})

    outcome = follow(plan.launcher, handle, folder, on_events, on_wait=on_wait)
    progress.show(100.0, f"{steps:,} steps")
    return outcome


def end_cancelled(flow: Any, flow_run: Any, state: Any) -> None:
    """Stop a cancelled flow run's job with a checkpoint, and close its MLflow run, if the run's own process could not.

    A worker calls it when it has killed that process, after 30 seconds.
    """
    parameters = FinetuneParameters.model_validate(flow_run.parameters["parameters"])
    profile = load_profile(parameters.profile)
    notes = jobs_folder(profile, Store(parameters.data)).glob(f"*/{_FLOW_NOTE}")
    # by the flow run's id, as the dataset may have a newer version by now
    folder = next((n.parent for n in notes if n.read_text(encoding="utf-8").strip() == str(flow_run.id)), None)
    if folder is None:
        return  # cancelled before anything was launched
    ran = stop(profile.build_launcher(), folder, lambda events: None)
    flow_run_logger(flow_run, flow).info("%s: %s", folder, "stopped" if ran else "had stopped")
    prepare_environment()
    close_run(folder, parameters.data)


@flow(
    name="finetune",
    flow_run_name=run_name_from("finetune {model} on {dataset}, {arm}, {steps} steps"),
    on_cancellation=[end_cancelled],
)
def finetune(parameters: FinetuneParameters) -> FinetuneResult:
    """Finetune a model on C*, or on the same documents without calls."""
    begin, started = time.monotonic(), time.time()
    begin_flow()
    plan = resolved(parameters, resolve)
    check_machine(plan)
    dataset, folder = plan.spec.dataset, plan.spec.folder
    for note in notes_on_training(parameters.model, dataset.model):
        get_run_logger().warning(note)
    with job_lock(folder):
        card = prepare_job(plan.spec, parameters.data)
        finished = _finished(folder)
        run = start_run(plan, parameters, card)
    if finished is not None:
        run.record(read_events(folder)[0])
    outcome = finished or _train(plan, run, parameters, started)
    run.figures()
    run.finish("FINISHED")
    _record(folder, Store(parameters.data))
    evaluated = (e for e in read_events(folder)[0] if e["event"] == "evaluated" and e["step"] == 0)
    base = next((e["perplexity"] for e in evaluated), None)
    result = FinetuneResult(
        folder=str(folder),
        model=str(folder / "model"),
        arm=parameters.arm,
        dataset=f"{dataset.name}@{dataset.version}",
        steps=outcome.step,
        best_step=outcome.best_step,
        best_perplexity=outcome.best_perplexity,
        base_perplexity=base,
        tracking=shown_url(plan.tracking),
        run_id=run.run_id,
        runs_view=run.runs_view,
        skipped=finished is not None,
        seconds=time.monotonic() - begin,
    )
    tau_f = ", ".join(f"{tool} {tau_f:g}" for tool, tau_f in dataset.thresholds.items())
    rows = [*training_rows(result), ("model", result.model), ("tau_f", tau_f)]
    publish_summary(markdown_table(["", ""], rows), "finetuned", "Perplexity, checkpoint and thresholds")
    publish_link(run.address, "finetune-mlflow-run", "The run in MLflow")
    publish_link(version_page(result.dataset), "finetune-viewer", "What it was trained on, in the viewer")
    return result


def _record(folder: Path, store: Store) -> None:
    try:
        if (training := finished_finetune(folder)) is not None:
            record_training(store, training)
            republish(store)
            send_run(store, folder.name)
    except WarehouseError as exc:
        get_run_logger().warning("this training is not recorded in the warehouse: %s", exc)


def _finished(folder: Path) -> TrainingOutcome | None:
    ended = next((e for e in reversed(read_events(folder)[0]) if e["event"] == "finished"), None)
    if ended is None or not (folder / "model").is_dir():
        return None
    checkpoint = best(folder)
    figures = (None, None) if checkpoint is None else (checkpoint.step, checkpoint.perplexity)
    return TrainingOutcome(True, ended["step"], *figures)


def _train(plan: FinetunePlan, run: Any, parameters: FinetuneParameters, started: float) -> TrainingOutcome:
    try:
        with stopping_if_cancelled():
            outcome = train_job.with_options(retries=parameters.retries)(plan, run, started)
    except (LostError, LockHeldError):
        raise  # the training may go on, and so may its MLflow run
    except BaseException as exc:
        if isinstance(exc, TrainingError):
            tail = f"**{exc}**\n\n```\n{exc.tail}\n```\n"
            publish_summary(tail, "training-failure", "Why it failed, and the end of its log")
        run.finish("FAILED" if isinstance(exc, TrainingError | LaunchError) else "KILLED")
        raise
    if not outcome.finished:
        run.finish("KILLED")
        how = f": {outcome.reason}" if outcome.reason else " with a checkpoint"
        raise Stopped(f"training stopped at step {outcome.step}{how}; run it again to go on")
    return outcome


def training_rows(result: FinetuneResult) -> list[tuple[str, str]]:
    """Return what a training came to, in pairs of name and value, as pages and the terminal show it."""
    before, after = (
        "not measured" if p is None else f"{p:.3f}" for p in (result.base_perplexity, result.best_perplexity)
    )
    best = "" if result.best_step is None else f" at step {result.best_step:,}"
    return [
        ("dataset", f"{result.dataset}, arm {result.arm}"),
        ("dev perplexity", f"{before} before, {after}{best}, of {result.steps:,} steps"),
        ("MLflow", f"run {result.run_id} in {result.tracking}"),
    ]


def run_finetune(parameters: FinetuneParameters) -> FinetuneResult:
    """Run the flow in this process; it raises a UsageError for a wrong parameter, a TrainingError, or `Stopped`."""
    guard_prefect_server()
    return finetune(parameters)
