"""Where a flow's tasks run: threads of its process, Dask workers on this machine, or those of a scheduler elsewhere.

The caller of a flow chooses (`choose_runner`), else $TOOLFORMER_RUNNER does. Dask workers may join and leave meanwhile.
"""

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prefect import get_run_logger
from prefect.context import FlowRunContext, TagsContext
from prefect.futures import PrefectFuture
from prefect.settings import PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED, temporary_settings
from prefect.task_runners import ThreadPoolTaskRunner

from flows.runtime.context import repeating, using
from flows.runtime.dask_losses import WorkerWatch, explain_losses, scheduler_lost
from flows.runtime.gpu_workers import TASKS_PER_GPU, gpu_cluster, gpus_of_workers
from flows.runtime.server import guard_prefect_server
from tasks.settings import runner_named, visible_gpus
from toolformer_core.errors import UsageError

_GPU_SHARE = 0.99 / TASKS_PER_GPU  # for a task that asks the model; below a third, so that sums of floats fit in 1
_TASKS = 300  # of a flow; a task costs Prefect's server some 50 ms, and Dask takes a fifth of a second to be given one
_PER_THREAD = 8  # ... or this many for each thread of Dask's workers, that all end at about the same time
# For each worker, where tasks run in threads. Most wait for the model, a tool or the stage before them, and with fewer
# groups under way the model would wait for the next one to begin.
_THREADS = 16

TASK = "_run_group"  # the function that `flows.runtime.stage_tasks` submits, by which Dask names its tasks
_DEATHS = 3  # of workers with the same task among theirs, after which a cluster on this machine gives it up

T = TypeVar("T")

_requested: ContextVar[str | None] = ContextVar("runner", default=None)


@dataclass(slots=True)
class _DaskRun:
    runner: str
    chosen: Any  # Prefect's task runner, which starts a cluster when its client is first used
    gpus: int | None  # workers with a GPU that are expected; None: as many as there are
    needs_gpu: bool  # tasks that ask the model run on workers with a GPU alone; once so, it stays so
    labels: dict[str, str] = field(default_factory=dict)  # Dask's key of a task -> its name
    connected: bool = False

    @property
    def client(self) -> Any:
        client = self.chosen.client
        if not self.connected:
            from flows.runtime.worker_failures import WorkerFailures

            self.connected = True
            client.register_plugin(WorkerFailures(TASK))
        return client

    def is_lost(self) -> bool:
        return self.connected and self.client.status != "running"

    def workers(self) -> dict[str, dict[str, Any]]:
        """Return what the workers say of themselves, by address, and note whether there are GPUs."""
        if self.is_lost():
            raise scheduler_lost(self.runner)
        try:
            workers = dict(self.client.scheduler_info()["workers"])
        except OSError as exc:
            raise scheduler_lost(self.runner) from exc
        if self.gpus is None and any(worker["resources"].get("GPU") for worker in workers.values()):
            self.needs_gpu = True
        return workers


_dask_run: ContextVar[_DaskRun | None] = ContextVar("dask_run", default=None)


@contextmanager
def choose_runner(name: str | None) -> Iterator[None]:
    """Have flows inside this block run tasks in `threads`, on `dask` workers or at a scheduler; None: the default."""
    guard_prefect_server()
    with using(_requested, runner_named(name)):
        yield


def check_gpus(workers: int, gpus: int | None) -> list[str] | None:
    """Return the GPUs that a flow's workers are started for where it runs now; see `gpus_of_workers`."""
    name = _requested.get() or runner_named()
    return gpus_of_workers(name, workers, gpus, visible_gpus() if name == "dask" else ())


