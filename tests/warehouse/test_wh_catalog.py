"""The catalog is an index: idempotent, exclusive, and rebuilt from the commits alone."""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import pickle
from pathlib import Path

import pytest
from wh_fixtures import make_commit, make_run, program, put, put_dataset

from warehouse.catalog import Catalog
from warehouse.commits import DataFile, Dataset, RowCounts
from warehouse.errors import CatalogError, LockHeldError
from warehouse.files.lock import FileLock
from warehouse.store import Store

FILE = DataFile("shards/score/qa/s0.parquet", "d1", 3, 9)


def test_recording_twice_is_recording_once(tmp_path: Path) -> None:
    one = make_commit("score", "qa", "s0", [FILE], balances=[RowCounts("calls", 5, 3, {"x": 1}, {"timeout": 1})])
    two = make_commit("score", "mt", "s0", [FILE], inputs=("d0",))
    with Catalog(tmp_path / "catalog.duckdb") as catalog:
        catalog.record([one])
        before = catalog.facts()
        catalog.record([one, one])
        assert catalog.facts() == before
        catalog.record([dataclasses.replace(one, seconds=7.0), two])
        after = catalog.facts()
    assert sorted(after["commits"].column("seconds").to_pylist()) == [1.5, 7.0]
    # qa: in, kept, dropped x, failed timeout; mt: in, kept
    assert after["balances"].num_rows == 4 + 2
    assert after["files"].num_rows == 2
    assert after["commit_parts"].num_rows == 4
    assert after["commit_inputs"].to_pylist() == [{"commit_id": two.id, "digest": "d0"}]
    with Catalog(tmp_path / "catalog.duckdb") as catalog:  # it is on disk
        assert catalog.facts()["commits"].num_rows == 2


def test_runs_and_datasets_are_replaced_by_their_names(tmp_path: Path) -> None:
    commit = make_commit("score", "qa", "s0")
    dataset = Dataset("c", "v1", (FILE,), {"qa": 1}, {"qa": 1.0}, "r", "m", "c", "2024")
    with Catalog(tmp_path / "catalog.duckdb") as catalog:
        catalog.record_run(make_run("r", [], state="running"))
        catalog.record_run(make_run("r", [commit.key, commit.key]))
        catalog.record_run(make_run("s", [commit.key]))
        for licence in ("", "CC0"):
            catalog.record_dataset(dataclasses.replace(dataset, licence=licence))
        facts = catalog.facts()
    assert sorted(facts["runs"].column("state").to_pylist()) == ["completed", "completed"]
    assert facts["run_commits"].num_rows == 2
    assert facts["datasets"].column("licence").to_pylist() == ["CC0"]
    assert facts["dataset_files"].num_rows == 1


def test_reconcile_rebuilds_from_the_commits_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    commits = [put(store, "ingest", "", f"s{i}", [{"doc_id": f"d{i}"}]) for i in range(3)]
    run = make_run("r", [c.key for c in commits])
    store.write_run(run)
    dataset = put_dataset(store, "c", commits[:1], "r")
    with Catalog(tmp_path / "a.duckdb") as kept, Catalog(tmp_path / "b.duckdb") as lost:
        kept.record(commits)
        kept.record_run(run)
        kept.record_dataset(dataset)
        lost.record([make_commit("score", "qa", "gone")])
        counts = lost.reconcile(store)
        assert lost.facts() == kept.facts()
        assert lost.reconcile(store) == counts
    assert (counts["commits"], counts["run_commits"], counts["datasets"]) == (3, 3, 1)


def test_a_file_that_is_no_catalog_is_said_so_and_the_lock_freed(tmp_path: Path) -> None:
    path = tmp_path / "catalog.duckdb"
    path.write_bytes(b"not a database" * 1000)
    for _ in range(2):
        with pytest.raises(CatalogError, match="reconcile") as caught:
            Catalog(path)
        assert not isinstance(caught.value, LockHeldError)


def test_a_duckdb_url_is_locked_like_a_path(tmp_path: Path) -> None:
    path = tmp_path / "catalog.duckdb"
    with Catalog(path), pytest.raises(LockHeldError):
        Catalog(f"duckdb:///{path}")


def test_an_unknown_kind_of_database_is_said_so() -> None:
    with pytest.raises(CatalogError, match="not a catalog's URL"):
        Catalog("nosuchdatabase://user:secret@place/x")


HOLD = """
import sys
from warehouse.catalog import Catalog
catalog = Catalog(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_told_who_holds_the_catalog(tmp_path: Path) -> None:
    path = tmp_path / "catalog.duckdb"
    with program(HOLD, path) as child, pytest.raises(LockHeldError, match=f"process {child.pid} on ") as caught:
        Catalog(path)
    assert caught.value.since
    assert pickle.loads(pickle.dumps(caught.value)).pid == child.pid
    with Catalog(path) as catalog:  # however it dies, the lock is free
        assert catalog.facts()["commits"].num_rows == 0


def _wait_for(path: Path, said: multiprocessing.connection.Connection) -> None:
    said.send("asking")
    with FileLock(path, wait_s=math.inf):
        said.send("held")


def test_a_waiting_lock_is_given_once_the_holder_is_done(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    with FileLock(tmp_path / "x.lock"):
        child = spawn.Process(target=_wait_for, args=(tmp_path / "x.lock", there))
        child.start()
        assert here.recv() == "asking"
        assert not here.poll(0.2)
    assert here.recv() == "held"
    child.join()
    assert child.exitcode == 0


def test_a_lock_file_that_says_nothing_still_excludes(tmp_path: Path) -> None:
    with FileLock(tmp_path / "x.lock") as lock:
        lock.path.write_bytes(b"")
        with pytest.raises(LockHeldError, match="another process"):
            FileLock(tmp_path / "x.lock")
    lock.close()
    FileLock(tmp_path / "x.lock").close()


def test_a_catalog_that_is_opened_learns_what_was_committed_before_its_last_flow_was_killed(tmp_path: Path) -> None:
    store, path = Store(tmp_path), tmp_path / "catalog.duckdb"
    first = put(store, "ingest", "", "s0", [{"doc_id": "d0"}])
    with Catalog(path, store=store) as catalog:
        catalog.record([first])
    second = put(store, "ingest", "", "s1", [{"doc_id": "d1"}])  # ... and the flow died before it said so
    with Catalog(path, store=store) as catalog:
        assert set(catalog.facts()["commits"].column("commit_id").to_pylist()) == {first.id, second.id}
