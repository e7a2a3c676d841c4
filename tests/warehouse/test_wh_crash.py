"""A warehouse whose process is killed, or whose disk is full, at every step there is: see `crashing`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wh_fixtures import disk_of, environment, make_run, put, snapshot_of

from warehouse.catalog import Catalog
from warehouse.errors import CatalogError, SnapshotError, StoreError, WarehouseError
from warehouse.queries import rows_of
from warehouse.snapshot.pack import pack
from warehouse.snapshot.publish import SNAPSHOT, publish
from warehouse.store import Store

STORE_STEPS, FIRST_NAMES = 88, 7  # of two builds, see below; first names that are taken away
REMEDY = "No space left on device; free some space there and run the same command again"


def every_step(kind: str, extent: str, folder: Path) -> list[dict[str, Any]]:
    command = [sys.executable, str(Path(__file__).with_name("crashing.py")), kind, extent, str(folder)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def check(kind: str, steps: list[dict[str, Any]]) -> None:
    for step in steps:
        assert step["wrong"] == [], step  # nothing half written is found
        assert step["same"], step  # and the next run ends with the bytes of one that was left alone
        if kind == "kill":
            assert step["code"] == -9, step
        elif step["code"] != 0:
            assert step["code"] == 1, step
            assert REMEDY in step["said"]
            assert step["said"].startswith(("StoreError", "CatalogError", "SnapshotError"))
            assert "\n" not in step["said"]


@pytest.mark.parametrize("kind", ["kill", pytest.param("full", marks=pytest.mark.slow)])
def test_a_store_survives_every_step(kind: str, tmp_path: Path) -> None:
    steps = every_step(kind, "store", tmp_path)
    # per build a file each for run (twice), data, rejects and commit, a dataset in the second: 11 files. A file is
    # opened, written, flushed, renamed, and its folder flushed: 55 steps. Data, rejects, commits and the dataset are
    # linked instead of renamed, and the first name taken away: 3 more per build, and 1. Folders: the warehouse; runs,
    # and datasets with cstar in it; of shards, rejects and commits three each: 13, made, and the entry of each flushed.
    assert len(steps) == STORE_STEPS == 55 + FIRST_NAMES + 26
    # what cannot take the first name away leaves that to the next sweep
    assert sum(step["code"] == 0 for step in steps) == (FIRST_NAMES if kind == "full" else 0)
    check(kind, steps)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kill", "full"])
def test_a_warehouse_survives_every_step(kind: str, tmp_path: Path) -> None:
    steps = every_step(kind, "whole", tmp_path)
    # the store's, the catalog's lock file, twice a snapshot (flushed, renamed, an older log taken away, its folder
    # flushed, and two files that DuckDB may have left beside it), and gc's three files
    assert len(steps) == STORE_STEPS + 1 + 2 * 6 + 3
    # a full disk stops all but the taking away of first names, and of files that are not there; a kill those as well
    assert sum(step["code"] == 0 for step in steps) == (FIRST_NAMES + 4 if kind == "full" else 0)
    check(kind, steps)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of("24m", tmp_path) as folder:
        yield folder


def fill(folder: Path, leave: int = 0) -> Path:
    path = folder / "ballast"
    with path.open("wb") as stream:
        left = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize - leave
        stream.write(bytes(max(0, left)))
    return path


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    store = Store(small_disk)
    rows = [{"doc_id": f"d{i}", "text": f"text {i}"} for i in range(50)]
    first = put(store, "ingest", "", "s0", rows)
    store.write_run(make_run("r1", [first.key], state="running"))
    with Catalog(small_disk / "catalog.duckdb", store=store) as catalog:
        publish(store, catalog)
    many = [{"doc_id": f"e{i}", "text": os.urandom(40).hex()} for i in range(20_000)]  # 0.8 MB, hardly compressible
    ballast = fill(small_disk)
    with pytest.raises(StoreError, match=REMEDY) as data:
        put(store, "ingest", "", "s1", many)
    assert str(small_disk / "shards") in str(data.value)
    with pytest.raises(SnapshotError, match=REMEDY) as snapshot:
        snapshot_of(store)
    assert str(small_disk / SNAPSHOT) in str(snapshot.value)
    assert rows_of(small_disk / SNAPSHOT, "SELECT count(*) AS n FROM documents") == [{"n": 50}]  # the last one stays
    assert list(store.commits()) == [first]
    assert list(store.files.stale_temporaries(0.0)) == []  # nothing is left behind that would fill it further
    ballast.unlink()
    second = put(store, "ingest", "", "s1", many)
    store.write_run(make_run("r1", [first.key, second.key]))
    with Catalog(small_disk / "catalog.duckdb", store=store) as catalog:
        publish(store, catalog)
    assert rows_of(small_disk / SNAPSHOT, "SELECT count(*) AS n FROM documents") == [{"n": 20_050}]


def test_packing_onto_a_full_disk_says_so_and_leaves_nothing(small_disk: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    many = [{"doc_id": f"e{i}", "text": os.urandom(500).hex()} for i in range(40_000)]  # 20 MB that do not compress
    store.write_run(make_run("r1", [put(store, "ingest", "", "s0", many).key]))
    snapshot = snapshot_of(store)
    ballast = fill(small_disk, leave=8 << 20)
    with pytest.raises(SnapshotError, match="the disk is full; free some space there, or choose a file on another"):
        pack(snapshot, small_disk / "c4.duckdb")
    assert list(small_disk.iterdir()) == [ballast]


def test_a_catalog_on_a_full_disk_says_so_and_goes_on_later(small_disk: Path) -> None:
    store = Store(small_disk)
    commits = [put(store, "ingest", "", f"s{i}", [{"doc_id": f"d{i}"}]) for i in range(200)]
    path = small_disk / "catalog.duckdb"
    with Catalog(path) as catalog:
        catalog.record(commits[:1])
    ballast = fill(small_disk, leave=8192)
    with pytest.raises(CatalogError, match=REMEDY) as caught, Catalog(path) as catalog:
        catalog.record(commits)
    assert str(path) in str(caught.value)
    with pytest.raises(WarehouseError, match="No space left on device"):  # the place is wrong, and not the file
        Catalog(path, store=store)
    assert not (small_disk / "quarantine").exists()
    ballast.unlink()
    with Catalog(path, store=store) as catalog:
        assert catalog.facts_of()["commits"].num_rows == 200
