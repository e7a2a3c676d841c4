"""One core for each Dask worker on this machine, round robin over those that the flow's process may use.

A worker that is started again is pinned again, by its name, which it keeps. It knows no tasks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed import WorkerPlugin


def allowed_cores() -> list[int]:
    """Return the cores that this process may use; none where the system does not say so."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def core_of(number: int, cores: Sequence[int]) -> int:
    """Return the core of the worker with this number."""
    return cores[number % len(cores)]


class PinWorkers(WorkerPlugin):
    """Pins every thread of a worker's process to one core; threads that start later inherit it.

    Args:
        cores: those to choose from, at least one.
    """

    name = "pin-workers"

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores = tuple(cores)

    def setup(self, worker: Any) -> None:
        """Pin the worker; Dask calls this when one starts. Workers are numbered by their names."""
        core = core_of(int(worker.name), self.cores)
        for thread in Path("/proc/self/task").iterdir():
            try:
                os.sched_setaffinity(int(thread.name), {core})
            except ProcessLookupError:  # it has ended meanwhile
                continue
