"""How work is cut into tasks: plain arithmetic, which a plan needs without Prefect or Dask being imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

TASKS = 300  # of a flow; a task costs Prefect's server some 50 ms, and Dask takes a fifth of a second to be given one
TASKS_PER_GPU = 3  # at a time, in a worker's threads: with two, both are often at their beginning or end, and it waits
_PER_THREAD = 8  # ... or so many for each thread of Dask's workers, that all end at about the same time

T = TypeVar("T")


def tasks_allowed(dask_threads: int) -> int:
    """Return how many tasks a flow may submit for its time's sake; 0 threads: they run in the flow's process."""
    return max(TASKS, _PER_THREAD * dask_threads)


def cut_evenly(items: Sequence[T], most: int) -> list[tuple[T, ...]]:
    """Cut items, in order, into at most `most` groups of one size, give or take one."""
    groups = min(len(items), max(1, most))
    return [tuple(items[len(items) * n // groups : len(items) * (n + 1) // groups]) for n in range(groups)]
