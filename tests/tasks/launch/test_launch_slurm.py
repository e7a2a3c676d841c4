import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tasks.launch.base import LaunchError, LostError
from tasks.launch.slurm import SlurmLauncher
from tests.tasks.launch.launch_cases import job_in, slurm_commands, wait_for_file, wait_until_ended, writing_its_rank
from toolformer_core.errors import UsageError

# What the training program does: after every step it looks whether it is to stop.
STOPS_WHEN_TOLD = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "ready").write_text("yes")
while not (folder / "stop").exists():
    time.sleep(0.02)
(folder / "checkpoint").write_text((folder / "stop").read_text())
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Put the stand-in's commands on PATH and return its table of jobs; cancel what is left at the end."""
    folder, commands = slurm_commands(tmp_path)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    yield folder
    for path in folder.glob("*.json"):
        SlurmLauncher().cancel(json.dumps({"launcher": "slurm", "job": path.stem, "cluster": "", "folder": ""}))


@pytest.fixture
def job(tmp_path):
    return partial(job_in, tmp_path / "job")


def plant(table: Path, folder: Path, **facts: object) -> str:
    """Write a job into the table by hand, and return its handle."""
    record = {"state": "RUNNING", "reason": "None", "code": "0:0"} | facts
    (table / "77.json").write_text(json.dumps(record))
    return json.dumps({"launcher": "slurm", "job": "77", "cluster": "", "folder": str(folder)})


def test_two_nodes_meet(table, job):
    (table / "hold").touch()
    request = job(writing_its_rank("RANK", "WORLD_SIZE", "LOCAL_RANK", "DS_ACCELERATOR", "NOTE"))
    note = 'it\'s "$HOME" `id`'
    setup = ("export NOTE=overridden",)
    launcher = SlurmLauncher(nodes=2, setup=setup, accelerator="cpu", environment={"NOTE": note})
    handle = launcher.submit(request)
    assert launcher.state(handle) == ("pending", "PENDING (Resources)")
    (table / "hold").unlink()
    ended, log = wait_until_ended(SlurmLauncher(), handle, 60), (request.folder / "log.txt").read_text()
    assert ended == ("succeeded", "COMPLETED"), log
    assert {(request.folder / f"rank-{n}").read_text() for n in (0, 1)} == {f"{n} 2 0 cpu {note}" for n in (0, 1)}
    assert {"rank 0 of 2", "rank 1 of 2"} <= set(log.splitlines())
    assert (request.folder / "launch/job.sbatch").read_text() in launcher.preview(request)


@pytest.mark.parametrize(("directives", "passed_on"), [(("--cpus-per-task=8",), "8"), ((), None)])
def test_srun_is_told_the_cores_of_a_task(table, job, monkeypatch, directives, passed_on):
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")  # of the job in which the launcher runs itself
    launcher = SlurmLauncher(gpus_per_node=0, directives=directives)
    handle = launcher.submit(replace(job(""), python="true"))
    assert wait_until_ended(launcher, handle) == ("succeeded", "COMPLETED")
    assert json.loads((table / "srun").read_text()).get("--cpus-per-task") == passed_on


def test_a_failure_is_told_by_every_source(table, job):
    (table / "hold").touch()
    launcher, request = SlurmLauncher(gpus_per_node=0), job("raise SystemExit('boom')")
    handle = launcher.submit(request)
    (table / "hold").unlink()
    assert wait_until_ended(launcher, handle) == ("failed", "FAILED (exit code 1:0)")
    assert "boom" in (request.folder / "log.txt").read_text()
    number = json.loads(handle)["job"]
    assert (request.folder / "exit").read_text() == f"{number} 1\n"
    (table / "no-accounting").touch()
    assert launcher.state(handle) == ("failed", "FAILED (NonZeroExitCode)")  # squeue's word
    record = table / f"{number}.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"old": True}))
    assert launcher.state(handle) == ("failed", "exit code 1")  # the script's own
    (request.folder / "exit").unlink()
    assert launcher.state(handle) == ("gone", "Slurm knows no such job any more")


@pytest.mark.slow
def test_before_the_time_limit_the_program_leaves_a_checkpoint(table, job):
    request = job(STOPS_WHEN_TOLD)
    launcher = SlurmLauncher(gpus_per_node=0, time_limit="0:30", warn_s=28)  # so it is told after two seconds
    assert wait_until_ended(launcher, launcher.submit(request)) == ("succeeded", "COMPLETED")
    assert (request.folder / "checkpoint").read_text() == "time limit\n"


