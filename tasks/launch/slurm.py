"""The launcher for Slurm: a batch script in the job folder, submitted with sbatch and followed with squeue and sacct.

Each node runs one torchrun, which meets the others on the first node. When the time limit is near, Slurm sends the
batch shell SIGTERM, and the script writes the job's stop file: torchrun would give the ranks 30 s after a signal, the
stop file gives them until the limit to leave a checkpoint. A cluster without accounting is no hindrance: the script
writes its exit code down in the job folder.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tasks.launch.base import (
    EXIT,
    Accelerator,
    JobState,
    LaunchError,
    LaunchRequest,
    LostError,
    accelerator_variables,
    parse_handle,
    plain_words,
    run_command,
    write_file,
)
from toolformer_core.errors import UsageError

__all__ = ["SlurmLauncher"]

_INSTALL = "run this where Slurm's commands are, e.g. on the cluster's login node"
_UNKNOWN = "invalid job id"  # what squeue and scancel say of a job that has been forgotten
_OVER = "already completing or completed"
_UNSURE = ("timed out", "unable to contact", "zero bytes")  # ... and sbatch of an answer that did not come through
_FAILED = (
    *("FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"),
    *("DEADLINE", "PREEMPTED", "REVOKED"),
)
_ENDING = ("COMPLETING", "STAGE_OUT")
_PENDING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")

_ALIVE = (JobState.PENDING, JobState.RUNNING, JobState.ENDING)

_SCRIPT = """\
#!/bin/bash
{directives}

{setup}{exports}
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
rm -f {exit}

# The time limit is near: the ranks are to leave a checkpoint and end.
trap 'echo "time limit" >{folder}/stop' TERM

srun {srun} \\
    {command} &
step=$!
wait "$step"
code=$?
while kill -0 "$step" 2>/dev/null; do  # a signal ended the wait, not the step
    wait "$step"
    code=$?
