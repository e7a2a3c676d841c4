"""The flow `finetune`: a dataset version to a checkpoint, trained where the GPUs are.

It names the job by all its result depends on, launches it by the profile's launcher, follows it, and tells Prefect (a
progress artifact) and MLflow (params, curves, checkpoints) what its events say. It trains nothing itself. Cancelled or
interrupted, it asks the job to stop and leaves a checkpoint from which the same call goes on. A worker kills a
cancelled flow run after 30 seconds; then `end_cancelled`, in a process of its own, waits for the job in its place.
Killed without being cancelled, the flow run leaves the training running, and the same call follows it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.logging.loggers import flow_run_logger
from prefect.runtime import flow_run as this_run

from flows.artifacts import named, publish_link, publish_summary
from flows.build_tracking import track_build
from flows.finetune_plan import FinetuneParameters, FinetunePlan, check_machine, jobs_folder, plan_finetune
from flows.ledger import republish
from flows.notes import notes_on_training
from flows.server import guard_prefects_start, note_server
from flows.stopping import keep_stop_handler
from flows.training_profiles import load_profile
from tasks.finetune import Card, FinetuneSpec, prepare
from tasks.finetuned import MLFLOW_NOTE, finished_finetune, model_label
from tasks.following import Outcome, TrainingError, alone, follow, launch, stop
from tasks.launch.base import LaunchError, LostError
from tasks.settings import prepare as quieten
from tasks.settings import shown_url, tracking_uri, versions
from tasks.trainings import record_training
from toolformer_core.errors import ToolformerError
from toolformer_core.finetune.checkpoints import best
from toolformer_core.finetune.events import read_events
from toolformer_core.finetune.recipe import Recipe
from warehouse.errors import LockHeldError, WarehouseError
from warehouse.store import Store

__all__ = [
    "FinetuneResult",
    "Stopped",
    "finetune",
    "reporting_to",
    "run_finetune",
]

_ARTIFACT_S = 2.0  # seconds between two updates of the progress artifact
_FLOW_NOTE = "flow_run"  # in the job's folder: the flow run that follows it

Event = dict[str, Any]
Report = Callable[[Event], None]
_report: ContextVar[Report | None] = ContextVar("report", default=None)


@dataclass(frozen=True, slots=True)
class FinetuneResult:
    """What a training left behind."""

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
    skipped: bool  # found finished
    seconds: float


class Stopped(ToolformerError):
    """The training stopped because it was asked to; the same call goes on from its checkpoint."""


@contextmanager
def reporting_to(report: Report) -> Iterator[None]:
    """Tell `report` of every event of the trainings inside this block."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


@task(name="prepare", task_run_name="prepare {spec.arm}")
def prepare_job(spec: FinetuneSpec, data: str) -> Card:
    """Write the job's folder with its texts."""
    return prepare(spec, Store(data))


def _may_pass(task: Any, run: Any, state: Any) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, TrainingError) and error.may_pass


@task(
    name="train",
    task_run_name="train {plan.spec.arm}",
    retry_condition_fn=_may_pass,
    retry_delay_seconds=1,
    cache_policy=NO_CACHE,
)
def train_job(plan: FinetunePlan, run: Any, started: float) -> Outcome:
    """Launch the job, or find it running, and follow it to its end."""
    folder = plan.spec.folder
    logger = get_run_logger()
    (folder / _FLOW_NOTE).write_text(f"{this_run.id}\n", encoding="utf-8")
    handle = launch(plan.launcher, folder, plan.processes, plan.profile.python or None)
    logger.info("%s: %s, output in %s", plan.launcher.name, handle, folder / "log.txt")
    progress = _Progress(plan.spec.recipe.steps)
    report = _report.get()

    def seen(events: list[Event]) -> None:
        run.record(events)
        fresh = [event for event in events if event["t"] >= started]  # a retry reads the whole file again
        progress.show(events)
        for event in fresh:
            if event["event"] == "evaluated":
                logger.info("step %s: perplexity %.3f on the dev documents", event["step"], event["perplexity"])
            if event["event"] == "damaged":
                logger.warning("the checkpoint at step %s is damaged, and passed over", event["step"])
        if report is not None:
            for event in fresh:
                report(event)

    def waits(detail: str) -> None:
        logger.info("not begun yet: %s", detail or "no reason given")

    outcome = follow(plan.launcher, handle, folder, seen, waits=waits)
    progress.done()
    return outcome


