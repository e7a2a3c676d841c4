"""Trainings on a real Slurm of one node: queued, withdrawn, cancelled, timed out, their node lost."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from flows.runtime.stopping import UNFINISHED
from tasks.launch.base import LaunchRequest
from tasks.launch.slurm import SlurmLauncher
from tasks.training.monitor import follow
from tasks.training.outcome import TrainingError
from tests.machines.commands import Command, events, started
from tests.machines.servers import Slurm
from tests.support.waiting import soon

ENDLESS = ["--steps", "1000000", "--batch", "2", "--dev-documents", "0", "--sequence-length", "128"]
DRAINED = ("ReqNodeNotAvail", "Nodes required for job are DOWN, DRAINED")  # as the scheduler that looked last says it

Finetune = Callable[..., Command]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def finetune(slurm: Slurm, as_built: Path, jobs: Path, tmp_path: Path) -> Iterator[Finetune]:
    """Start `toolformer finetune` with a profile for the cluster; kill it if the test leaves it."""
    with ExitStack() as commands:

        def start(*options: str, **settings: object) -> Command:
            profile = {"launcher": "slurm", "device": "cpu", "processes": 1, "engine": "plain", "jobs": str(jobs)}
            file = tmp_path / "profile.json"
            file.write_text(json.dumps({**profile, "slurm": {"partition": "cpu", **settings}}))
            words = ("finetune", "--data", str(as_built), "--profile", str(file), *options)
            return commands.enter_context(started(tmp_path / "output.txt", *words))

        yield start


def happened(jobs: Path, event: str) -> int:
    """Return how often the trainings below a folder have reported an event."""
    return [one["event"] for one in events(jobs)].count(event)


def waits(command: Command) -> bool:
    """Return whether a command has said that its job is queued, and why."""
    return any(f"queued: PENDING ({words}" in command.text for words in DRAINED)


@pytest.fixture
def launcher() -> SlurmLauncher:
    return SlurmLauncher(accelerator="cpu")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_queued_job_says_why_it_waits_and_is_withdrawn(
    slurm: Slurm, finetune: Finetune, number: signal.Signals
) -> None:
    slurm.node("DRAIN")
    command = finetune(*ENDLESS)
    command.await_(lambda: waits(command))
    command.process.send_signal(number)
    assert command.ended() == 128 + number
    assert slurm.jobs() == []
    assert "withdrawn" in command.text


@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_cancellation_by_a_person_ends_the_training(slurm: Slurm, finetune: Finetune, jobs: Path, state: str) -> None:
    if state == "pending":
        slurm.node("DRAIN")
    command = finetune(*ENDLESS, "--retries", "3")
    command.await_(lambda: waits(command) if state == "pending" else happened(jobs, "step"))
    slurm.ask("scancel", *slurm.jobs())
    assert command.ended() == UNFINISHED, command.text  # it submits no second job, which would wait, too
    assert happened(jobs, "started") == (state == "running")
    assert slurm.jobs() == []


def test_a_lost_node_is_made_up_for_and_told(slurm: Slurm, finetune: Finetune, jobs: Path) -> None:
    command = finetune(*ENDLESS, "--evaluate-every", "2")
    command.await_(lambda: happened(jobs, "saved"))
    slurm.lose_node()
    slurm.node_up()
    command.await_(lambda: happened(jobs, "started") == 2)
    assert "another attempt begins: the job ended without a word (failed: NODE_FAIL" in command.text
    command.process.send_signal(signal.SIGINT)
    assert command.ended() == 130


def test_a_time_limit_leaves_a_training_unfinished(slurm: Slurm, finetune: Finetune, jobs: Path) -> None:
    command = finetune(*ENDLESS, time_limit="2:00:00", warn_s=3600)
    command.await_(lambda: happened(jobs, "step"))
    [job] = slurm.jobs()
    slurm.ask("scontrol", "update", f"JobId={job}", "TimeLimit=60")  # so the warning is due
    assert command.ended() == UNFINISHED, command.text
    assert events(jobs)[-1]["event"] == "stopped"
    assert "with a checkpoint; run it again to go on" in command.text


@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_job_that_somebody_cancels_has_stopped(
    slurm: Slurm, launcher: SlurmLauncher, tmp_path: Path, state: str
) -> None:
    if state == "pending":
        slurm.node("DRAIN")
    (tmp_path / "deaf.py").write_text("import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)")
    handle = launcher.submit(LaunchRequest("job", tmp_path, program=(str(tmp_path / "deaf.py"),)))
    soon(lambda: launcher.state(handle)[0] == state)
    slurm.ask("scancel", *slurm.jobs())
    outcome = follow(launcher, handle, tmp_path, lambda events: None)
    assert (outcome.finished, outcome.reason) == (False, "its job was CANCELLED")


def test_a_job_without_a_word_names_what_it_printed(slurm: Slurm, tmp_path: Path) -> None:
    launcher = SlurmLauncher(accelerator="cpu", setup=("echo no such module", "exit 3"))
    handle = launcher.submit(LaunchRequest("job", tmp_path))
    with pytest.raises(TrainingError, match=r"failed: FAILED \(NonZeroExitCode\)\); what it printed is in .*/log.txt"):
        follow(launcher, handle, tmp_path, lambda events: None)
    assert (tmp_path / "log.txt").read_text() == "no such module\n"