done
echo "$SLURM_JOB_ID $code" >{exit}.part && mv {exit}.part {exit}
exit "$code"
"""


@dataclass(frozen=True, slots=True)
class SlurmLauncher:
    """Submits the program as a batch job.

    Args:
        nodes: how many.
        gpus_per_node: -1: as many as there are processes on a node; 0: none is asked for,
            or by a directive such as `--gres=gpu:8`.
        gpu_type: e.g. `h100`, where a cluster has several; default: any.
        cpus_per_node: 0: the partition's default.
        memory: per node, e.g. `400G`; default: the partition's.
        partition: default: the cluster's.
        account: default: the user's own.
        qos: default: the account's.
        time_limit: as sbatch takes it, e.g. `24:00:00` or `2-00`; default: the partition's.
        warn_s: seconds before the time limit at which the program is told to stop; a checkpoint must fit in.
        directives: further lines of the script's head, without `#SBATCH`, e.g. `--exclusive`.
        setup: shell lines before the start, e.g. `module load cuda/12.4`.
        srun_args: further options of srun, e.g. `--mpi=none`.
        master_port: where the nodes meet; 0: one derived from the job's number, in 20000-28999.
        accelerator: `cpu` or `cuda`; `auto`: what is there.
        environment: variables for every rank, e.g. of NCCL; the request's have precedence.
    """

    nodes: int = 1
    gpus_per_node: int = -1
    gpu_type: str = ""
    cpus_per_node: int = 0
    memory: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    time_limit: str = ""
    warn_s: int = 120
    directives: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    srun_args: tuple[str, ...] = ()
    master_port: int = 0
    accelerator: Accelerator = Accelerator.AUTO
    environment: dict[str, str] = field(default_factory=dict)

    name: ClassVar[str] = "slurm"
    poll_s: ClassVar[float] = 5.0

    def preview(self, request: LaunchRequest) -> str:
        """Return the batch script, and the command that submits it."""
        return f"# launch/job.sbatch\n{self._script(request)}\n# command\n{shlex.join(_sbatch(request))}\n"

    def submit(self, request: LaunchRequest) -> str:
        """Submit the batch script, unless it waits or runs already; see `Launcher`."""
        request.check_folder()
        script = self._script(request)
        job, cluster = self._queued(request), self._cluster
        if job is None:
            write_file(request.folder / "launch/job.sbatch", script)
            done = run_command(_sbatch(request), hint=_INSTALL)
            job, _, cluster = done.stdout.strip().partition(";")
            unsure = done.returncode < 0 or any(words in done.stderr.lower() for words in _UNSURE)
            if unsure or (done.returncode == 0 and not job.isdecimal()):
                raise LostError(f"sbatch had no answer: {_reason(done.stderr)}; the job may be queued all the same")
            if done.returncode != 0:
                raise LaunchError(f"sbatch refused the job: {_reason(done.stderr)}")
        return json.dumps({"launcher": self.name, "job": job, "cluster": cluster, "folder": str(request.folder)})

    @property
    def _cluster(self) -> str:
        """The cluster of a federation that a directive names."""
        named = [line.partition("=")[2] for line in self.directives if line.startswith("--clusters=")]
        return named[0] if named else ""

    def _queued(self, request: LaunchRequest) -> str | None:
        """Return the number of the job of this name and folder that waits or runs; None if there is none."""
        of = _of({"cluster": self._cluster})
        asked = ["squeue", "--noheader", *of, f"--name={request.name}", "--format=%i|%Z"]
        done = run_command(asked, hint=_INSTALL, without="SQUEUE_")  # a user's own filters are not ours
        if done.returncode != 0:
            raise LostError(f"squeue does not answer: {_reason(done.stderr)}")
        lines = [line.strip().partition("|") for line in done.stdout.splitlines()]
        return next((job for job, _, folder in lines if folder == str(request.folder)), None)

    def state(self, handle: str) -> tuple[JobState, str]:
        """Ask squeue, which knows a job for some minutes after its end; then sacct; then the job folder."""
        record = self._record(handle)
        queue = ["squeue", "--noheader", "--states=all", *_of(record), f"--jobs={record['job']}", "--format=%T|%r"]
        done = run_command(queue, hint=_INSTALL, without="SQUEUE_")
        if done.returncode != 0 and _UNKNOWN not in done.stderr.lower():
            raise LostError(f"squeue does not answer: {_reason(done.stderr)}")
        found = _fields(done.stdout)
        if found and _kind(found[0]) in _ALIVE:
            return _kind(found[0]), _told(found[0], found[1])
        return self._accounted(record) or _ended(record, found) or (JobState.GONE, "Slurm knows no such job any more")

    def cancel(self, handle: str) -> None:
        """Cancel the job; see `Launcher`."""
        record = self._record(handle)
        done = run_command(["scancel", *_of(record), record["job"]], hint=_INSTALL)
        told = done.stderr.lower()
        if done.returncode != 0 and _UNKNOWN not in told and _OVER not in told:
            raise LaunchError(f"scancel failed: {_reason(done.stderr)}")

    def _record(self, handle: str) -> dict[str, Any]:
        return parse_handle(handle, self.name, "job", "cluster", "folder")

    def _accounted(self, record: dict[str, Any]) -> tuple[JobState, str] | None:
        """Return what accounting says of a job's end; None where there is no accounting, or it does not know yet."""
        query = ["sacct", "--allocations", "--noheader", "--parsable2", *_of(record), f"--jobs={record['job']}"]
        try:
            done = run_command([*query, "--format=State,ExitCode"], hint=_INSTALL)
        except UsageError:
            return None
        found = _fields(done.stdout) if done.returncode == 0 else None
        if found is None or _kind(found[0]) in _ALIVE:
            return None
        return _kind(found[0]), _told(found[0], "" if found[1] in ("", "0:0") else f"exit code {found[1]}")

    # The script.

    def _script(self, request: LaunchRequest) -> str:
        plain_words("job folder", str(request.folder))
        for line in (*self.directives, *self.setup, *self.srun_args, self.partition, self.account, self.qos):
            if "\n" in line:
                raise UsageError(f"{line!r} holds a line break: give one line each")
        variables = {"PYTHONUNBUFFERED": "1", **accelerator_variables(self.accelerator), **self.environment}
        exports = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in {**variables, **request.environment}.items())
        return _SCRIPT.format(
            directives="\n".join(f"#SBATCH {line}" for line in self._directives(request)),
            setup="".join(f"{line}\n" for line in self.setup),
            exports=exports,
            folder=request.folder,
            exit=request.exit_file,
            srun=shlex.join(self._srun()),
            command=" \\\n    ".join(self._torchrun(request)),
        )

    def _directives(self, request: LaunchRequest) -> list[str]:
        gpus = request.processes if self.gpus_per_node < 0 else self.gpus_per_node
        kind = f"{self.gpu_type}:" if self.gpu_type else ""
        wanted = {
            "--job-name": request.name,
            "--chdir": request.folder,
            "--output": request.log,
            "--open-mode": "append",
            "--nodes": self.nodes,
            "--ntasks-per-node": 1,
            "--gpus-per-node": f"{kind}{gpus}" if gpus else "",
            "--cpus-per-task": self.cpus_per_node or "",
            "--mem": self.memory,
            "--partition": self.partition,
            "--account": self.account,
            "--qos": self.qos,
            "--time": self.time_limit,
            "--signal": f"B:TERM@{self.warn_s}",
        }
        lines = [f"{name}={value}" for name, value in wanted.items() if value != ""]
        return [*lines, "--no-requeue", *self.directives]

    def _srun(self) -> list[str]:
        cpus = [f"--cpus-per-task={self.cpus_per_node}"] if self.cpus_per_node else []  # not taken over from sbatch
        return ["--kill-on-bad-exit=1", "--wait=0", *cpus, *self.srun_args]

    def _torchrun(self, request: LaunchRequest) -> list[str]:
        port = str(self.master_port) if self.master_port else "$((20000 + SLURM_JOB_ID % 9000))"
        return [
            f"{shlex.quote(request.python)} -m torch.distributed.run",
            f"--nnodes={self.nodes} --nproc-per-node={request.processes} --rdzv-backend=c10d",
            f'--rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="${{nodes[0]}}:{port}"',
            shlex.join(request.arguments),
        ]


