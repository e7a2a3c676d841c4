"""The launcher for Slurm: a batch script in the job folder, submitted with sbatch and followed with squeue and sacct.

When the time limit is near, Slurm sends the script SIGTERM, and it writes the job's stop file. Clusters without
accounting work as well: the script records its exit code in the job folder.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks.launch.base import EXIT, LOG, BaseLauncher, JobState, LaunchError, LaunchRequest, LostError, ended, last_line
from toolformer_core.errors import UsageError

# In lower case, what Slurm's commands print:
_UNKNOWN = "invalid job id"  # squeue and scancel, about a job that Slurm no longer knows
_ALREADY_ENDED = "already completing or completed"  # scancel
_NO_ANSWER = ("timed out", "unable to contact", "zero bytes")  # sbatch, if the controller's answer got lost
_STATES = {  # a job in another state counts as running
    "COMPLETED": JobState.SUCCEEDED,
    "CANCELLED": JobState.CANCELLED,
    **dict.fromkeys(("COMPLETING", "STAGE_OUT"), JobState.ENDING),
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"), JobState.PENDING),
    **dict.fromkeys(("SPECIAL_EXIT", "RESV_DEL_HOLD"), JobState.PENDING),
    **dict.fromkeys(("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"), JobState.FAILED),
    **dict.fromkeys(("RECONFIG_FAIL", "DEADLINE", "PREEMPTED", "REVOKED"), JobState.FAILED),
}
_ALIVE = (JobState.PENDING, JobState.RUNNING, JobState.ENDING)

# srun needs --cpus-per-task again: it does not take the option over from sbatch.
_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --chdir={folder}
#SBATCH --output={folder}/{log}
#SBATCH --open-mode=append
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:TERM@{warn_s}
#SBATCH --no-requeue
{directives}
{setup}{exports}

nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
rm -f {exit}

# The time limit is near: the ranks are to leave a checkpoint and end.
trap 'echo "time limit" >{folder}/stop' TERM

srun --kill-on-bad-exit=1 --wait=0 ${{SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}} {srun_args}\\
    {python} -m torch.distributed.run \\
    --nnodes={nodes} --nproc-per-node={processes} --rdzv-backend=c10d \\
    --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="${{nodes[0]}}:$((20000 + SLURM_JOB_ID % 9000))" \\
    {arguments} &
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
class SlurmLauncher(BaseLauncher):
    """Submits the program as a batch job. The nodes meet at a port that is derived from the job id, in 20000-28999."""

    nodes: int = 1
    # -1: one for each process, for the accelerator `cpu` none; 0: none, as a directive such as `--gres=gpu:8` does
    gpus_per_node: int = -1
    partition: str = ""  # default: the cluster's
    time_limit: str = ""  # as sbatch takes it, e.g. `24:00:00` or `2-00`; default: the partition's
    warn_s: int = 120  # seconds before that limit at which the stop file is written, to have a checkpoint saved
    directives: tuple[str, ...] = ()  # of the script's head, without `#SBATCH`, e.g. `--cpus-per-task=64`
    setup: tuple[str, ...] = ()  # shell lines before the start, e.g. `module load cuda/12.4`
    srun_args: tuple[str, ...] = ()  # further options of srun, e.g. `--mpi=none`

    name: ClassVar[str] = "slurm"
    hint: ClassVar[str] = "run this where Slurm's commands are, e.g. on the cluster's login node"
    poll_s: ClassVar[float] = 5.0

    def preview(self, request: LaunchRequest) -> str:
        return f"# launch/job.sbatch\n{self._script(request)}\n# command\n{shlex.join(_sbatch(request))}\n"

    def submit(self, request: LaunchRequest) -> str:
        request.check_folder()
        cluster = next((line.partition("=")[2] for line in self.directives if line.startswith("--clusters=")), "")
        jobs = self._squeue(cluster, f"--name={request.name}", "--format=%i|%Z")  # those that wait or run
        job = next((job for job, folder in jobs if folder == str(request.folder)), None)
        if job is None:
            request.write("job.sbatch", self._script(request))
            completed = self.run(*_sbatch(request))
            reason = _last_error(completed.stderr)
            job, _, cluster = completed.stdout.strip().partition(";")
            lost = completed.returncode < 0 or any(words in completed.stderr.lower() for words in _NO_ANSWER)
            if lost or (completed.returncode == 0 and not job.isdecimal()):
                raise LostError(f"sbatch had no answer: {reason}; the job may be queued all the same")
            if completed.returncode != 0:
                raise LaunchError(f"sbatch refused the job: {reason}")
        return self.make_handle(job=job, cluster=cluster, folder=str(request.folder))

    def state(self, handle: str) -> tuple[JobState, str]:
        """Return the job's state from squeue; some minutes after its end, from sacct or the job folder."""
        record = self.parse_handle(handle)
        jobs = self._squeue(record["cluster"], "--states=all", f"--jobs={record['job']}", "--format=%T|%r")
        if jobs and _job_state(jobs[0][0]) in _ALIVE:
            return _job_state(jobs[0][0]), _format_state(*jobs[0])
        end = self._read_accounting(record) or next(map(_squeue_end, jobs), None)
        return end or ended(record["folder"], record["job"]) or (JobState.GONE, "Slurm knows no such job any more")

    def cancel(self, handle: str) -> None:
        record = self.parse_handle(handle)
        completed = self.run("scancel", *_cluster_option(record["cluster"]), record["job"])
        error = completed.stderr.lower()
        if completed.returncode != 0 and _UNKNOWN not in error and _ALREADY_ENDED not in error:
            raise LaunchError(f"scancel failed: {_last_error(completed.stderr)}")

    def _squeue(self, cluster: str, *options: str) -> list[list[str]]:
        completed = self.run("squeue", "--noheader", *_cluster_option(cluster), *options)
        if completed.returncode != 0 and _UNKNOWN not in completed.stderr.lower():
            raise LostError(f"squeue does not answer: {_last_error(completed.stderr)}")
        return _fields(completed.stdout)

    def _read_accounting(self, record: dict[str, Any]) -> tuple[JobState, str] | None:
        options = [*_cluster_option(record["cluster"]), f"--jobs={record['job']}", "--format=State,ExitCode"]
        try:
            completed = self.run("sacct", "--allocations", "--noheader", "--parsable2", *options)
        except UsageError:
            return None
        jobs = _fields(completed.stdout) if completed.returncode == 0 else []
        if not jobs or _job_state(jobs[0][0]) in _ALIVE:
            return None
        state, code = jobs[0]
        return _job_state(state), _format_state(state, "" if code in ("", "0:0") else f"exit code {code}")

    def _script(self, request: LaunchRequest) -> str:
        self.check_plain("job folder", str(request.folder))
        for line in (*self.directives, *self.setup, *self.srun_args, self.partition, self.time_limit):
            if "\n" in line:
                raise UsageError(f"{line!r} holds a line break: give one line each")
        gpus = self.gpus_to_request(self.gpus_per_node, request.processes)
        settings = {"gpus-per-node": gpus or "", "partition": self.partition, "time": self.time_limit}
        directives = [*(f"--{name}={value}" for name, value in settings.items() if value), *self.directives]
        return _SCRIPT.format(
            name=request.name,
            folder=request.folder,
            log=LOG,
            exit=request.folder / EXIT,
            warn_s=self.warn_s,
            directives="".join(f"#SBATCH {line}\n" for line in directives),
            setup="".join(f"{line}\n" for line in self.setup),
            exports=self.exports(),
            srun_args="".join(f"{shlex.quote(word)} " for word in self.srun_args),
            python=shlex.quote(request.python),
            nodes=self.nodes,
            processes=request.processes,
            arguments=shlex.join(request.arguments),
        )


def _sbatch(request: LaunchRequest) -> list[str]:
    return ["sbatch", "--parsable", f"--job-name={request.name}", str(request.folder / "launch/job.sbatch")]


def _cluster_option(cluster: str) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def _fields(text: str) -> list[list[str]]:
    return [line.strip().split("|", 1) for line in text.splitlines() if "|" in line]


def _job_state(slurm_state: str) -> JobState:
    return _STATES.get(slurm_state.partition(" ")[0].rstrip("+"), JobState.RUNNING)


def _format_state(state: str, detail: str) -> str:
    return f"{state} ({detail})" if detail not in ("", "None") else state


def _squeue_end(job: Sequence[str]) -> tuple[JobState, str]:
    state, reason = _job_state(job[0]), job[1]
    return state, _format_state(job[0], "" if state is JobState.CANCELLED else reason)  # else what it waited for


def _last_error(text: str) -> str:
    line = last_line(text)
    return line.partition("error: ")[2] or line or "it gave no reason"
