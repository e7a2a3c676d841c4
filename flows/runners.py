"""Where a flow's tasks run: threads of its process, Dask workers on this machine, or those of a scheduler elsewhere.

The caller of a flow chooses (`choose_runner`), else $TOOLFORMER_RUNNER does; how many tasks run at a time is one of the
flow's parameters. A deployed flow is called by Prefect, so it takes its runner when it runs (`use_runner`), not when it
is imported. What the tasks do is not known here.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

from prefect.context import FlowRunContext
from prefect.task_runners import ThreadPoolTaskRunner

from flows.gpu_workers import TASKS_PER_GPU, gpu_cluster, gpus_of_workers
from tasks.settings import runner_named, visible_gpus
from toolformer_core.errors import UsageError

__all__ = [
    "check_gpus",
    "choose_runner",
    "cut_evenly",
    "task_resources",
    "task_runner",
    "tasks_at_most",
    "tasks_at_once",
    "use_runner",
]

_TASKS = 300  # of a flow; a task costs Prefect's server some 50 ms, and Dask takes a fifth of a second to be given one
_PER_THREAD = 8  # ... or so many for each thread of Dask's workers, that all end at about the same time
_GPU_SHARE = 0.99 / TASKS_PER_GPU  # for a task that asks the model; below a third, so that sums of floats fit in 1
_THREADS = 16  # for each worker, where tasks run in threads; see `task_runner`

T = TypeVar("T")

_asked: ContextVar[str | None] = ContextVar("runner", default=None)


@contextmanager
def choose_runner(name: str | None) -> Iterator[None]:
    """Have the flows that are called inside this block run their tasks there; None: as the environment says.

    Raises:
        UsageError: there is no such runner.
    """
    token = _asked.set(runner_named(name))
    try:
        yield
    finally:
        _asked.reset(token)


def check_gpus(workers: int, gpus: int | None) -> list[str] | None:
    """Return the GPUs that a flow's workers are started for where it runs now, one each; None: none in particular.

    Raises:
        UsageError: see `gpus_of_workers`.
    """
    name = _asked.get() or runner_named()
    return gpus_of_workers(name, workers, gpus, visible_gpus() if name == "dask" else ())


def task_runner(name: str, workers: int, gpus: Sequence[str] | None = None) -> Any:
    """Return what runs a flow's tasks.

    Args:
        name: `threads`, `dask`, or a Dask scheduler's address.
        workers: tasks at a time; a scheduler has as many workers as it has. Of threads there are sixteen times as
            many: a task that waits for the model, a tool or the stage before it does nothing in its thread, and with
            fewer groups under way the model would wait for the next one to begin.
        gpus: of Dask workers on this machine the first have one of these each, and the others none; None: all see all.
    """
    if name == "threads":
        return ThreadPoolTaskRunner(max_workers=_THREADS * workers)
    from prefect_dask.task_runners import DaskTaskRunner

    if name == "dask" and gpus is not None:
        start: Any = gpu_cluster  # Prefect's type for it takes no arguments, which it then passes
        return DaskTaskRunner(cluster_class=start, cluster_kwargs={"gpus": list(gpus), "workers": workers})
    if name == "dask":
        return DaskTaskRunner(cluster_kwargs={"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None})
    return DaskTaskRunner(address=name)


@contextmanager
def use_runner(workers: int, gpus: int | None = None) -> Iterator[None]:
    """Inside a flow: run the tasks submitted in this block where it was asked for, so many at a time.

    Args:
        workers: see `task_runner`.
        gpus: Dask workers on this machine that have a GPU each; None: one for each GPU that is there.

    Raises:
        UsageError: $TOOLFORMER_RUNNER names no runner, its scheduler cannot be reached, or see `gpus_of_workers`.
    """
    context = FlowRunContext.get()
    if context is None:
        raise RuntimeError("use_runner() is for the inside of a flow")
    name = _asked.get() or runner_named()
    with (
        _no_pages(name),
        task_runner(name, workers, check_gpus(workers, gpus)) as chosen,
        context.model_copy(update={"task_runner": chosen}),
        _collecting_less(),
    ):
        if "://" in name:
            _reach(chosen, name)
        yield


def _no_pages(name: str) -> AbstractContextManager[Any]:
    """Have the Dask scheduler and workers that a flow starts serve no page: theirs would answer any host and origin."""
    if name != "dask":
        return nullcontext()
    from dask import config

    return config.set({"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []})


@contextmanager
def _collecting_less() -> Iterator[None]:
    """Have Python look for cycles less often: a shard's objects are many, and every look stops all threads.

    With Python's own (700, 10, 10) a stub's build of 2,000 documents spent 1.6 of its 54 s looking, and 0.2 s so.
    """
    usual = gc.get_threshold()
    gc.set_threshold(20_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _reach(chosen: Any, address: str) -> None:
    try:
        _ = chosen.client
    except OSError as exc:
        raise UsageError(f"no Dask scheduler answers at {address}: start it (dask scheduler), or name another") from exc


def _workers() -> dict[str, dict[str, Any]] | None:
    """Return what the Dask workers say of themselves, by address; None: tasks run in threads."""
    context = FlowRunContext.get()
    client = getattr(context.task_runner, "client", None) if context is not None else None
    return None if client is None else dict(client.scheduler_info()["workers"])


def tasks_at_most() -> int:
    """Inside `use_runner`: return how many tasks the flow may submit for its time's sake."""
    workers = _workers()
    return (
        _TASKS if workers is None else max(_TASKS, _PER_THREAD * sum(worker["nthreads"] for worker in workers.values()))
    )


def tasks_at_once(workers: int) -> int:
    """Inside `use_runner`: return how many tasks do work at a time.

    Args:
        workers: as many do in threads.
    """
    found = _workers()
    return workers if found is None else max(1, sum(worker["nthreads"] for worker in found.values()))


def cut_evenly(items: Sequence[T], most: int) -> list[tuple[T, ...]]:
    """Cut items, in order, into at most `most` groups of one size, give or take one."""
    groups = min(len(items), max(1, most))
    return [tuple(items[len(items) * n // groups : len(items) * (n + 1) // groups]) for n in range(groups)]


def task_resources(*, model: bool) -> AbstractContextManager[Any]:
    """Inside `use_runner`: say which Dask workers the tasks that are submitted in this block may run on.

    Where a worker offers a GPU, as those of `gpu_cluster` do and any that is started by `dask worker ADDRESS
    --nthreads 3 --resources GPU=1`, tasks that ask the model take a third of one: they run there alone, three at a time
    for each GPU that the worker offers. A process asks its model for one shard at a time; while some tasks begin or
    end, another keeps it at work. Other tasks go to workers without a GPU, if there are any, unless one with a GPU is
    idle. Workers that come later do not count.

    Args:
        model: the tasks ask the model.
    """
    workers = _workers() or {}
    with_gpu = {address for address, worker in workers.items() if worker["resources"].get("GPU")}
    if not with_gpu:
        return nullcontext()
    from dask.base import annotate

    if model:
        return annotate(resources={"GPU": _GPU_SHARE})
    others = sorted(workers.keys() - with_gpu)
    return annotate(workers=others, allow_other_workers=True) if others else nullcontext()
