"""How a process shares cores and memory: what must be settled before the libraries that compute are loaded.

`environment.prepare_environment` uses it; nothing here reads or changes the environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

__all__ = ["limit_memory_pools", "spin_count"]

_ARENA_MAX = -8  # M_ARENA_MAX in glibc's malloc.h
_BUSY = 2  # processes for each core that want to run, over the last minute
_SPINS, _SPINS_IF_BUSY = 20_000, 2_000


def limit_memory_pools(most: str) -> None:
    """Have this process, which has read no such variable when it began, use so many pools; other C libraries ignore it.

    It must happen early: glibc fixes the number once a process has had some threads.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError, ValueError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, int(most))


def spin_count() -> int:
    """Return how often OpenMP's threads look for work before they sleep: for 0.1 ms, or 0.01 ms on a busy machine.

    A small model's operations are shorter than waking a thread: with 2,000 in place of 20,000 it takes 1.1 times as
    long where nothing else runs, and without spinning 1.6 times. Where many more threads than cores want to run, those
    that spin hold back the ones they wait for: with a load of 15 on two cores 20,000 took 2.6 times the CPU time and
    3.7 times the wall time of 2,000, and the library's default 7 and 32 times (`benchmarks/scale/spinning.py`).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _SPINS_IF_BUSY if os.getloadavg()[0] > _BUSY * cores else _SPINS
