"""Dask workers on this machine of which each has a GPU of its own, or none.

A process takes the first GPU that CUDA_VISIBLE_DEVICES names, so each worker is started, also again, with one.
"""

import logging
from collections.abc import Sequence
from typing import Any

from toolformer_core.errors import UsageError

TASKS_PER_GPU = 3  # at a time, in a worker's threads: with two, both are often at their beginning or end, and it waits
_LOG = logging.getLogger(__name__)


def gpus_of_workers(name: str, workers: int, gpus: int | None, visible: Sequence[str]) -> list[str] | None:
    """Return the GPUs that workers are started for, one worker each; None: leave them to see what this process sees.

    `gpus`: requested; None: all that are there, but no more than workers. `visible`: those that this process may use.
    """
    if "://" in name:  # workers of a scheduler elsewhere say themselves which GPU they have
        return None
    if gpus is None:
        return list(visible[:workers]) or None if name == "dask" else None
    if name != "dask":
        advice = "give --runner dask or a Dask scheduler's address, or leave --gpus out"
        raise UsageError(f"--gpus is for Dask workers, and the runner is {name}: {advice}")
    if gpus > len(visible):
        advice = "give fewer, and see what CUDA_VISIBLE_DEVICES and `toolformer doctor` say"
        raise UsageError(f"--gpus {gpus}: GPUs that this machine shows: {len(visible)}; {advice}")
    return list(visible[:gpus])


def gpu_cluster(gpus: Sequence[str], workers: int) -> Any:
    """Start a scheduler and workers on this machine's loopback: one of three threads for each GPU, others of one."""
    from distributed import Nanny, Scheduler, SpecCluster
    from distributed.worker_memory import parse_memory_limit

    total = max(workers, len(gpus))
    common = {
        "host": "127.0.0.1",
        "dashboard": False,
        "silence_logs": logging.WARNING,
        "memory_limit": parse_memory_limit("auto", 1, total, logger=_LOG),  # a part of the machine's each
    }
    with_gpu, without = {"resources": {"GPU": 1.0}, "nthreads": TASKS_PER_GPU}, {"resources": {}, "nthreads": 1}
    own = [{"env": {"CUDA_VISIBLE_DEVICES": gpu}, **with_gpu} for gpu in gpus]
    own += [{"env": {"CUDA_VISIBLE_DEVICES": ""}, **without}] * (total - len(gpus))
    return SpecCluster(  # type: ignore[no-untyped-call]
        workers={n: {"cls": Nanny, "options": common | settings} for n, settings in enumerate(own)},
        scheduler={"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}},
    )
