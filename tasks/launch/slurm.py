"""The launcher for Slurm: a batch script in the job folder, submitted with sbatch and followed with squeue and sacct.

Each node runs one torchrun, which meets the others on the first node. When the time limit is near, Slurm sends the
batch shell SIGTERM, and the script writes the job's stop file. So the ranks have until the limit to save a checkpoint;
after a signal, torchrun would give them only 30 s. Clusters without accounting work as well: the script records its
exit code in the job folder.
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
    check_plain_words,
    gpus_to_request,
    last_line,
    parse_handle,
    rank_variables,
    run_command,
    write_file,
)
from toolformer_core.errors import UsageError

_INSTALL = "run this where Slurm's commands are, e.g. on the cluster's login node"
# In lower case, what Slurm's commands print:
_UNKNOWN = "invalid job id"  # squeue and scancel, about a job that Slurm no longer knows
_ALREADY_ENDED = "already completing or completed"  # scancel
_NO_ANSWER = ("timed out", "unable to contact", "zero bytes")  # sbatch, if the controller's answer got lost
_FAILED = (
    *("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"),
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
        nodes: number of nodes.
        gpus_per_node: -1: as many as there are processes on a node, none for the accelerator `cpu`; 0: requests none,
            e.g. because a directive such as `--gres=gpu:8` does.
        gpu_type: e.g. `h100`, if a cluster has several types; default: any.
        cpus_per_node: 0: the partition's default.
        memory: per node, e.g. `400G`; default: the partition's.
        partition: default: the cluster's.
        account: default: the user's own.
        qos: default: the account's.
        time_limit: as sbatch takes it, e.g. `24:00:00` or `2-00`; default: the partition's.
        warn_s: seconds before the time limit at which the program is told to stop; it must have time for a checkpoint.
        directives: further lines of the script's head, without `#SBATCH`, e.g. `--exclusive`.
        setup: shell lines before the start, e.g. `module load cuda/12.4`.
        srun_args: further options of srun, e.g. `--mpi=none`.
        master_port: port on the first node at which the nodes meet; 0: one derived from the job id, in 20000-28999.
        accelerator: `cpu` or `cuda`; `auto`: what the nodes have.
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
        request.check_folder()
        script = self._script(request)
        job, cluster = self._find_job(request), self._cluster
        if job is None:
            write_file(request.folder / "launch/job.sbatch", script)
            completed = run_command(_sbatch(request), hint=_INSTALL)
            job, _, cluster = completed.stdout.strip().partition(";")
            lost = completed.returncode < 0 or any(words in completed.stderr.lower() for words in _NO_ANSWER)
            if lost or (completed.returncode == 0 and not job.isdecimal()):
                reason = _last_error(completed.stderr)
                raise LostError(f"sbatch had no answer: {reason}; the job may be queued all the same")
            if completed.returncode != 0:
                raise LaunchError(f"sbatch refused the job: {_last_error(completed.stderr)}")
        return json.dumps({"launcher": self.name, "job": job, "cluster": cluster, "folder": str(request.folder)})

    @property
    def _cluster(self) -> str:
        """The cluster of a federation that a directive names; "" if none does."""
        clusters = [line.partition("=")[2] for line in self.directives if line.startswith("--clusters=")]
        return clusters[0] if clusters else ""

    def _find_job(self, request: LaunchRequest) -> str | None:
        """Return the id of the job of this name and folder that waits or runs; None if there is none."""
        option = _cluster_option({"cluster": self._cluster})
        command = ["squeue", "--noheader", *option, f"--name={request.name}", "--format=%i|%Z"]
        completed = run_command(command, hint=_INSTALL, without_prefix="SQUEUE_")  # which hold the user's filters
        if completed.returncode != 0:
            raise LostError(f"squeue does not answer: {_last_error(completed.stderr)}")
        lines = [line.strip().partition("|") for line in completed.stdout.splitlines()]
        return next((job for job, _, folder in lines if folder == str(request.folder)), None)

    def state(self, handle: str) -> tuple[JobState, str]:
        """Return the job's state from squeue; some minutes after its end, from sacct or the job folder."""
        record = self._parse_handle(handle)
        options = ["--noheader", "--states=all", *_cluster_option(record), f"--jobs={record['job']}", "--format=%T|%r"]
        completed = run_command(["squeue", *options], hint=_INSTALL, without_prefix="SQUEUE_")
        if completed.returncode != 0 and _UNKNOWN not in completed.stderr.lower():
            raise LostError(f"squeue does not answer: {_last_error(completed.stderr)}")
        fields = _first_fields(completed.stdout)
        if fields and _job_state(fields[0]) in _ALIVE:
            return _job_state(fields[0]), _format_state(fields[0], fields[1])
        end = self._read_accounting(record) or _read_end(record, fields)
        return end or (JobState.GONE, "Slurm knows no such job any more")

    def cancel(self, handle: str) -> None:
        record = self._parse_handle(handle)
        completed = run_command(["scancel", *_cluster_option(record), record["job"]], hint=_INSTALL)
        error = completed.stderr.lower()
        if completed.returncode != 0 and _UNKNOWN not in error and _ALREADY_ENDED not in error:
            raise LaunchError(f"scancel failed: {_last_error(completed.stderr)}")

    def _parse_handle(self, handle: str) -> dict[str, Any]:
        return parse_handle(handle, self.name, "job", "cluster", "folder")

    def _read_accounting(self, record: dict[str, Any]) -> tuple[JobState, str] | None:
        """Return a job's end from accounting; None if there is no accounting, or it does not know of the end yet."""
        options = ["--allocations", "--noheader", "--parsable2", *_cluster_option(record), f"--jobs={record['job']}"]
        try:
            completed = run_command(["sacct", *options, "--format=State,ExitCode"], hint=_INSTALL)
        except UsageError:
            return None
        fields = _first_fields(completed.stdout) if completed.returncode == 0 else None
        if fields is None or _job_state(fields[0]) in _ALIVE:
            return None
        detail = "" if fields[1] in ("", "0:0") else f"exit code {fields[1]}"
        return _job_state(fields[0]), _format_state(fields[0], detail)

    # The script.

    def _script(self, request: LaunchRequest) -> str:
        check_plain_words("job folder", str(request.folder))
        for line in (*self.directives, *self.setup, *self.srun_args, self.partition, self.account, self.qos):
            if "\n" in line:
                raise UsageError(f"{line!r} holds a line break: give one line each")
        variables = rank_variables(self.accelerator, self.environment, request)
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
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
        gpus = gpus_to_request(self.gpus_per_node, self.accelerator, request.processes)
        gpu_type = f"{self.gpu_type}:" if self.gpu_type else ""
        options = {
            "--job-name": request.name,
            "--chdir": request.folder,
            "--output": request.log,
            "--open-mode": "append",
            "--nodes": self.nodes,
            "--ntasks-per-node": 1,
            "--gpus-per-node": f"{gpu_type}{gpus}" if gpus else "",
            "--cpus-per-task": self.cpus_per_node or "",
            "--mem": self.memory,
            "--partition": self.partition,
            "--account": self.account,
            "--qos": self.qos,
            "--time": self.time_limit,
            "--signal": f"B:TERM@{self.warn_s}",
        }
        lines = [f"{name}={value}" for name, value in options.items() if value != ""]
        return [*lines, "--no-requeue", *self.directives]

    def _srun(self) -> list[str]:
        # srun does not take this option over from sbatch.
        cpus = [f"--cpus-per-task={self.cpus_per_node}"] if self.cpus_per_node else []
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


