"""A training followed past servers that are away, silent queues, and attempts that left something behind."""

import errno
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tasks.launch.base import JobState, LaunchError, LaunchRequest, LostError
from tasks.launch.local import LocalLauncher
from tasks.training import monitor, starting
from tasks.training.monitor import OnEvents, follow, stop
from tasks.training.outcome import TrainingError, TrainingOutcome, outcome_of, read_tail
from tasks.training.starting import launch, launch_request
from tests.support.waiting import soon
from toolformer_core.errors import UsageError
from toolformer_core.finetune.events import FAILURE_FILE, STOP_FILE

STARTED = {"event": "started"}
FINISHED = {"event": "finished", "step": 8, "best_step": 4, "best_perplexity": 2.0}
ENDED = (JobState.SUCCEEDED, "")
RUNS = (JobState.RUNNING, "")


class Told:
    """A launcher that answers from a list, the last answer again and again, and notes what is asked of it."""

    poll_s = 0.0

    def __init__(self, *states: Any, name: str = "told") -> None:
        self.name = name
        self._states = list(states)
        self.asked: list[str] = []

    def submit(self, request: LaunchRequest) -> str:
        self.asked.append("submit")
        return f"handle {self.asked.count('submit')}"

    def state(self, handle: str) -> tuple[JobState, str]:
        now = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if isinstance(now, BaseException):
            raise now
        return now() if callable(now) else now

    def cancel(self, handle: str) -> None:
        self.asked.append(f"cancel {handle}")


def followed(launcher: Told, folder: Path, on_events: OnEvents = lambda events: None, **more: Any) -> TrainingOutcome:
    return follow(launcher, "handle", folder, on_events, every_s=0.001, **more)


def away(events: list[dict[str, Any]]) -> None:
    raise ConnectionError("the server is away")


def says(folder: Path, *events: dict[str, Any]) -> None:
    with (folder / "events.jsonl").open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(e) + "\n" for e in events)


def test_what_cannot_be_told_now_is_told_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    says(tmp_path, STARTED, FINISHED)
    calls: list[list[str]] = []

    def seen(events: list[dict[str, Any]]) -> None:
        calls.append([e["event"] for e in events])
        if len(calls) < 3:
            away(events)

    launcher = Told(RUNS, RUNS, ENDED)
    assert followed(launcher, tmp_path, seen).finished
    assert calls == [["started", "finished"]] * 3
    assert ((tmp_path / STOP_FILE).exists(), launcher.asked) == (False, [])
    assert "the server is away" in caplog.text


def test_two_that_launch_at_once_have_one_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()

    class Slow(Told):
        def submit(self, request: LaunchRequest) -> str:
            handle = super().submit(request)
            assert go_on.wait(60)
            return handle

    first, second = Slow(RUNS), Slow(RUNS)
    with ThreadPoolExecutor(2) as pool:
        own = pool.submit(launch, first, tmp_path, 1)
        soon(lambda: first.asked == ["submit"])
        other = pool.submit(launch, second, tmp_path, 1)
        soon(lambda: "is held by process" in caplog.text or bool(second.asked))
        go_on.set()
        assert (own.result(60), other.result(60)) == ("handle 1", "handle 1")
    assert second.asked == []  # it follows the first one's job


def test_what_cannot_be_told_at_all_is_an_error_after_the_end_unless_the_training_has_one(tmp_path: Path) -> None:
    says(tmp_path, STARTED)
    with pytest.raises(TrainingError, match="without a word"):
        followed(Told((JobState.FAILED, "exit code 1")), tmp_path, away)
    says(tmp_path, FINISHED)
    with pytest.raises(ConnectionError):
        followed(Told(RUNS, ENDED), tmp_path, away)
    assert not (tmp_path / STOP_FILE).exists()


@pytest.mark.parametrize(
    ("first", "then", "asked"),
    [
        (RUNS, LostError("no answer"), []),  # a silent queue stops nothing
        # an interruption ends a job hard, for what an ended one left behind, or one that nobody hears of
        (KeyboardInterrupt(), ENDED, ["cancel handle"]),
        (KeyboardInterrupt(), LostError("no answer"), ["cancel handle"]),
    ],
)
def test_an_interruption_asks_the_job_to_stop_and_a_silent_queue_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Any, then: Any, asked: list[str]
) -> None:
    monkeypatch.setattr(monitor, "_NO_ANSWER_S", 0.0)
    launcher = Told(first, then)
    with pytest.raises(KeyboardInterrupt if asked else LostError):
        followed(launcher, tmp_path)
    assert (tmp_path / STOP_FILE).exists() == bool(asked)
    assert launcher.asked == asked


