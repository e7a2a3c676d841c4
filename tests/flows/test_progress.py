"""Lines of progress where there is no terminal, by a fake clock: when one is due, what it says, and that it ends."""

import threading
from typing import Any

import pytest

from cli.render.progress import BuildDisplay, TrainingDisplay
from flows.runtime.progress import Pulse, StageProgress, duration
from tasks.shards.run_shard import ActiveShard, ShardResult
from warehouse.commits import CommitKey, RowCounts


class World:
    """The time, the shards at work and the tokens passed."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.running: list[ActiveShard] = []
        self.tokens = 0

    def clock(self) -> float:
        return self.now

    def pulse(self) -> Pulse:
        return Pulse(lambda: self.running, lambda: self.tokens, self.clock)

    def display(self) -> BuildDisplay:
        return BuildDisplay(clock=self.clock, pulse=self.pulse())


@pytest.fixture
def world() -> World:
    return World()


def done(stage: str, tool: str = "qa", seconds: float = 1.0, skipped: bool = False, rows: int = 8) -> ShardResult:
    balance = RowCounts("documents", rows, rows // 2, {"no_position": rows - rows // 2})
    return ShardResult(CommitKey(stage, tool, "00000", "f"), (), (balance,), seconds, skipped)


def lines(captured: pytest.CaptureFixture[str]) -> list[str]:
    out, err = captured.readouterr()
    assert out == ""  # which is `--json`'s
    return err.splitlines()


def test_times_as_a_person_says_them() -> None:
    said = {0.4: "0 s", 99: "99 s", 100: "2 min", 5999: "100 min", 6000: "1.7 h", 36_000: "10.0 h"}
    assert {seconds: duration(seconds) for seconds in said} == said


def test_a_stage_tells_its_beginning_its_quarters_and_its_end(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    display = world.display()
    world.running = [ActiveShard("sample", "qa", "00000", 1000.0), ActiveShard("sample", "mt", "00000", 1000.0)]
    display.poll()
    display.poll()
    assert lines(capsys) == ["sample     begun with qa 00000"]
    for finished in range(1, 9):
        world.now += 5.0
        display("sample", finished, 8, done("sample", skipped=finished == 1))
    # 7 of 8 shards were worked on in 40 s, the first was found done: after 4, 3 in 20 s, 4 to go: 27 s
    assert lines(capsys) == [
        "sample     2 of 8 shards (1 found done); 16 documents, 8 kept; 60 s left; 10 s so far",
        "sample     4 of 8 shards (1 found done); 32 documents, 16 kept; 27 s left; 20 s so far",
        "sample     6 of 8 shards (1 found done); 48 documents, 24 kept; 12 s left; 30 s so far",
        "sample     8 of 8 shards (1 found done); 64 documents, 32 kept; 40 s so far",
    ]


def test_a_shard_that_takes_an_hour_is_told_of_once_a_minute(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    display = world.display()
    world.running = [ActiveShard("sample", "qa", "00000", 1000.0)]
    display.poll()
    told = [lines(capsys)]
    for _ in range(3600):
        world.now += 1.0
        world.tokens += 50
        display.poll()
    told = lines(capsys)
    assert len(told) == 60
    assert told[0] == "at work: sample qa 00000 for 60 s, 3,000 tokens in 60 s"  # 60 * 50
    assert told[-1] == "at work: sample qa 00000 for 60 min, 3,000 tokens in 60 s"


def test_a_line_a_minute_tells_the_last_unfinished_stage(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    display = world.display()
    display("ingest", 1, 1, done("ingest", ""))
    display("sample", 1, 100, done("sample", seconds=20.0))
    assert [line[:31] for line in lines(capsys)] == [
        "ingest     1 of 1 shards; 8 doc",
        "sample     1 of 100 shards; 8 d",
    ]
    world.running = [ActiveShard("sample", "mt", "00003", 1030.0), ActiveShard("sample", "qa", "00004", 1031.0)]
    world.now += 59.0
    display("sample", 2, 100, done("sample", "mt"))  # no quarter, and no minute yet
    display.poll()
    assert lines(capsys) == []
    world.now += 1.0
    display.poll()
    # the stage began 20 s before its first shard finished: 2 in 80 s, 98 to go: 3920 s = 65 min
    assert lines(capsys) == [
        "sample     2 of 100 shards; 16 documents, 8 kept; 65 min left; 80 s so far; "
        "at work: sample mt 00003 for 30 s (1 more)"
    ]


def test_where_other_processes_work_the_silence_is_told(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    display = world.display()
    display("sample", 1, 2, done("sample", seconds=0.0))
    lines(capsys)
    world.now += 120.0
    display.poll()
    assert lines(capsys) == [
        "sample     1 of 2 shards; 8 documents, 4 kept; 2 min left; 2 min so far; no shard has finished for 2 min"
    ]


def test_tokens_of_another_model_are_not_compared(world: World) -> None:
    pulse = world.pulse()
    world.running = [ActiveShard("sample", "", "00000", 1000.0)]
    world.tokens = 500
    assert pulse.line() == "at work: sample 00000 for 0 s, 500 tokens in 0 s"
    world.now, world.tokens = 1060.0, 20
    assert pulse.line() == "at work: sample 00000 for 60 s"


def test_nothing_is_said_after_the_end(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    display = world.display()
    with display:
        thread = next(t for t in threading.enumerate() if t.name == "progress")
        assert thread.daemon  # it does not keep the process alive
    world.now += 3600.0
    display.poll()
    display("sample", 1, 1, done("sample"))
    thread.join(10.0)
    assert not thread.is_alive()
    assert lines(capsys) == []


def test_its_own_thread_says_what_is_due(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    said, display = threading.Event(), world.display()
    monkeypatch.setattr(display, "_print", lambda line: said.set())
    monkeypatch.setattr(display, "_due_lines", lambda due: ["a line"] if due else [])
    world.now += 60.0
    with display:
        assert said.wait(30.0)


def test_closing_waits_for_nobody_who_was_interrupted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    display = world.display()
    monkeypatch.setattr(display, "_print", lambda line: display.close())  # as a signal's handler does in mid-line
    display.say("a line")
    display.say("none after it")


def test_a_quiet_display_starts_no_thread(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with BuildDisplay(quiet=True) as display, TrainingDisplay(["cc"], 10, quiet=True):
        display("sample", 1, 1, done("sample"))
        assert threading.active_count() == before
    assert lines(capsys) == []


def test_a_training_is_told_of_once_a_minute(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    display = TrainingDisplay(["cc", "toolformer"], 2000, clock=world.clock)

    def step(index: int, number: int) -> None:
        event: dict[str, Any] = {"event": "step", "step": number, "eta_s": 1200.0, "loss": 2.5}
        display(index, {**event, "tokens_per_second": 3000.0})

    for _ in range(60):
        world.now += 1.0
        step(0, 120)
        display.poll()
    # the other one has said nothing for a minute
    assert lines(capsys) == [
        "cc         step    120 of 2,000  loss 2.500  3,000 tokens/s  1,200 s left",
        "toolformer starting; nothing new for 60 s",
    ]
    display(0, {"event": "evaluated", "step": 500, "perplexity": 9.0})
    assert lines(capsys) == ["cc         step    500  dev perplexity 9.000"]
    display(0, {"event": "finished"})
    world.now += 59.0
    display.poll()
    assert lines(capsys) == []
    world.now += 1.0
    display.poll()
    assert lines(capsys) == ["toolformer starting; nothing new for 2 min"]


def test_a_stage_of_another_flow_is_counted_anew(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    with world.display() as display:
        for _ in range(2):  # two rounds of two shards, eight documents each
            for finished in (1, 2):
                world.now += 1
                display("score", finished, 2, done("score"))
    said = [line for line in lines(capsys) if line.startswith("score")]
    assert [line.partition(";")[0] for line in said] == ["score      1 of 2 shards", "score      2 of 2 shards"] * 2
    assert "16 documents, 8 kept" in said[-1]


def test_what_a_shard_of_less_than_a_second_leaves_is_not_told() -> None:
    stage = StageProgress(finished=1)
    assert stage.line(2, 0.9) == "1 of 2 shards"
    assert stage.line(2, 8.0) == "1 of 2 shards; 8 s left"
