"""How a process shares cores and memory: what must be settled before the libraries that compute are loaded.

`environment.prepare_environment` uses it; nothing here reads or changes the environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

_ARENA_MAX = -8  # M_ARENA_MAX in glibc's malloc.h
_BUSY = 0.5  # processes that want to run, over the last minute
_SPINS, _SPINS_IF_BUSY = 20_000, 2_000


def limit_memory_pools(most: str) -> None:
    """Have this process, which has read no such variable when it began, use so many pools; other C libraries ignore it.

    It must happen early: glibc fixes the number once a process has had some threads.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError, ValueError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, int(most))


def spin_count() -> int:
    """Return how often OpenMP's threads look for work before they sleep: for 0.1 ms, or 0.01 ms beside other work.

    A small model's operations are shorter than waking a thread: with 2,000 in place of 20,000 they take up to 1.4 times
    as long where nothing else runs. Where another process takes one of the cores, threads that spin hold back the one
    they wait for: beside a single busy process on two cores 20,000 took twice the time of 2,000, with a load of 15 3.7
    times, and the library's default up to 30 times (`benchmarks/scale/spinning.py` at commit 17d35ba).
    """
    return _SPINS_IF_BUSY if os.getloadavg()[0] > _BUSY else _SPINS
