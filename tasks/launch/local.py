"""The launcher for this machine: plain python for one process, torchrun for several.

Every launch uses free ports of its own, so several jobs can run side by side. It does not know how many GPUs there
are: the program finds out.
"""

from __future__ import annotations

import shlex
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

import psutil

from tasks.launch import processes
from tasks.launch.base import LOG, Accelerator, JobState, LaunchRequest, rank_variables

side_by_side = ContextVar("side_by_side", default=1)  # jobs on a CPU that are started together and share its cores


@dataclass(frozen=True, slots=True)
class LocalLauncher:
    """Starts the program on this machine.

    Args:
        accelerator: `cpu` hides all GPUs and divides the cores among the processes, `cuda` requires GPUs, `auto` uses
            what there is.
        devices: the GPUs to use, e.g. `0,1`; default: all.
        cores: number of cores that CPU processes share; 0: all that this process may use.
        grace_s: seconds from SIGTERM to SIGKILL when a job is cancelled; torchrun gives its workers 30 of them.
    """

    accelerator: Accelerator = Accelerator.AUTO
    devices: str = ""
    cores: int = 0
    grace_s: float = 40.0

    name: ClassVar[str] = "local"
    poll_s: ClassVar[float] = 1.0

    def preview(self, request: LaunchRequest) -> str:
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._variables(request).items())
        return (
            f"cd {shlex.quote(str(request.folder))} &&\n{variables} \\\n{shlex.join(command(request))} >>{LOG} 2>&1\n"
        )

    def submit(self, request: LaunchRequest) -> str:
        request.check_folder()
        if (job := processes.find_job(request.folder, self.name)) is not None:
            return processes.make_handle(self.name, request.folder, *job)
        variables = self._variables(request)
        return processes.start(self.name, command(request), request.folder, variables, processes.new_mark())

    def state(self, handle: str) -> tuple[JobState, str]:
        return processes.state(handle, self.name)

    def cancel(self, handle: str) -> None:
        processes.cancel(handle, self.name, self.grace_s)

    def _variables(self, request: LaunchRequest) -> dict[str, str]:
        own = {}
        if self.devices and self.accelerator != Accelerator.CPU:
            own["CUDA_VISIBLE_DEVICES"] = self.devices
        if self.accelerator == Accelerator.CPU:
            own["OMP_NUM_THREADS"] = str(
                max(1, (self.cores or _count_cores() // side_by_side.get()) // request.processes)
            )
        return rank_variables(self.accelerator, own, request)


def command(request: LaunchRequest) -> list[str]:
    """Return the command for a job on one node. With `--standalone` torchrun takes a free port, and keeps it."""
    if request.processes == 1:
        return [request.python, *request.arguments]
    options = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={request.processes}"]
    return [request.python, "-m", "torch.distributed.run", *options, *request.arguments]


def _count_cores() -> int:
    process = psutil.Process()
    return len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else psutil.cpu_count() or 1