def test_cancel_waiting_and_running_jobs(table, job):
    launcher, request = SlurmLauncher(gpus_per_node=0), job(STOPS_WHEN_TOLD)
    handle = launcher.submit(request)
    wait_for_file(request.folder / "ready")
    assert launcher.state(handle) == ("running", "RUNNING")
    (table / "hold").touch()
    waiting = launcher.submit(replace(request, name="job-2"))
    for each in (handle, waiting):
        launcher.cancel(each)
        assert launcher.state(each) == ("cancelled", "CANCELLED by 1000 (exit code 0:15)")
        launcher.cancel(each)
    launcher.cancel(json.dumps(json.loads(handle) | {"job": "9999"}))


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"state": "PENDING", "reason": "Priority"}, ("pending", "PENDING (Priority)")),
        ({"state": "COMPLETING"}, ("ending", "COMPLETING")),
        ({"state": "COMPLETED"}, ("succeeded", "COMPLETED")),
        ({"state": "OUT_OF_MEMORY", "code": "0:125"}, ("failed", "OUT_OF_MEMORY (exit code 0:125)")),
        ({"state": "TIMEOUT"}, ("failed", "TIMEOUT")),
        ({"state": "CANCELLED by 7"}, ("cancelled", "CANCELLED by 7")),
        ({"state": "NODE_FAIL", "code": "1:0"}, ("failed", "NODE_FAIL (exit code 1:0)")),
        ({"state": "POWERING_UP_NODE"}, ("running", "POWERING_UP_NODE")),  # not known here, so nobody calls it an end
        ({"state": "COMPLETED", "old": True}, ("succeeded", "COMPLETED")),
        ({"state": "RUNNING", "old": True}, ("gone", "Slurm knows no such job any more")),  # accounting missed its end
    ],
)
def test_slurms_states(table, tmp_path, facts, told):
    assert SlurmLauncher().state(plant(table, tmp_path, **facts)) == told
    (table / "77.json").unlink()


def test_a_federation_names_its_cluster(table, job):
    (table / "cluster").write_text("north")
    (table / "hold").touch()
    launcher = SlurmLauncher(gpus_per_node=0)
    handle = launcher.submit(job(""))
    assert json.loads(handle)["cluster"] == "north"
    assert launcher.state(handle) == ("pending", "PENDING (Resources)")


def test_a_job_whose_answer_was_lost_is_taken_over(table, job, tmp_path, monkeypatch):
    for stage in ("hold", "busy"):
        (table / stage).touch()
    launcher, request = SlurmLauncher(gpus_per_node=0), job("")
    with pytest.raises(LostError, match="Socket timed out"):
        launcher.submit(request)
    monkeypatch.setenv("SQUEUE_STATES", "COMPLETED")  # of whoever likes to look at those
    (table / "busy").unlink()
    handle = launcher.submit(request)
    assert [path.name for path in table.glob("*.json")] == [f"{json.loads(handle)['job']}.json"]
    assert launcher.state(handle) == ("pending", "PENDING (Resources)")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    others = [replace(request, folder=elsewhere), replace(request, name="job-2")]  # another's of that name; another try
    assert len({handle, *map(launcher.submit, others)}) == 3
    launcher.cancel(handle)
    assert launcher.submit(request) != handle


def test_a_silent_controller_is_no_failed_job(table, tmp_path):
    handle = plant(table, tmp_path)
    (table / "down").touch()
    with pytest.raises(LostError, match="squeue does not answer: Unable to contact slurm controller"):
        SlurmLauncher().state(handle)
    (table / "77.json").unlink()


def test_a_refused_script_and_a_machine_without_slurm(table, job, monkeypatch, tmp_path):
    request = job("")
    for wrong, error, told in (
        ({"partition": "nosuch"}, LaunchError, "refused the job: Batch job submission failed: Invalid partition name"),
        ({"directives": ("--gpu-weather=fine",)}, LaunchError, "unrecognized option '--gpu-weather'"),
        ({"setup": ("a\nb",)}, UsageError, "line break"),
    ):
        with pytest.raises(error, match=told):
            SlurmLauncher(**wrong).submit(request)
    with pytest.raises(UsageError, match="only letters, digits"):
        SlurmLauncher().preview(replace(request, folder=Path("/a b")))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="squeue is not on this machine's PATH: run this where"):
        SlurmLauncher().submit(request)
    monkeypatch.undo()
