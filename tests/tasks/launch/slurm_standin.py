"""A cluster of one machine that speaks as Slurm's commands do: `slurm_standin.py TABLE COMMAND [ARGUMENT ...]`.

Jobs are JSON files in the folder TABLE; a batch script really runs. Options that a launcher does not use are refused.
Files in TABLE set the stage: `hold` keeps jobs waiting, `busy` loses the answer to a submission, `down` makes the
controller silent, `no-accounting` is a cluster without it; a record with `"old": true` only accounting knows.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

TABLE, COMMAND, ARGUMENTS = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
KNOWN = set(
    "--job-name --chdir --output --open-mode --nodes --ntasks-per-node --gpus-per-node --cpus-per-task --mem"
    " --partition --time --signal --no-requeue --exclusive --gres --clusters".split()
)


def fail(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.exit(1)


def load(job: str) -> dict:
    path = TABLE / f"{job}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def save(job: str, **facts: object) -> None:
    path = TABLE / f"{job}.json"
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(load(job) | facts))
    part.replace(path)


def options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split `--name=value` and flags from what follows them."""
    rest = [i for i, word in enumerate(words) if not word.startswith("--")]
    cut = rest[0] if rest else len(words)
    return dict(word.partition("=")[::2] for word in words[:cut]), words[cut:]


def end(pid: int) -> None:
    """End a batch script and all it started, as Slurm does with a control group."""
    with contextlib.suppress(psutil.NoSuchProcess):
        batch = psutil.Process(pid)
        for process in [batch, *batch.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def sbatch() -> None:
    command, rest = options(ARGUMENTS)
    assert (set(command), len(rest)) == ({"--parsable", "--job-name"}, 1), ARGUMENTS
    script = Path(rest[0]).read_text()
    assert script.startswith("#!")
    lines = [shlex.split(line)[1] for line in script.splitlines() if line.startswith("#SBATCH ")]
    given = {**options(lines)[0], "--job-name": command["--job-name"]}
    unknown = set(given) - KNOWN
    if unknown:
        fail(f"sbatch: unrecognized option '{min(unknown)}'")
    if given.get("--partition") == "nosuch":
        fail("sbatch: error: Batch job submission failed: Invalid partition name specified")
    job = str(4000 + len(list(TABLE.glob("*.json"))))
    save(job, state="PENDING", reason="Resources", code="0:0", options=given, script=script)
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen([sys.executable, __file__, str(TABLE), "controller", job], start_new_session=True, **quiet)
    if (TABLE / "busy").exists():
        fail("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
    cluster = f";{(TABLE / 'cluster').read_text()}" if (TABLE / "cluster").exists() else ""
    sys.stdout.write(f"{job}{cluster}\n")


def controller() -> None:
    """Start a job when there is room, tell it of its time limit, and write down how it ended."""
    (job,) = ARGUMENTS
    while (TABLE / "hold").exists():
        if load(job)["state"] != "PENDING":
            return
        time.sleep(0.02)
    given = load(job)["options"]
    own = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": given["--nodes"]}
    own |= {"SLURM_CPUS_PER_TASK": given["--cpus-per-task"]} if "--cpus-per-task" in given else {}
    script = TABLE / f"{job}.sh"  # Slurm keeps a copy, too
    script.write_text(load(job)["script"])
    how = {"cwd": given["--chdir"], "env": {**os.environ, **own}, "start_new_session": True}
    with open(given["--output"], "ab") as log:
        batch = subprocess.Popen(["bash", script], stdout=log, stderr=log, **how)
    save(job, state="RUNNING", reason="None", pid=batch.pid)
    limit = sum(60**i * int(part) for i, part in enumerate(reversed(given.get("--time", "59:00").split(":"))))
    shell, _, early = given["--signal"].partition("@")
    started, warned, timed_out = time.monotonic(), False, False
    assert shell == "B:TERM"  # the batch shell alone
    while batch.poll() is None:
        passed = time.monotonic() - started
        if not warned and passed > limit - int(early):
            warned = True
            os.kill(batch.pid, signal.SIGTERM)
        if passed > limit and not timed_out:
            timed_out = True
            end(batch.pid)
        time.sleep(0.02)
    code = batch.returncode
    if load(job)["state"].startswith("CANCELLED"):
        return
    state = "TIMEOUT" if timed_out else "COMPLETED" if code == 0 else "FAILED"
    reason = {"TIMEOUT": "TimeLimit", "COMPLETED": "None", "FAILED": "NonZeroExitCode"}[state]
    save(job, state=state, reason=reason, code=f"{max(code, 0)}:{max(-code, 0)}")


def squeue() -> None:
    if (TABLE / "down").exists():
        fail("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    given, _ = options(ARGUMENTS)
    if "--name" in given:
        assert set(given) <= {"--noheader", "--name", "--format", "--clusters"}, given
        assert given["--format"] == "%i|%Z"
        shown = os.environ.get("SQUEUE_STATES", "PENDING,RUNNING").split(",")
        for path in sorted(TABLE.glob("*.json")):
            own = load(path.stem)
            if own["state"] in shown and own.get("options", {}).get("--job-name") == given["--name"]:
                sys.stdout.write(f"{path.stem}|{own['options']['--chdir']}\n")
        return
    assert {"--noheader", "--states", "--format"} <= set(given), given
    assert given["--format"] == "%T|%r"
    record = load(given["--jobs"])
    if not record or record.get("old"):
        fail("slurm_load_jobs error: Invalid job id specified")
    if "--clusters" in given:
        sys.stdout.write(f"CLUSTER: {given['--clusters']}\n")
    sys.stdout.write(f"{record['state'].split()[0]}|{record['reason']}\n")  # not by whom


def sacct() -> None:
    if (TABLE / "no-accounting").exists():
        fail("Slurm accounting storage is disabled")
    given, _ = options(ARGUMENTS)
    assert given["--format"] == "State,ExitCode"
    record = load(given["--jobs"])
    if record:
        sys.stdout.write(f"{record['state']}|{record['code']}\n")


def scancel() -> None:
    _, (job,) = options(ARGUMENTS)
    record = load(job)
    if not record or record.get("old"):
        fail(f"scancel: error: Kill job error on job id {job}: Invalid job id specified")
    if record["state"] not in ("PENDING", "RUNNING"):
        fail(f"scancel: error: Kill job error on job id {job}: Job/step already completing or completed")
    save(job, state="CANCELLED by 1000", reason="None", code="0:15")
    if "pid" in record:
        end(record["pid"])


def srun() -> None:
    """Run the command once a node, all on this machine; as with --kill-on-bad-exit, one failure ends them all."""
    given, command = options(ARGUMENTS)
    assert given["--kill-on-bad-exit"] == "1"
    (TABLE / "srun").write_text(json.dumps(given))
    nodes = [{**os.environ, "SLURM_PROCID": str(node)} for node in range(int(os.environ["SLURM_NNODES"]))]
    tasks = [subprocess.Popen(command, env=environment) for environment in nodes]
    while any(task.poll() is None for task in tasks):
        if any(task.returncode for task in tasks):
            for task in tasks:
                task.terminate()
        time.sleep(0.02)
    codes = [task.returncode for task in tasks]
    sys.exit(max(128 - code if code < 0 else code for code in codes))


def scontrol() -> None:
    assert ARGUMENTS == ["show", "hostnames", "localhost"], ARGUMENTS
    sys.stdout.write("localhost\n")


if __name__ == "__main__":
    {f.__name__: f for f in (sbatch, controller, squeue, sacct, scancel, srun, scontrol)}[COMMAND]()