def _cluster_option(record: dict[str, Any]) -> list[str]:
    return [f"--clusters={record['cluster']}"] if record["cluster"] else []


def _first_fields(text: str) -> list[str] | None:
    """Return the fields of the first line that has any; a line such as a cluster's name has none."""
    return next((line.strip().split("|") for line in text.splitlines() if "|" in line), None)


def _job_state(slurm_state: str) -> JobState:
    """Translate a state such as `CANCELLED by 1000`; a job in an unknown state counts as running."""
    word = slurm_state.split()[0].rstrip("+") if slurm_state.split() else ""
    if word == "COMPLETED":
        return JobState.SUCCEEDED
    if word == "CANCELLED":
        return JobState.CANCELLED
    if word in _PENDING:
        return JobState.PENDING
    if word in _ENDING:
        return JobState.ENDING
    return JobState.FAILED if word in _FAILED else JobState.RUNNING


def _format_state(state: str, detail: str) -> str:
    return f"{state} ({detail})" if detail not in ("", "None") else state


def _read_end(record: dict[str, Any], fields: list[str] | None) -> tuple[JobState, str] | None:
    """Return a job's end from squeue's fields, or else from the exit code that its script recorded."""
    if fields is not None:
        state = _job_state(fields[0])
        waited_for = state is JobState.CANCELLED  # which squeue still tells
        return state, _format_state(fields[0], "" if waited_for else fields[1])
    try:
        job, code = Path(record["folder"], EXIT).read_text().split()
    except (OSError, ValueError):
        return None
    if job != record["job"]:
        return None
    return JobState.SUCCEEDED if code == "0" else JobState.FAILED, f"exit code {code}"


def _last_error(text: str) -> str:
    """Return the last line of an error message, without the command's name."""
    line = last_line(text)
    return line.partition("error: ")[2] or line or "it gave no reason"
