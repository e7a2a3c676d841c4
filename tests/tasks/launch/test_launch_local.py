import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from contextvars import copy_context
from dataclasses import replace
from functools import partial

import psutil
import pytest

from tasks.launch import processes
from tasks.launch.base import LaunchError, LaunchRequest
from tasks.launch.local import LocalLauncher, side_by_side
from tests.tasks.launch.launch_cases import job_in, stranger, wait_for_file, wait_until_ended, writing_its_rank
from toolformer_core.errors import UsageError

WRITES_ITS_RANK = writing_its_rank(
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "DS_ACCELERATOR", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "NOTE")
)
ONE_RANK_DIES = """
import os, pathlib, signal, sys, time
started = pathlib.Path(sys.argv[1], "started")
if os.environ["RANK"] == "1":
    while not started.exists():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)
print("rank 0 has started", flush=True)
started.touch()
time.sleep(300)
"""
# Does not end on SIGTERM, and has a child in a session of its own, as torchrun has.
STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
pathlib.Path(sys.argv[1], "child").write_text(str(child.pid))
time.sleep(300)
"""
POLITE = """
import pathlib, signal, sys, time
def end(number, frame):
    pathlib.Path(sys.argv[1], "checkpoint").write_text("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path(sys.argv[1], "ready").write_text("yes")
time.sleep(300)
"""


@pytest.fixture
def job(tmp_path):
    return partial(job_in, tmp_path / "a job's folder")


@pytest.fixture
def launched():
    """Submit jobs, and end what a failed test leaves of them."""
    handles = []

    def submit(launcher: LocalLauncher, request: LaunchRequest) -> str:
        handles.append(launcher.submit(request))
        return handles[-1]

    yield submit
    for handle in handles:
        LocalLauncher().end(handle, 0)


def nothing_left(handle: str) -> bool:
    """Wait until no process carries a job's mark; the one that wrote down the exit code ends a moment after that."""
    return not psutil.wait_procs(processes.find(json.loads(handle)["mark"]), timeout=10)[1]


def test_two_processes_on_cpu(job, launched, monkeypatch):
    monkeypatch.setenv("RANK", "7")  # as if the flow ran within a job of its own: that is not inherited
    monkeypatch.setenv("WORLD_SIZE", "9")
    monkeypatch.setenv("PET_NNODES", "4")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3, 4})
    request = job(WRITES_ITS_RANK, 2)
    launcher = LocalLauncher(accelerator="cpu", environment={"NOTE": "it's"})
    assert wait_until_ended(launcher, launched(launcher, request), 60) == ("succeeded", "exit code 0")
    # 5 cores for 2 processes: 2 each; no GPU is to be seen
    assert (request.folder / "rank-0").read_text() == "0 2 0 cpu  2 it's"
    assert (request.folder / "rank-1").read_text() == "1 2 1 cpu  2 it's"
    request, launcher = job(WRITES_ITS_RANK), LocalLauncher(environment={"CUDA_VISIBLE_DEVICES": "3"})  # no torchrun
    assert wait_until_ended(launcher, launched(launcher, request)) == ("succeeded", "exit code 0")
    assert (request.folder / "rank--").read_text().split(" ")[:5] == ["-", "-", "-", "-", "3"]


def test_a_job_whose_handle_was_lost_is_taken_over(job, launched, tmp_path):
    request, launcher = job(POLITE), LocalLauncher(grace_s=5)
    handle = launched(launcher, request)
    wait_for_file(request.folder / "ready")
    assert launched(launcher, replace(request, python="/nowhere")) == handle
    other = launched(launcher, replace(request, folder=tmp_path))
    assert other != handle
    launcher.cancel(handle)
    assert launched(launcher, request) not in (handle, other)


def test_a_killed_rank_fails_the_job_and_the_log_tells(job, launched):
    request = job(ONE_RANK_DIES, 2)
    handle = launched(LocalLauncher(accelerator="cpu"), request)
    assert wait_until_ended(LocalLauncher(), handle, 60) == ("failed", "exit code 1")
    log = (request.folder / "log.txt").read_text()
    assert "rank 0 has started" in log
    assert "Signal 9 (SIGKILL)" in log  # torchrun's report
    assert nothing_left(handle)  # rank 0 would have slept for five minutes


def test_the_log_is_appended_to_and_an_old_exit_code_is_forgotten(job, launched):
    launcher = LocalLauncher()
    earlier = launched(launcher, job("print('first'); raise SystemExit(7)"))
    assert wait_until_ended(launcher, earlier) == ("failed", "exit code 7")
    second = job("print('second')")
    assert wait_until_ended(launcher, launched(launcher, second)) == ("succeeded", "exit code 0")
    assert (second.folder / "log.txt").read_text() == "first\nsecond\n"
    assert launcher.state(earlier)[0] == "gone"  # that exit code is not of the first attempt