def _task_runner(name: str, workers: int, gpus: Sequence[str] | None) -> Any:
    """Return what runs a flow's tasks; the first of Dask's workers here have one of `gpus` each; None: all see all."""
    if name == "threads":
        return ThreadPoolTaskRunner(max_workers=_THREADS * workers)
    from prefect_dask.task_runners import DaskTaskRunner

    if name != "dask":
        return DaskTaskRunner(address=name)
    if gpus is None:
        return DaskTaskRunner(cluster_kwargs={"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None})
    start: Any = gpu_cluster  # Prefect's type for it takes no arguments, which it then passes
    return DaskTaskRunner(cluster_class=start, cluster_kwargs={"gpus": list(gpus), "workers": workers})


@contextmanager
def use_runner(workers: int, gpus: int | None = None) -> Iterator[None]:
    """Inside a flow: run the tasks submitted in this block on the chosen runner, a limited number at a time.

    Args:
        workers: tasks at a time; a scheduler has as many workers as it has.
        gpus: Dask workers on this machine that have a GPU each; None: one for each GPU that is there. Of a scheduler's
            workers: how many with a GPU are expected; None: as many as there are, 0: tasks of the model run on any.

    Raises:
        UsageError: there is no such runner, or its scheduler cannot be reached, or see `gpus_of_workers`.
        RunnerError: Dask's scheduler was lost while the block ran, or it gave up a task whose workers died.
    """
    context = FlowRunContext.get()
    assert context is not None  # else this is no flow
    name = _requested.get() or runner_named()
    with (
        _dask_settings(name),
        _task_runner(name, workers, check_gpus(workers, gpus)) as chosen,
        context.model_copy(update={"task_runner": chosen}),
        TagsContext(current_tags=set()),  # a task with its run's tags would ask the server for a slot of each
        _collecting_less(),
        _use_dask(chosen, name, gpus),
    ):
        yield


@contextmanager
def _use_dask(chosen: Any, name: str, gpus: int | None) -> Iterator[None]:
    if name == "threads":
        yield
        return
    if elsewhere := "://" in name:
        try:
            _ = chosen.client
        except OSError as exc:
            advice = "start it (dask scheduler), or name another"
            raise UsageError(f"no Dask scheduler answers at {name}: {advice}") from exc
    run = _DaskRun(name, chosen, gpus, needs_gpu=bool(gpus))
    with using(_dask_run, run), explain_losses(name, run.is_lost, run.labels), ExitStack() as watching:
        if elsewhere:
            info: Any = run.client.scheduler_info
            watch = WorkerWatch(name, lambda: info()["workers"], lambda: run.needs_gpu, get_run_logger())
            # a scheduler that does not answer would hold up the end
            watching.enter_context(repeating("dask-workers", watch.look, join=False))
        yield


@contextmanager
def _dask_settings(name: str) -> Iterator[None]:
    """Set what tasks on Dask take along, and a cluster of this machine; of a lost scheduler its client logs nothing."""
    if name == "threads":
        yield
        return
    import distributed  # it sets the level of its client's log when it is imported
    from dask import config

    settings = {
        "distributed.scheduler.http.routes": [],  # no pages, as they would answer any host and origin
        "distributed.worker.http.routes": [],
        "distributed.scheduler.allowed-failures": _DEATHS - 1,
    }
    # This process has asked the server for its version. A worker's first task would fail if the server restarts
    # meanwhile; all else that a task tells the server waits for it.
    unchecked = temporary_settings({PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED: False})
    level = distributed.client.logger.level
    distributed.client.logger.setLevel(logging.CRITICAL)
    try:
        with config.set(settings if name == "dask" else {}), unchecked:
            yield
    finally:
        distributed.client.logger.setLevel(level)


@contextmanager
def _collecting_less() -> Iterator[None]:
    """Have Python look for cycles less often: a stub's build spent 1.6 of its 54 s looking, and 0.2 s so."""
    usual = gc.get_threshold()
    gc.set_threshold(20_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def note_submitted(future: PrefectFuture[Any], name: str) -> None:
    """Inside `use_runner`: remember a task's name, which is reported if Dask gives it up."""
    run, own = _dask_run.get(), getattr(future, "wrapped_future", None)
    if run is not None and own is not None:
        run.labels[str(own.key)] = name


def _threads(run: _DaskRun) -> int:
    """Return the threads of the workers that are there, or of those with a GPU that are expected if these are more."""
    there = sum(worker["nthreads"] for worker in run.workers().values())
    return int(max(1, there, TASKS_PER_GPU * (run.gpus or 0)))


def workers_are_here() -> bool:
    """Inside `use_runner`: return whether tasks run on this machine, and so see its files."""
    return (run := _dask_run.get()) is None or "://" not in run.runner


def tasks_at_most() -> int:
    """Inside `use_runner`: return how many tasks the flow may submit for its time's sake."""
    run = _dask_run.get()
    return max(_TASKS, 0 if run is None else _PER_THREAD * _threads(run))


def cut_evenly(items: Sequence[T], most: int) -> list[tuple[T, ...]]:
    """Cut items, in order, into at most `most` groups of one size, give or take one."""
    groups = min(len(items), max(1, most))
    return [tuple(items[len(items) * n // groups : len(items) * (n + 1) // groups]) for n in range(groups)]


def tasks_at_once(workers: int) -> int:
    """Inside `use_runner`: return how many tasks do work at a time, by the workers that are there now or expected."""
    return workers if (run := _dask_run.get()) is None else _threads(run)


def task_resources(*, model: bool) -> AbstractContextManager[Any]:
    """Inside `use_runner`: say which Dask workers the tasks that are submitted in this block may run on.

    Where a worker offers a GPU (`--resources GPU=1`), or is expected to, tasks that ask the model take a third of one:
    they run on such workers alone and first, three at a time for each GPU, so that one keeps the model at work while
    others begin or end. Other tasks go anywhere. None names workers: where all that a task names have left, Dask
    (2026.8) does not give it to one that comes later. A RunnerError: the scheduler does not answer.
    """
    run = _dask_run.get()
    if run is None:
        return nullcontext()
    from dask.base import annotate

    run.workers()
    return annotate(resources={"GPU": _GPU_SHARE}, priority=1) if model and run.needs_gpu else nullcontext()
