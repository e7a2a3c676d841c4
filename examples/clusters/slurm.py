"""Dask workers for builds in Slurm, by dask-jobqueue: a group on CPU nodes, and one in which each worker has a GPU.

    python examples/clusters/slurm.py --cpu-jobs 8 --gpu-jobs 4     # on a node that all reach; let it run
    toolformer build --corpus c4.jsonl --data /shared/c4 --runner tcp://THIS_NODE:8786 --gpus 4

Change partitions, memory and times here to those of your cluster. Jobs that Slurm starts late, ends at their time limit
or preempts are no failure: workers join and leave while the build runs. `--adapt` follows the work, with a CPU group
alone: Dask counts tasks and not GPUs, and takes workers of either group for its own.
"""

import argparse
import os
import threading
from typing import Any

from distributed.deploy.spec import ProcessInterface

PORT = 8786
DEATHS = 3  # of workers with the same task among theirs, after which the scheduler gives it up
WALLTIME = "24:00:00"
# An hour before the limit no worker takes another task; a minute's variation keeps them from all leaving at once.
LIFETIME = ["--lifetime", "23h", "--lifetime-stagger", "1m"]
PASSED_ON = ("TOOLFORMER_CATALOG", "PREFECT_API_URL", "HF_HOME", "HF_HUB_OFFLINE")  # workers need what the flow has


class RunningScheduler(ProcessInterface):
    """The scheduler of another group of workers, for a group that joins it."""

    def __init__(self, address: str, **ignored: Any) -> None:
        super().__init__()
        self.address = address


def _environment() -> list[str]:
    return [f"export {name}={os.environ[name]!r}" for name in PASSED_ON if name in os.environ]


def cpu_group(**changes: Any) -> Any:
    """Return the scheduler, and jobs of four workers with a thread each: `scale(jobs=8)`, or `adapt(...)`.

    Args:
        changes: of SLURMCluster's arguments.
    """
    from dask import config
    from dask_jobqueue import SLURMCluster

    config.set({"distributed.scheduler.allowed-failures": DEATHS - 1})
    arguments: dict[str, Any] = {
        "queue": "cpu",
        "cores": 4,
        "processes": 4,
        "memory": "32GB",
        "walltime": WALLTIME,
        "job_name": "toolformer-cpu",
        "job_script_prologue": ["export OMP_NUM_THREADS=1", *_environment()],
        "worker_extra_args": LIFETIME,
        "scheduler_options": {"port": PORT, "dashboard_address": "127.0.0.1:8787"},
    }
    return SLURMCluster(**arguments | changes)


def gpu_group(scheduler: str, **changes: Any) -> Any:
    """Return jobs of one worker with one GPU, which join a scheduler: `scale(jobs=4)`.

    Args:
        scheduler: the address that `cpu_group` has.
        changes: of SLURMCluster's arguments.
    """
    from dask_jobqueue import SLURMCluster

    arguments: dict[str, Any] = {
        "queue": "gpu",
        "cores": 3,  # threads: three tasks share the GPU, of which one keeps it at work while others begin or end
        "processes": 1,
        "memory": "64GB",
        "walltime": WALLTIME,
        "job_name": "toolformer-gpu",
        "job_extra_directives": ["--gres=gpu:1"],  # Slurm sets CUDA_VISIBLE_DEVICES
        "job_script_prologue": _environment(),
        "worker_extra_args": ["--resources", "GPU=1", *LIFETIME],
        "scheduler_cls": RunningScheduler,
        "scheduler_options": {"address": scheduler},
    }
    group = SLURMCluster(**arguments | changes)
    group.shutdown_scheduler = False  # closing this group leaves the other one's scheduler running
    return group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu-jobs", type=int, default=1)
    parser.add_argument("--gpu-jobs", type=int, default=0)
    parser.add_argument("--adapt", action="store_true", help="1 to --cpu-jobs jobs, as there is work; without GPUs")
    args = parser.parse_args()
    if args.adapt and args.gpu_jobs:
        parser.error("--adapt is for a cluster without a GPU group")
    cluster = cpu_group()
    if args.adapt:
        cluster.adapt(minimum_jobs=1, maximum_jobs=args.cpu_jobs)
    else:
        cluster.scale(jobs=args.cpu_jobs)
    if args.gpu_jobs:
        gpu_group(cluster.scheduler_address).scale(jobs=args.gpu_jobs)
    print(f"toolformer build ... --runner {cluster.scheduler_address}", flush=True)
    threading.Event().wait()  # until Ctrl-C, which ends the scheduler and cancels the jobs


if __name__ == "__main__":
    main()