def test_a_process_that_is_becoming_another_program_is_not_gone(job, launched, monkeypatch):
    launcher = LocalLauncher(grace_s=5)
    handle = launched(launcher, job("import time; time.sleep(300)"))
    environ, looks = psutil.Process.environ, Counter()

    def at_first_nothing(process: psutil.Process) -> dict[str, str]:
        looks[process.pid] += 1
        return environ(process) if looks[process.pid] % 4 == 0 else {}

    # the kernel shows no environment while a program is exchanged for another
    monkeypatch.setattr(psutil.Process, "environ", at_first_nothing)
    record = json.loads(handle)
    assert record["pid"] in [process.pid for process in processes.find(record["mark"])]
    assert launcher.state(handle)[0] == "running"
    monkeypatch.undo()
    launcher.cancel(handle)


def test_programs_without_an_environment_are_waited_for_together(monkeypatch):
    waits = []
    monkeypatch.setattr(processes.time, "sleep", waits.append)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            titled = stack.enter_context(subprocess.Popen(["/bin/sleep", "600"], env={}))
            stack.callback(titled.kill)
        assert processes.find("a mark") == []
    assert len(waits) == 20


def test_a_job_is_followed_and_ended_from_a_new_process(job, launched):
    request = job(POLITE)
    handle = launched(LocalLauncher(), request)
    wait_for_file(request.folder / "ready")
    pid = json.loads(handle)["pid"]
    assert os.getsid(pid) == pid  # what ends our own session or process group does not end the job
    script = "import sys; from tasks.launch.local import LocalLauncher as L; h = sys.argv[1]; print(L().state(h)[0])"
    script += "; L().cancel(h); print(L().state(h)); L().cancel(h)"
    done = subprocess.run([sys.executable, "-c", script, handle], capture_output=True, text=True, check=True)
    # the program took SIGTERM for what it is, saved and exited with 0
    assert done.stdout == "running\n(<JobState.SUCCEEDED: 'succeeded'>, 'exit code 0')\n"
    assert (request.folder / "checkpoint").read_text() == "saved"


@pytest.mark.parametrize("failed", [False, True])
def test_cancel_ends_all_that_belongs_to_the_job_and_nothing_else(job, launched, failed):
    request, launcher = job(STUBBORN), LocalLauncher(grace_s=0.2)
    handle = launched(launcher, request)
    child = psutil.Process(int(wait_for_file(request.folder / "child")))
    assert launcher.state(handle)[0] == "running"
    if failed:  # and left something behind
        child.parent().kill()  # as the kernel does when memory runs out
        wait_until_ended(launcher, handle)
        assert child.is_running()
    with stranger():
        launcher.cancel(handle)
    assert nothing_left(handle)
    assert launcher.state(handle) == ("failed", "exit code 137 (SIGKILL)")  # 128 + 9
    launcher.cancel(handle)


def test_a_job_whose_supervisor_was_killed_still_runs_and_can_be_ended(job, launched):
    request, launcher = job(POLITE), LocalLauncher()
    handle = launched(launcher, request)
    wait_for_file(request.folder / "ready")
    supervisor = psutil.Process(json.loads(handle)["pid"])
    supervisor.kill()
    psutil.wait_procs([supervisor], timeout=10)
    state, detail = launcher.state(handle)
    assert (state, "exit code nobody will record" in detail) == ("running", True)
    launcher.cancel(handle)
    assert launcher.state(handle)[0] == "gone"
    assert (request.folder / "checkpoint").exists()


def test_a_job_of_another_machine_and_a_process_id_that_has_gone_to_somebody_else(job, launched):
    request, launcher = job(""), LocalLauncher()
    record = json.loads(launched(launcher, request))
    elsewhere = json.dumps(record | {"host": "elsewhere"})
    wait_until_ended(launcher, json.dumps(record))
    assert launcher.state(elsewhere)[0] == "succeeded"  # the job folder is shared
    (request.folder / "exit").unlink()
    for ask in (launcher.state, launcher.cancel):
        with pytest.raises(LaunchError, match="started on elsewhere"):
            ask(elsewhere)
    with stranger() as other:
        reused = json.dumps(record | {"pid": other.pid})
        assert launcher.state(reused)[0] == "gone"
        launcher.cancel(reused)


def test_mistakes_are_named_before_anything_is_started(tmp_path):
    for wrong, told in ({"folder": tmp_path / "none"}, "no job folder"), ({"python": "/nowhere/python"}, "full path"):
        with pytest.raises(UsageError, match=told):
            LocalLauncher().submit(replace(LaunchRequest("job", tmp_path), **wrong))
    assert os.listdir(tmp_path) == []


def test_jobs_that_are_started_side_by_side_share_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3, 4, 5, 6})
    request, launcher = LaunchRequest("job", tmp_path), LocalLauncher(accelerator="cpu")
    assert "OMP_NUM_THREADS=7 " in launcher.preview(request)
    shared = copy_context()
    shared.run(side_by_side.set, 3)
    assert "OMP_NUM_THREADS=2 " in shared.run(launcher.preview, request)  # 7 // 3
