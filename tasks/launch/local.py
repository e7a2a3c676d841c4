"""The launcher for this machine: plain python for one process, torchrun for several, on free ports of their own."""

import os
import shlex
import uuid
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

from tasks.launch.base import LOG, LaunchRequest
from tasks.launch.processes import ProcessLauncher

side_by_side = ContextVar("side_by_side", default=1)  # jobs on a CPU that are started together and share its cores


@dataclass(frozen=True, slots=True)
class LocalLauncher(ProcessLauncher):
    """Starts the program on this machine. On a CPU, its processes share the cores that this process may use."""

    # seconds from SIGTERM to SIGKILL when a job is cancelled; torchrun gives its workers 30 of them
    grace_s: float = 40.0

    name: ClassVar[str] = "local"
    poll_s: ClassVar[float] = 1.0

    def preview(self, request: LaunchRequest) -> str:
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._variables(request).items())
        folder, command = shlex.quote(str(request.folder)), shlex.join(_command(request))
        return f"cd {folder} &&\n{variables} \\\n{command} >>{LOG} 2>&1\n"

    def submit(self, request: LaunchRequest) -> str:
        request.check_folder()
        running = self.find_job(request.folder)
        return running or self.start(_command(request), request.folder, self._variables(request), uuid.uuid4().hex)

    def cancel(self, handle: str) -> None:
        self.end(handle, self.grace_s)

    def _variables(self, request: LaunchRequest) -> dict[str, str]:
        if self.accelerator != "cpu":
            return self.variables()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.variables(OMP_NUM_THREADS=str(max(1, cores // side_by_side.get() // request.processes)))


def _command(request: LaunchRequest) -> list[str]:
    """Return the command for a job on one node. With `--standalone` torchrun takes a free port, and keeps it."""
    if request.processes == 1:
        return [request.python, *request.arguments]
    options = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={request.processes}"]
    return [request.python, "-m", "torch.distributed.run", *options, *request.arguments]
