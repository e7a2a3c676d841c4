"""Publishing: a refresh does no more than it must, nothing unreadable is published, and readers see whole snapshots."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
from wh_fixtures import CountingFiles, make_run, program, put, scored, snapshot_of

from warehouse.errors import SnapshotError
from warehouse.queries import rows_of
from warehouse.schema import STAGES
from warehouse.snapshot import publish as snapshot_module
from warehouse.store import Store


def test_a_refresh_looks_only_at_files_that_are_new(tmp_path: Path) -> None:
    files = CountingFiles(tmp_path)
    store, keys, looks = Store(tmp_path, files=files), [], []
    for shard in range(3):
        keys.append(put(store, "score", "qa", f"s{shard}", [scored(f"d{shard}", "qa", 1, 2.0)]).key)
        store.write_run(make_run("r", keys))
        files.looks.clear()
        snapshot_of(store, recheck=False)
        looks.append(len(files.looks))
    assert looks == [1, 1, 1]  # of n shards n looks; were all looked at each time: 1 + 2 + 3
    files.looks.clear()
    snapshot_of(store)  # a run's last snapshot
    assert len(files.looks) == 3


def test_a_file_that_is_gone_since_is_found_out_by_a_refresh(store: Store, tmp_path: Path) -> None:
    commits = [put(store, "score", "qa", f"s{n}", [scored(f"d{n}", "qa", 1, 2.0)]) for n in range(2)]
    store.write_run(make_run("r", [commit.key for commit in commits]))
    snapshot_of(store)
    (tmp_path / commits[0].files[0].path).unlink()
    snapshot = snapshot_of(store, recheck=False)
    assert rows_of(snapshot, "SELECT doc_id FROM scored") == [{"doc_id": "d1"}]


@pytest.mark.parametrize(("damaged", "published"), [(1, True), (2, False)])
def test_nothing_is_published_that_cannot_be_read(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: int, published: bool
) -> None:
    first = snapshot_of(store).stat().st_ino
    real, written = snapshot_module._write, []

    def damaging(temporary: Path, *rest: Any) -> None:
        real(temporary, *rest)
        written.append(temporary)
        if len(written) <= damaged:
            whole = temporary.read_bytes()
            temporary.write_bytes(whole[:12_288] + bytes(len(whole) - 12_288))  # three headers of 4,096 bytes stay

    monkeypatch.setattr(snapshot_module, "_write", damaging)
    if published:
        assert rows_of(snapshot_of(store), "SELECT count(*) AS n FROM facts.stages") == [{"n": len(STAGES)}]
    else:
        with pytest.raises(SnapshotError, match="cannot publish"):
            snapshot_of(store)
        assert (tmp_path / "warehouse.duckdb").stat().st_ino == first
    assert len(written) == 2
    assert list(tmp_path.glob("*.tmp*")) == []


@pytest.mark.parametrize("fails", [True, False])
def test_one_replaced_while_opened_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    snapshot = snapshot_of(Store(tmp_path))
    real, opened = duckdb.connect, []

    def replaced_meanwhile(path: str, read_only: bool) -> duckdb.DuckDBPyConnection:
        opened.append(real(path, read_only=read_only))
        if len(opened) == 1:
            other = snapshot.with_name("other")
            other.write_bytes(snapshot.read_bytes())
            other.replace(snapshot)
            if fails:
                raise duckdb.IOException("No more data remaining in MetadataReader")
        return opened[-1]

    monkeypatch.setattr("warehouse.queries.rows.duckdb.connect", replaced_meanwhile)
    assert rows_of(snapshot, "SELECT 1 AS one") == [{"one": 1}]
    assert len(opened) == 2  # what the first may have mixed of two files is not asked


READER = """
import os, select, sys
os.nice(10)
from warehouse.queries import rows_of
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    documents, shards = rows_of(sys.argv[1], '''SELECT (SELECT count(*) FROM documents) AS d,
        (SELECT count(*) FROM shards WHERE "current") AS s''')[0].values()
    assert documents == 2 * shards, (documents, shards)
    print(shards, flush=True)
"""


def test_readers_never_see_a_half_written_snapshot(tmp_path: Path) -> None:
    store, keys = Store(tmp_path), []

    def grow(i: int) -> Path:
        rows = [{"doc_id": f"d{i}"}, {"doc_id": f"e{i}"}]
        keys.append(put(store, "ingest", "", f"s{i}", rows).key)
        store.write_run(make_run("r", keys))
        return snapshot_of(store)

    path = grow(0)
    looks: dict[Any, list[int]] = {}
    with (
        duckdb.connect(str(path), read_only=True) as held,  # open for the whole time, and blocking nothing
        program(READER, path) as one,
        program(READER, path) as other,
    ):
        for i in range(1, 11):
            grow(i)
            for reader in (one, other):  # each has looked as often as the file was renewed
                looks.setdefault(reader, []).append(int(reader.stdout.readline()))
        for reader, seen in looks.items():
            out, _ = reader.communicate("stop\n")
            assert reader.returncode == 0
            seen += map(int, out.split())
            assert seen == sorted(seen)  # and never saw an older state after a newer one
        assert held.execute("SELECT count(*) FROM documents").fetchone() == (2,)
    assert rows_of(path, "SELECT count(*) AS n FROM documents") == [{"n": 22}]  # 2 of each of 11
    assert list(tmp_path.glob("*.tmp*")) == []