def test_who_waits_for_a_stop_leaves_a_job_alone_that_was_launched_again(tmp_path: Path) -> None:
    note = {"launcher": "told", "handle": "handle", "attempt": 1, "events": 0}
    (tmp_path / "launch.json").write_text(json.dumps(note))

    def launched_again() -> tuple[JobState, str]:
        (tmp_path / STOP_FILE).unlink()
        return RUNS

    launcher = Told(RUNS, RUNS, launched_again, RUNS)
    assert stop(launcher, tmp_path, lambda events: None, every_s=0.001, stop_s=0.5)
    assert launcher.asked == []


def test_no_file_is_looked_for_while_a_job_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(path: Path) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    says(tmp_path, STARTED, FINISHED)
    monkeypatch.setattr(Path, "exists", stale)
    launcher = Told(RUNS, RUNS, ENDED)
    assert followed(launcher, tmp_path).finished
    assert launcher.asked == []


def test_a_job_that_is_withdrawn_or_cancelled_has_stopped(tmp_path: Path) -> None:
    launcher = Told((JobState.PENDING, "Resources"), (JobState.PENDING, "Resources"), (JobState.CANCELLED, "CANCELLED"))
    stopped = followed(launcher, tmp_path, on_wait=lambda _: (tmp_path / STOP_FILE).touch())
    assert stopped == TrainingOutcome(False, 0, None, None, "its job was withdrawn from the queue")
    assert launcher.asked == ["cancel handle"]
    says(tmp_path, STARTED, {"event": "step", "step": 3})
    stopped = followed(Told((JobState.CANCELLED, "CANCELLED by 7")), tmp_path)
    assert stopped == TrainingOutcome(False, 3, None, None, "its job was CANCELLED by 7")


def test_why_a_job_waits_is_told_once(tmp_path: Path) -> None:
    says(tmp_path, STARTED, FINISHED)
    waiting = (JobState.PENDING, "ImagePullBackOff")
    launcher = Told(waiting, waiting, (JobState.PENDING, "Resources"), RUNS, ENDED)
    heard: list[str] = []
    followed(launcher, tmp_path, on_wait=heard.append)
    assert heard == ["ImagePullBackOff", "Resources"]


def test_another_attempt_waits_for_the_end_of_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(Told(RUNS), tmp_path, 1)

    def says_stop() -> tuple[JobState, str]:
        (tmp_path / STOP_FILE).touch()  # as a pod does that is being ended
        return (JobState.ENDING, "being deleted")

    for before in ((JobState.FAILED, ""), (JobState.ENDING, "being deleted")):  # which is not taken for one that runs
        launcher = Told(before, says_stop, (JobState.GONE, ""))
        assert launch(launcher, tmp_path, 1) == "handle 1"  # this launcher's first
        assert launcher.asked == ["cancel handle 1", "submit"]
        assert not (tmp_path / STOP_FILE).exists()
    assert json.loads((tmp_path / "launch.json").read_text())["attempt"] == 3
    monkeypatch.setattr(starting, "_CLEAR_S", 0.0)
    launcher = Told((JobState.FAILED, ""), (JobState.ENDING, "COMPLETING"))
    with pytest.raises(LaunchError, match="is still there"):
        launch(launcher, tmp_path, 1)
    assert launcher.asked == ["cancel handle 1"]


def test_attempts_are_named_apart(tmp_path: Path) -> None:
    folder = tmp_path / "cstar-toolformer-0123456789abcdef"
    folder.mkdir()
    assert launch_request(folder, 1).name == "cstar-toolformer-0123456789abcdef-1"
    launch(Told(RUNS), folder, 1)
    assert launch_request(folder, 1).name.endswith("-2")
    says(folder, STARTED, STARTED)
    (folder / "launch.json").unlink()  # as somebody does who gives a machine up
    assert launch_request(folder, 1).name.endswith("-3")


def test_another_launcher_waits_for_word_that_the_job_has_ended(tmp_path: Path) -> None:
    launch(Told(RUNS, name="slurm"), tmp_path, 1)
    says(tmp_path, STARTED)
    with pytest.raises(UsageError, match=r"'slurm' and has not said that it ended.*launch\.json"):
        launch(Told(RUNS), tmp_path, 1)
    says(tmp_path, {"event": "stopped", "step": 3})
    assert launch(Told(RUNS), tmp_path, 1) == "handle 1"


def test_a_job_that_cannot_be_noted_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "launch.json").mkdir()
    launcher = Told(RUNS)
    with pytest.raises(LostError, match="cannot be read"):
        launch(launcher, tmp_path, 1)
    assert launcher.asked == []