class _Progress:
    """The flow run's progress artifact."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._id: UUID = create_progress_artifact(0.0, key="finetune", description="starting")  # type: ignore[assignment]
        self._shown = 0.0

    def show(self, events: list[Event]) -> None:
        steps = [event for event in events if event["event"] == "step"]
        if steps and time.monotonic() - self._shown > _ARTIFACT_S:
            self._shown = time.monotonic()
            last = steps[-1]
            told = (
                f"step {last['step']:,} of {self._steps:,}, loss {last['loss']:.3f}, "
                f"{last['tokens_per_second']:,.0f} tokens/s, {last['eta_s']:,.0f} s left"
            )
            update_progress_artifact(self._id, 100.0 * last["step"] / self._steps, description=told)

    def done(self) -> None:
        update_progress_artifact(self._id, 100.0, description=f"{self._steps:,} steps")


def end_cancelled(flow: Any, flow_run: Any, state: Any) -> None:
    """See a cancelled flow run's job to its checkpoint, and close its MLflow run, if the run's own process could not.

    A worker calls it when that process is gone. The job is found by the flow run's id in its folder: what the
    parameters name may have a newer version by now.
    """
    parameters = FinetuneParameters.model_validate(flow_run.parameters["parameters"])
    profile = load_profile(parameters.profile)
    notes = jobs_folder(profile, Store(parameters.data)).glob(f"*/{_FLOW_NOTE}")
    folder = next((n.parent for n in notes if n.read_text(encoding="utf-8").strip() == str(flow_run.id)), None)
    if folder is None:
        return  # cancelled before anything was launched
    ran = stop(profile.build_launcher(), folder, lambda events: None)
    flow_run_logger(flow_run, flow).info("%s: %s", folder, "stopped" if ran else "had stopped")
    quieten()
    from tasks.tracking import Tracking, TrainingRun

    client = Tracking(tracking_uri(parameters.data)).client
    run_id = (folder / MLFLOW_NOTE).read_text(encoding="utf-8").strip()
    if client.get_run(run_id).info.status == "RUNNING":
        run = TrainingRun(client, run_id, folder=str(folder))
        run.record(read_events(folder)[0])
        run.finish("KILLED")


@flow(
    name="finetune",
    flow_run_name=named("finetune {model} on {dataset}, {arm}, {steps} steps"),
    on_cancellation=[end_cancelled],
)
def finetune(parameters: FinetuneParameters) -> FinetuneResult:
    """Finetune a model on C*, or on the same documents without calls.

    Args:
        parameters: dataset, model, arm and recipe; the profile says where.
    """
    begin = time.monotonic()
    started = time.time()
    quieten()
    note_server()
    keep_stop_handler()
    plan = plan_finetune(parameters)
    check_machine(plan)
    for note in notes_on_training(parameters.model, plan.spec.dataset.model):
        get_run_logger().warning(note)
    with alone(plan.spec.folder):
        card = prepare_job(plan.spec, parameters.data)
        found = _finished(plan.spec.folder)
        run = _tracked(plan, parameters, card)
    if found is None:
        outcome = _train(plan, run, parameters, started)
    else:
        outcome = found
        run.record(read_events(plan.spec.folder)[0])
    run.figures()
    run.finish("FINISHED")
    _record(plan.spec.folder, Store(parameters.data))
    events = read_events(plan.spec.folder)[0]
    base = next((e["perplexity"] for e in events if e["event"] == "evaluated" and e["step"] == 0), None)
    result = FinetuneResult(
        folder=str(plan.spec.folder),
        model=str(plan.spec.folder / "model"),
        arm=parameters.arm,
        dataset=f"{plan.spec.dataset.name}@{plan.spec.dataset.version}",
        steps=outcome.step,
        best_step=outcome.best_step,
        best_perplexity=outcome.best_perplexity,
        base_perplexity=base,
        tracking=shown_url(plan.tracking),
        run_id=run.run_id,
        skipped=found is not None,
        seconds=time.monotonic() - begin,
    )
    publish_summary(_card(result, plan.spec.dataset.thresholds), "finetuned")
    publish_link(run.address, "finetune-mlflow-run", "The run in MLflow")
    return result


def _record(folder: Path, store: Store) -> None:
    """Have the warehouse tell of the training. A failure is only logged: the checkpoint is there."""
    try:
        if (one := finished_finetune(folder)) is not None:
            record_training(store, one)
            republish(store)
    except WarehouseError as exc:
        get_run_logger().warning("the warehouse does not tell of this training: %s", exc)


def _finished(folder: Path) -> Outcome | None:
    """Return how the job ended, if its model is there."""
    events = [e for e in read_events(folder)[0] if e["event"] == "finished"]
    if not events or not (folder / "model").is_dir():
        return None
    chosen = best(folder)
    return Outcome(
        True,
        events[-1]["step"],
        None if chosen is None else chosen.step,
        None if chosen is None else chosen.perplexity,
    )


def _train(plan: FinetunePlan, run: Any, parameters: FinetuneParameters, started: float) -> Outcome:
    """Train, and close the MLflow run if that comes to nothing.

    Raises:
        TrainingError: it failed, after all retries.
        Stopped: it was asked to stop.
    """
    try:
        outcome = train_job.with_options(retries=parameters.retries)(plan, run, started)
    except TrainingError as exc:
        publish_summary(f"**{exc}**\n\n```\n{exc.tail}\n```\n", "training-failure")
        run.finish("FAILED")
        raise
    except (LostError, LockHeldError):
        raise  # the training may go on, and so may its MLflow run
    except LaunchError:
        run.finish("FAILED")
        raise
    except BaseException:
        run.finish("KILLED")
        raise
    if not outcome.finished:
        run.finish("KILLED")
        raise Stopped(f"training stopped at step {outcome.step} with a checkpoint; run it again to go on")
    return outcome


def _tracked(plan: FinetunePlan, p: FinetuneParameters, card: Card) -> Any:
    """Begin the MLflow run, or go on with the job's own."""
    from tasks.tracking import DatasetRef, Tracking, project

    spec = plan.spec
    note = spec.folder / MLFLOW_NOTE
    known = note.read_text(encoding="utf-8").strip() if note.is_file() else None
    name = f"{spec.dataset.name}@{spec.dataset.version}"
    where = f"{p.data}/datasets/{spec.dataset.name}"
    datasets = [DatasetRef(name, card.train_digest, where, "train", card.train)]
    if card.dev:
        datasets.append(DatasetRef(f"{spec.dataset.name}-dev", card.dev_digest, spec.dataset.corpus, "dev", card.dev))
    base = model_label(p.model)
    tracking = Tracking(plan.tracking)
    run = tracking.start(
        experiment=project(p.data),
        name=f"{base} {p.arm} {name} {spec.digest[:8]}",
        params={
            "dataset": name,
            "dataset_digest": spec.dataset.version,
            "tau_f": spec.dataset.thresholds,
            "arm": p.arm,
            "model": p.model,
            "model_digest": spec.model_digest,
            "annotator": spec.dataset.model,
            "recipe": _flat(spec.recipe),
            "dev_documents": card.dev,
            "profile": p.profile,
            "launcher": plan.launcher.name,
            "processes": plan.processes,
            "code": versions(),
        },
        tags={
            "kind": "finetune",
            "arm": p.arm,
            "dataset": name,
            "dataset_digest": spec.dataset.version,
            "job": spec.digest,
            **(
                {"registered_model": f"toolformer-{base}"} if p.arm == "toolformer" else {}
            ),  # no candidate without calls
        },
        datasets=datasets,
        sources={"build": track_build(tracking, Store(p.data), p.data, spec.dataset)},
        run_id=known,
        folder=str(spec.folder),
        system_metrics=plan.launcher.name == "local",
    )
    note.write_text(run.run_id + "\n", encoding="utf-8")
    return run


def _flat(recipe: Recipe) -> dict[str, Any]:
    from dataclasses import asdict

    return {k: v for k, v in asdict(replace(recipe)).items() if v is not None and v != {}}


def _card(result: FinetuneResult, thresholds: Mapping[str, float]) -> str:
    def shown(value: float | None) -> str:
        return "not measured" if value is None else f"{value:.3f}"

    return (
        f"| | |\n|---|---|\n| model | `{result.model}` |\n| arm | {result.arm} |\n| dataset | {result.dataset} |\n"
        f"| tau_f | {', '.join(f'{tool} {tau_f:g}' for tool, tau_f in thresholds.items())} |\n"
        f"| dev perplexity before | {shown(result.base_perplexity)} |\n"
        f"| best dev perplexity | {shown(result.best_perplexity)} at step {result.best_step} |\n"
        f"| MLflow run | {result.run_id} |\n"
    )


def run_finetune(parameters: FinetuneParameters) -> FinetuneResult:
    """Run the flow in this process.

    Raises:
        UsageError: something asked for is wrong.
        TrainingError, Stopped: see `finetune`.
    """
    guard_prefects_start()
    return finetune(parameters)
