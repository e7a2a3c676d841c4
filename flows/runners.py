"""Where a flow's tasks run: threads of its process, Dask workers on this machine, or those of a scheduler elsewhere.

Which of them is said by whoever calls the flow (`on`), else by $TOOLFORMER_RUNNER; how many tasks run at a time is a
parameter of the flow. A deployed flow is called by Prefect, so it chooses when it runs (`running`), not when it is
imported. What the tasks do is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from prefect.context import FlowRunContext
from prefect.task_runners import ThreadPoolTaskRunner

from tasks.settings import runner_named
from toolformer_core.errors import UsageError

__all__ = ["model_resources", "on", "running", "taking", "task_runner"]

_asked: ContextVar[str | None] = ContextVar("runner", default=None)


@contextmanager
def on(name: str | None) -> Iterator[None]:
    """Have the flows that are called inside this block run their tasks there; None: as the environment says.

    Raises:
        UsageError: there is no such runner.
    """
    token = _asked.set(runner_named(name))
    try:
        yield
    finally:
        _asked.reset(token)


def task_runner(name: str, workers: int) -> Any:
    """Return what runs a flow's tasks.

    Args:
        name: `threads`, `dask`, or a Dask scheduler's address.
        workers: tasks at a time; a scheduler has as many workers as it has. Of threads there are twice as many: one
            that waits for the model, or for what its task rests on, does nothing, and with too few of them the model
            waits for the next shard.
    """
    if name == "threads":
        return ThreadPoolTaskRunner(max_workers=2 * workers)
    from prefect_dask.task_runners import DaskTaskRunner

    if name == "dask":
        return DaskTaskRunner(cluster_kwargs={"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None})
    return DaskTaskRunner(address=name)


@contextmanager
def running(workers: int) -> Iterator[None]:
    """Inside a flow: run the tasks submitted in this block where it was asked for, so many at a time.

    Raises:
        UsageError: $TOOLFORMER_RUNNER names no runner, or its scheduler cannot be reached.
    """
    context = FlowRunContext.get()
    if context is None:
        raise RuntimeError("running() is for the inside of a flow")
    name = _asked.get() or runner_named()
    with task_runner(name, workers) as chosen, context.model_copy(update={"task_runner": chosen}):
        if "://" in name:
            _reach(chosen, name)
        yield


def _reach(chosen: Any, address: str) -> None:
    try:
        _ = chosen.client
    except OSError as exc:
        raise UsageError(f"no Dask scheduler answers at {address}: start it (dask scheduler), or name another") from exc


def model_resources() -> dict[str, float]:
    """Inside `running`: return what a task that uses the model is to take of a Dask worker; {}: any worker will do.

    It is a GPU if there is a worker that offers one: `dask worker ADDRESS --resources GPU=1`. Then such tasks run there
    alone, as many at a time as the worker offers. Workers that come later do not count.
    """
    context = FlowRunContext.get()
    client = getattr(context.task_runner, "client", None) if context is not None else None
    if client is None:
        return {}
    workers = client.scheduler_info()["workers"].values()
    return {"GPU": 1.0} if any(worker["resources"].get("GPU") for worker in workers) else {}


def taking(resources: dict[str, float]) -> AbstractContextManager[Any]:
    """Have the tasks that are submitted in this block take resources of the Dask worker that they run on."""
    if not resources:
        return nullcontext()
    from dask.base import annotate

    return annotate(resources=resources)