class Deaf(Told):
    """Starts what it is asked for, and its answers are lost; a job of the same name is taken over."""

    def __init__(self, *states: Any) -> None:
        super().__init__(*states)
        self.deaf = True
        self.jobs: list[str] = []

    def submit(self, request: LaunchRequest) -> str:
        if request.name not in self.jobs:
            self.jobs.append(request.name)
        if self.deaf:
            raise LostError("no answer")
        return request.name


def test_a_launch_whose_answer_was_lost_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Deaf(RUNS, ENDED)
    with pytest.raises(LostError):
        launch(launcher, tmp_path, 1)
    assert not stop(launcher, tmp_path, lambda events: None)
    assert (tmp_path / STOP_FILE).exists()  # a job of which nobody heard is told to stop all the same
    says(tmp_path, STARTED)  # it runs
    with monkeypatch.context() as away:
        away.setattr(launcher, "submit", lambda request: LocalLauncher().run("nosuchcommand"))
        with pytest.raises(UsageError):  # which proves nothing about the launch before
            launch(launcher, tmp_path, 1)
    launcher.deaf = False
    handle = launch(launcher, tmp_path, 1)
    assert launcher.jobs == [handle]
    says(tmp_path, FINISHED)
    assert followed(launcher, tmp_path).finished
    assert launcher.asked == []


def test_a_launch_whose_answer_was_lost_and_that_has_ended_is_another_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_LAST_EVENTS_S", 0.05)
    launcher = Deaf(RUNS, ENDED)
    with pytest.raises(LostError):
        launch(launcher, tmp_path, 1)
    says(tmp_path, STARTED, {"event": "stopped", "step": 3})
    launcher.deaf = False
    launch(launcher, tmp_path, 1)
    assert [name[-2:] for name in launcher.jobs] == ["-1", "-2"]
    with pytest.raises(TrainingError, match="without a word"):  # it did not stop: the one before it did
        followed(Told(ENDED), tmp_path)


def test_a_refused_launch_leaves_the_attempt_before_it_noted(tmp_path: Path) -> None:
    class Refuses(Told):
        def submit(self, request: LaunchRequest) -> str:
            raise LaunchError("no such partition")

    for first, number in ((RUNS, 1), ((JobState.FAILED, ""), 2)):
        with pytest.raises(LaunchError):
            launch(Refuses(first), tmp_path, 1)
        assert launch_request(tmp_path, 1).name.endswith(f"-{number}")
        launch(Told(RUNS), tmp_path, 1)
    assert json.loads((tmp_path / "launch.json").read_text())["handle"] == "handle 1"


def test_a_job_taken_over_behind_its_start_may_finish(tmp_path: Path) -> None:
    says(tmp_path, STARTED, {"event": "stopped", "step": 3}, STARTED)  # launch.json is gone, the job runs
    launch(Told(RUNS), tmp_path, 1)
    says(tmp_path, FINISHED)
    assert outcome_of([STARTED, FINISHED]) == followed(Told(ENDED), tmp_path)


def test_who_interrupts_hears_no_more_than_that(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    launcher = Told(KeyboardInterrupt(), LaunchError("it does not end"))
    with pytest.raises(KeyboardInterrupt):
        followed(launcher, tmp_path)
    assert "it does not end" in caplog.text


def test_an_end_without_a_word_has_a_reason_and_names_the_log(tmp_path: Path) -> None:
    def failure(detail: str = "") -> TrainingError:
        with pytest.raises(TrainingError) as failed:
            followed(Told((JobState.FAILED, detail)), tmp_path)
        return failed.value

    for detail in ("OOMKilled", "OUT_OF_MEMORY", "oom_kill event"):
        assert failure(detail).reason == "out_of_memory"
    gone = failure("pod room-3 failed: BloomForCausalLM")
    assert (gone.reason, gone.retryable) == ("gone", True)
    assert gone.message.endswith(f"what it printed is in {tmp_path}/log.txt")
    (tmp_path / FAILURE_FILE).touch()  # there was no room for a word
    assert (failure().reason, failure().retryable) == ("disk_full", False)


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    assert read_tail(path) == ""
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(100)) + b"caf\xc3\xa9 \xff\nlast")
    assert read_tail(path, 3) == "line 99\ncafé �\nlast"
    assert len(read_tail(path).splitlines()) == 40
    path.write_bytes(b"x" * 1_000_000 + b"\nend\n")  # 1 MB and no line break: only 256 KiB of it are read
    assert len(read_tail(path)) == 256 * 1024 - 1