def _sbatch(request: LaunchRequest) -> list[str]:
    return ["sbatch", "--parsable", f"--job-name={request.name}", str(request.folder / "launch/job.sbatch")]


def _of(record: dict[str, Any]) -> list[str]:
    return [f"--clusters={record['cluster']}"] if record["cluster"] else []


def _fields(text: str) -> list[str] | None:
    """Return the first line's fields, leaving out lines without any, such as the name of a cluster."""
    return next((line.strip().split("|") for line in text.splitlines() if "|" in line), None)


def _kind(told: str) -> JobState:
    """Return what a state of Slurm's means here, `CANCELLED by 1000` too; one that is not known has not ended."""
    word = told.split()[0].rstrip("+") if told.split() else ""
    if word == "COMPLETED":
        return JobState.SUCCEEDED
    if word in _PENDING:
        return JobState.PENDING
    if word in _ENDING:
        return JobState.ENDING
    return JobState.FAILED if word in _FAILED else JobState.RUNNING


def _told(state: str, more: str) -> str:
    return f"{state} ({more})" if more not in ("", "None") else state


def _ended(record: dict[str, Any], queue: list[str] | None) -> tuple[JobState, str] | None:
    """Return a job's end as squeue or its own script told it."""
    if queue is not None:
        return _kind(queue[0]), _told(queue[0], queue[1])
    try:
        job, code = Path(record["folder"], EXIT).read_text().split()
    except (OSError, ValueError):
        return None
    if job != record["job"]:
        return None
    return JobState.SUCCEEDED if code == "0" else JobState.FAILED, f"exit code {code}"


def _reason(text: str) -> str:
    """Return an error's last line, without the command's name."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].partition("error: ")[2] or lines[-1] if lines else "it gave no reason"
