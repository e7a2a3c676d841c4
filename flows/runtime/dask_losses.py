"""What a flow says when Dask loses its scheduler or gives up a task, and while its tasks wait for workers."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from toolformer_core.errors import RunnerError

_CONTINUE = "all that was committed stands, so run the same command again to continue"
_LOOK_S = 10.0  # seconds between two questions to a scheduler whether there are workers for all tasks
_REPEAT_S = 60.0  # seconds after which a line is said again that still holds

Workers = Mapping[str, Mapping[str, Any]]  # what Dask's scheduler tells of its workers, by address


def scheduler_lost(runner: str) -> RunnerError:
    """Return the error of a flow whose connection to the scheduler broke."""
    if "://" not in runner:
        return RunnerError(f"the Dask scheduler that this flow started is gone: {_CONTINUE}")
    return RunnerError(
        f"the connection to the Dask scheduler at {runner} is lost, and with it what this flow had submitted: see that "
        f"the scheduler and its workers run (workers end with their scheduler); {_CONTINUE}"
    )


@contextmanager
def explain_losses(runner: str, is_lost: Callable[[], bool], labels: Mapping[str, str]) -> Iterator[None]:
    """Turn Dask's errors on a lost scheduler and on a task that it gave up into one line each, a `RunnerError`."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError, FuturesCancelledError
    from distributed.comm.core import CommClosedError

    try:
        yield
    except KilledWorker as exc:
        deaths, task = exc.allowed_failures + 1, labels.get(str(exc.task), str(exc.task))
        raise RunnerError(
            f"{deaths} Dask workers died one after another with {task!r} among their tasks, the last of them "
            f"{exc.last_worker.address}: see why in the workers' logs (too little memory is the commonest reason); "
            f"{_CONTINUE}"
        ) from exc
    except (FutureCancelledError, FuturesCancelledError, CommClosedError) as exc:
        raise scheduler_lost(runner) from exc
    except OSError as exc:  # a question to the scheduler that timed out, or the flow's own, e.g. a full disk
        if not is_lost():
            raise
        raise scheduler_lost(runner) from exc


def what_is_missing(address: str, workers: Workers, *, needs_gpus: bool) -> str:
    """Return a line on the workers that tasks wait for, of which some may need a GPU; "": they wait for none."""
    if not workers:
        return f"tasks wait for a Dask worker, none is there: start one with `dask worker {address}`"
    if needs_gpus and not any(worker["resources"].get("GPU") for worker in workers.values()):
        start = f"none of {len(workers)} has one: start one with `dask worker {address} --nthreads 3 --resources GPU=1`"
        return f"tasks that ask the model wait for a Dask worker with a GPU, {start}"
    return ""


@dataclass(slots=True)
class WorkerWatch:
    """Says what a flow's tasks wait for as soon as it is so, again every minute, and when they wait no longer."""

    address: str
    workers: Callable[[], Workers]  # asks the scheduler; OSError: it does not answer
    needs_gpus: Callable[[], bool]  # returns whether tasks that use the model need a GPU
    logger: logging.Logger | logging.LoggerAdapter[Any]
    clock: Callable[[], float] = time.monotonic
    _said: str = ""
    _when: float = 0.0

    def look(self) -> float:
        """Say what is to be said; return the seconds until the next look."""
        try:
            workers = self.workers()
        except OSError:
            return _LOOK_S  # the flow itself finds out, and ends
        line, now = what_is_missing(self.address, workers, needs_gpus=self.needs_gpus()), self.clock()
        if line and (line != self._said or now - self._when >= _REPEAT_S):
            self._when = now
            self.logger.warning("%s", line)
        if self._said and not line:
            with_gpu = sum(bool(worker["resources"].get("GPU")) for worker in workers.values())
            self.logger.warning("tasks wait no longer: %d Dask workers, %d with a GPU", len(workers), with_gpu)
        self._said = line
        return _LOOK_S
