"""The snapshot while a run goes on: fresh by a fake clock, and no reason to stop."""

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import a_document

from flows.runtime.ledger import Ledger, open_run, reporting_to
from tasks.shards.arrow import stage_table
from tasks.shards.run_shard import ShardResult, ShardSpec, ShardWriter, StageOutput, run_shard
from warehouse.catalog import Catalog
from warehouse.commits import RowCounts, Run
from warehouse.errors import LockHeldError, StoreError
from warehouse.queries import rows_of
from warehouse.store import Store

RUN = Run("r1", "build-dataset", "2024-01-01", None, "running", {}, "c", "m")


@pytest.fixture
def telling() -> Iterator[None]:
    with reporting_to(lambda *_: None):  # outside a flow there is no logger of the run's
        yield


def finished(store: Store, number: int) -> ShardResult:
    """One shard with one document."""

    def do(write: ShardWriter) -> StageOutput:
        write.write(stage_table("ingest", [a_document(f"text {number}", line=number)]))
        return StageOutput((RowCounts("rows", 1, 1),))

    return run_shard(store, ShardSpec("ingest", "1", "", f"s{number}", {}, {"n": str(number)}), "r1", do)


def finish(ledger: Ledger, number: int) -> None:
    ledger.expect("ingest", 1)
    ledger.add(finished(ledger.store, number))


def documents(ledger: Ledger) -> int:
    """As a reader sees them now."""
    if not ledger.snapshot.exists():
        return 0
    return int(rows_of(ledger.snapshot, "SELECT count(*) AS n FROM documents")[0]["n"])


@pytest.fixture
def now() -> list[float]:
    """What the clock of `timed` says."""
    return [1000.0]


@pytest.fixture
def timed(tmp_path: Path, telling: None, now: list[float]) -> Iterator[Ledger]:
    store = Store(tmp_path)
    with Catalog(tmp_path / "catalog.duckdb", store=store) as catalog:
        yield Ledger(store, catalog, RUN, refresh_s=20.0, clock=lambda: now[0])


def full(*_: object, **__: object) -> None:
    raise StoreError("the disk is full")


def test_what_has_finished_is_published_within_the_time_set(timed: Ledger, now: list[float]) -> None:
    finish(timed, 1)
    assert documents(timed) == 0
    now[0] += 5.0
    assert timed.refresh() == 15.0
    assert documents(timed) == 0
    now[0] += 15.0  # no further shard finishes: the thread's question alone
    assert timed.refresh() == 20.0
    assert documents(timed) == 1
    now[0] += 100.0
    inode = timed.snapshot.stat().st_ino
    assert timed.refresh() == 20.0
    assert timed.snapshot.stat().st_ino == inode  # there was nothing new
    finish(timed, 2)  # the last snapshot is old: at once
    assert documents(timed) == 2


def test_a_slow_snapshot_is_refreshed_seldom(timed: Ledger, now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    took, published = [3.0], []

    def publish(*_: object, **__: object) -> None:
        published.append(now[0])
        now[0] += took[0]

    monkeypatch.setattr("flows.runtime.ledger.publish", publish)
    finish(timed, 1)
    now[0] += 20.0
    assert timed.refresh() == 60.0  # 20 times 3 s
    finish(timed, 2)
    now[0] += 59.0
    assert timed.refresh() == 1.0
    took[0] = 0.5
    now[0] += 1.0
    assert timed.refresh() == 20.0  # 20 times 0.5 s is less than what was set
    assert published == [1020.0, 1083.0]  # 1020 + 3 + 59 + 1


def test_a_shard_noted_as_it_finishes_is_counted_once(timed: Ledger, now: list[float]) -> None:
    told: list[str] = []
    with reporting_to(lambda stage, finished, total, done: told.append(f"{stage} {finished}/{total}")):
        timed.expect("ingest", 2)
        early, late = finished(timed.store, 1), finished(timed.store, 2)
        now[0] += 20.0
        timed.note(early)  # by the thread at work
        assert told == ["ingest 1/2"]
        assert documents(timed) == 0  # that thread has better things to do than to publish
        timed.add(early)  # by the flow, when the whole task has ended
        now[0] += 20.0
        timed.add(late)  # of a task in another process: the flow is the first to hear
        timed.add(late)  # as a result of two waits: for the scores, and for C* as a whole
        assert told == ["ingest 1/2", "ingest 2/2"]
        assert documents(timed) == 2
        timed.record("completed")
        assert len(timed.run.commits) == 2


def test_a_thread_asks_while_a_run_goes_on(tmp_path: Path, telling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLFORMER_REFRESH_S", "0.2")
    published = threading.Event()
    real = Ledger.publish

    def publish(self: Ledger, state: str) -> None:
        real(self, state)
        if threading.current_thread().name == "snapshot" and documents(self) == 1:
            published.set()

    monkeypatch.setattr(Ledger, "publish", publish)
    with open_run(Store(tmp_path), RUN) as ledger:
        now = [0.0]
        ledger._published = now[0]
        ledger.clock = lambda: now[0]
        finish(ledger, 1)
        assert documents(ledger) == 0  # the last snapshot is fresh, by this clock
        now[0] = 1.0
        assert published.wait(60.0)
    assert {run.state for run in Store(tmp_path).runs()} == {"completed"}


def test_a_snapshot_that_cannot_be_written_ends_no_run(
    timed: Ledger, now: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now[0] += 30.0
    monkeypatch.setattr("flows.runtime.ledger.publish", full)
    with caplog.at_level(logging.WARNING):
        finish(timed, 1)
    assert "the run goes on: the disk is full" in caplog.text
    monkeypatch.undo()
    finish(timed, 2)
    assert documents(timed) == 0  # not asked again at once
    now[0] += 20.0
    timed.refresh()
    assert documents(timed) == 2


def test_why_a_run_failed_is_told_all_the_same(tmp_path: Path, telling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.runtime.ledger.publish", full)
    with pytest.raises(ValueError, match="the true reason"), open_run(Store(tmp_path), RUN):
        raise ValueError("the true reason")
    assert [run.state for run in Store(tmp_path).runs()] == ["failed"]


def test_who_has_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("TOOLFORMER_WAIT_S", "0.3")
    monkeypatch.setattr("flows.runtime.ledger.get_run_logger", lambda: logging.getLogger("run"))
    left = tmp_path / "catalog.duckdb.1-ab.tmp"
    left.write_bytes(b"x")
    os.utime(left, (0, 0))
    with Catalog(tmp_path / "catalog.duckdb"):
        with pytest.raises(LockHeldError, match=f"process {os.getpid()}"), open_run(Store(tmp_path), RUN):
            raise AssertionError("not reached")
        lock = tmp_path / "catalog.duckdb.lock"
        assert f"waiting at most 0 s: {lock} is held by process {os.getpid()}" in caplog.text
        assert left.exists()  # nothing is touched before its turn has come
    with open_run(Store(tmp_path), RUN):
        assert not left.exists()
