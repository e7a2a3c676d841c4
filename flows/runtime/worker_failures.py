"""Has Dask's scheduler count a worker's death against the tasks that it ran, and not against those that waited there.

A task that asks for a GPU is given to a worker long before it begins, so each task of ours says that it does.
"""

from typing import Any

from distributed import SchedulerPlugin

_TOPIC = "toolformer-began"


def tell_beginning() -> None:
    """Inside a Dask task, tell the scheduler that it begins, and wait until it knows (1 to 2 ms)."""
    from distributed import get_worker
    from distributed.utils import sync

    try:
        worker: Any = get_worker()
    except ValueError:
        return
    message = {"key": worker.get_current_task(), "worker": worker.address}
    try:
        sync(worker.loop, worker.scheduler.log_event, topic=_TOPIC, msg=message)
    except OSError:
        return  # no scheduler, which is the end of this worker as well


class WorkerFailures(SchedulerPlugin):
    """The scheduler's part, for tasks of a function of this name; several flows on one scheduler share it."""

    name = "toolformer-worker-failures"
    idempotent = True

    def __init__(self, task: str) -> None:
        self._task = task
        self._running: dict[str, str] = {}  # key -> the worker on which it began
        self._deaths: dict[str, int] = {}  # key -> workers that died while it ran there

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == _TOPIC:
            self._running[msg["key"]] = msg["worker"]

    def transition(self, key: Any, start: Any, finish: Any, *args: Any, **kwargs: Any) -> None:
        if finish in ("memory", "erred", "forgotten"):
            self._running.pop(key, None)
        if finish == "forgotten":
            self._deaths.pop(key, None)

    def remove_worker(self, scheduler: Any, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Set each task's count of deaths to that of the workers on which it ran."""
        ran = {key for key, place in self._running.items() if place == worker}
        for key in ran:
            del self._running[key]
        for key, task in scheduler.tasks.items():
            before = self._deaths.get(key, 0)
            if str(key).startswith(f"{self._task}-") and task.suspicious > before:
                if key in ran:
                    self._deaths[key] = before + 1
                task.suspicious = self._deaths.get(key, 0)
