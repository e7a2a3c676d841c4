"""Data first, commit last; what is broken is found, set aside and never read."""

import dataclasses
import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from wh_fixtures import make_commit, make_run, put, table

from warehouse.commits import (
    Commit,
    DataFile,
    Dataset,
    RowCounts,
    dataset_version,
    fingerprint,
    made_id,
    split_dataset_key,
)
from warehouse.errors import ConservationError, SchemaError, StoreError
from warehouse.files.base import LocalFiles
from warehouse.files.remote import RemoteFiles
from warehouse.store import Store

ROWS = [{"doc_id": f"d{i}", "text": f"text {i} é"} for i in range(50)]
FP = fingerprint({"config": "c1", "code": "ingest"})


@pytest.fixture(params=["local", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return Store(tmp_path / "data")
    return Store("", files=RemoteFiles("test://data", pafs.LocalFileSystem(), str(tmp_path / "data")))


def test_what_is_written_is_read_and_found(store: Store) -> None:
    commit = put(store, "ingest", "", "s0", ROWS)
    assert commit.files[0].path == f"shards/ingest/_/s0-{FP[:16]}.parquet"
    assert store.read(commit.files[0]).to_pylist()[3]["text"] == "text 3 é"
    assert store.read(commit.files[0], columns=["text", "doc_id"]).column_names == ["text", "doc_id"]
    assert store.find("ingest", "", "s0", FP) == commit
    assert store.find("ingest", "", "s1", FP) is None
    assert store.find("ingest", "", "s0", fingerprint({"config": "other"})) is None
    assert list(store.commits()) == list(store.commits("ingest")) == [commit]
    assert list(store.commits("score")) == []


def test_a_local_store_is_named_by_path_or_file_url(tmp_path: Path) -> None:
    commit = put(Store(tmp_path / "a b"), "ingest", "", "s0", ROWS)
    assert list(Store((tmp_path / "a b").as_uri()).commits()) == [commit]
    with pytest.raises(StoreError, match="cannot open"):
        Store("nosuchscheme://key:secret@place/x")


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    whole = table("ingest", [{"doc_id": f"d{i}", "text": f"text {i} " * 60} for i in range(6000)])  # several pages
    pieces = pa.concat_tables([whole.slice(start, 700) for start in range(0, 6000, 700)])
    odd = pieces.select(list(reversed(whole.column_names))).replace_schema_metadata({"a": "b"})
    written = {Store(tmp_path / str(i)).write("ingest", "", "s", FP, t).digest for i, t in enumerate([whole, odd])}
    assert len(written) == 1
    assert Store(tmp_path / "x").write("ingest", "", "s", FP, whole.slice(1)).digest not in written


def test_what_another_process_has_mended_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """One that was held up between finding a commit damaged and setting it aside takes away nothing that is whole."""
    slow, quick = Store(tmp_path), Store(tmp_path)
    commit = put(slow, "ingest", "", "s0", ROWS)
    slow.files.delete(commit.files[0].path)
    found = slow.damage(commit)
    assert found == {commit.files[0].path: "is gone"}
    quick.quarantine(commit)
    mended = put(quick, "ingest", "", "s0", ROWS)
    assert slow.quarantine(commit) == {}  # all is whole by now
    assert quick.find("ingest", "", "s0", FP) == mended
    slow.damage = lambda _: found  # type: ignore[method-assign] # it looked a moment earlier
    later = dataclasses.replace(commit, created="2020-01-01T00:00:00")
    assert slow.quarantine(later) == {}  # another commit stands there
    slow.quarantine(mended)  # the same one: it goes, and the data that was written anew stays
    assert quick.find("ingest", "", "s0", FP) is None
    assert quick.read(mended.files[0]).num_rows == 50


def test_missing_data_makes_a_commit_absent(store: Store) -> None:
    commit = put(store, "ingest", "", "s0", ROWS)
    store.files.delete(commit.files[0].path)
    assert store.find("ingest", "", "s0", FP) is None
    with pytest.raises(StoreError, match="is gone"):
        store.read(commit.files[0])
    with pytest.raises(StoreError, match="data comes first"):
        store.commit(commit)


@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda b: b"", lambda b: b.replace(b'"rows":50', b'"rows":51')])
def test_a_damaged_commit_is_absent_and_set_aside(store: Store, damage: object) -> None:
    commit = put(store, "ingest", "", "s0", ROWS)
    path = f"commits/{commit.id}.json"
    data = store.files.get(path)
    assert data is not None
    store.files.put(path, damage(data))  # type: ignore[operator]
    assert store.find("ingest", "", "s0", FP) is None
    assert list(store.commits()) == []
    assert store.files.stat(path) is None
    assert store.files.stat(f"quarantine/{path}") is not None


def test_a_valid_record_that_is_no_commit_is_set_aside(store: Store) -> None:
    store.write_json("commits/ingest/_/x.json", {"stage": "ingest"})
    assert list(store.commits()) == []
    assert store.files.stat("quarantine/commits/ingest/_/x.json") is not None


@pytest.mark.parametrize(
    "balance", [RowCounts("rows", 5, 4), RowCounts("rows", 5, 4, {"a": 1}, {"b": 1}), RowCounts("r", 0, -1, {"a": 1})]
)
def test_a_shard_that_loses_rows_does_not_commit(store: Store, balance: RowCounts) -> None:
    with pytest.raises(ConservationError, match="ingest/_/s0"):
        store.commit(make_commit("ingest", "", "s0", balances=[balance]))
    assert list(store.commits()) == []


def test_what_a_commit_may_not_be(store: Store) -> None:
    good = make_commit("ingest", "", "s0")
    with pytest.raises(StoreError, match="stage"):
        store.commit(make_commit("../nap", "", "s0"))
    with pytest.raises(StoreError, match="not that of the parts"):
        store.commit(dataclasses.replace(good, fingerprint="0" * 32))
    with pytest.raises(StoreError, match="two balances"):
        store.commit(dataclasses.replace(good, balances=(RowCounts("rows", 0, 0), RowCounts("rows", 0, 0))))
    for name in ("../up", "", "a/b", "x" * 200):
        with pytest.raises(StoreError, match="may contain only"):
            store.write("ingest", "", name, FP, table("ingest", []))


def test_tables_must_have_their_stage_s_columns(store: Store) -> None:
    good = table("ingest", ROWS)
    for bad in (
        good.drop_columns(["text"]),
        good.append_column("more", good.column("line")),
        good.set_column(0, "doc_id", pa.nulls(50, pa.string())),
        good.set_column(3, "line", pa.array(["x"] * 50)),
    ):
        with pytest.raises(SchemaError):
            store.write("ingest", "", "s0", FP, bad)
    with pytest.raises(StoreError, match="no column"):
        store.read(store.write("ingest", "", "s0", FP, good), columns=["nope"])


def test_runs_and_datasets_come_back_oldest_first(store: Store) -> None:
    runs = [make_run("b", [], "2024-01-02"), make_run("a", [make_commit("ingest", "", "s").key], "2024-01-03")]
    for run in reversed(runs):
        store.write_run(run)
    assert store.runs() == runs
    files = (DataFile("p", "d1", 1, 2),)
    dataset = Dataset("cstar", dataset_version(files), files, {"qa": 1}, {"qa": 1.0}, "a", "m", "c", "2024", "CC0")
    store.write_dataset(dataset)
    assert store.datasets() == [dataset]
    assert store.read_json("datasets/none/none.json") is None


def test_every_way_of_making_a_version_has_a_record_that_is_never_overwritten(store: Store) -> None:
    files = (DataFile("p", "d1", 1, 2),)
    old = Dataset("cstar", dataset_version(files), files, {"qa": 1}, {"qa": 1.0}, "a", "m", "c", "2024-01-01")
    run = make_run("b", [make_commit("score", "qa", "s").key])

    def made(**changes: object) -> Dataset:
        own = dataclasses.replace(old, **{"created": "2024-01-02", **changes})  # type: ignore[arg-type]
        return dataclasses.replace(own, made=made_id(own, run))

    ways = [made(), made(thresholds={"qa": 2.0}), made(corpus="d"), made(licence="CC0")]
    for own in (old, *ways):
        assert store.write_dataset(own) == own
        assert split_dataset_key(own.key) == ("cstar", own.version, own.made)
    assert store.names("datasets") == {own.key for own in (old, *ways)}
    assert {own.key for own in store.datasets()} == store.names("datasets")
    # in the same way by another run, later: the same record, whatever it would say of run and time
    again = made(run_id="z", created="2025", thresholds={"qa": 2.0})
    assert again.made == ways[1].made
    assert store.write_dataset(again) == ways[1]
    assert made_id(old, make_run("b", [make_commit("score", "mt", "s").key])) != made_id(old, run)
    # a damaged one is set aside, and may be written anew
    store.files.put(f"datasets/{again.key}.json", b"{")
    assert store.write_dataset(again) == again
    assert ways[1] not in store.datasets()


def test_a_writer_that_was_held_up_replaces_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, real, firsts = Store(tmp_path), os.fsync, []

    def held_up(handle: int) -> None:
        monkeypatch.setattr("warehouse.files.base.os.fsync", real)
        firsts.append(put(fast, "ingest", "", "s0", ROWS[:20]))  # another process does all of the shard meanwhile
        real(handle)

    monkeypatch.setattr("warehouse.files.base.os.fsync", held_up)
    put(Store(tmp_path), "ingest", "", "s0", ROWS)
    [first] = firsts
    assert fast.damage(first) == {}
    assert list(fast.commits()) == [first]
    assert len(list(fast.files.walk("shards"))) == 2  # the later one's rows have a name of their own
    assert not list(fast.files.stale_temporaries(0))


def test_a_writer_that_was_held_up_replaces_no_commit(store: Store) -> None:
    fast = store

    class HeldUp(Store):
        def commit(self, commit: Commit) -> Commit:
            self.first = put(fast, "ingest", "", "s0", ROWS[:20])
            self.standing = super().commit(commit)
            return self.standing

    slow = HeldUp("", files=store.files)
    put(slow, "ingest", "", "s0", ROWS)
    assert list(fast.commits()) == [slow.first] == [slow.standing]
    assert fast.damage(slow.first) == {}


def test_a_commit_that_does_not_count_is_in_no_commit_s_way(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = put(store, "ingest", "", "s0", ROWS)
    path = tmp_path / "commits" / f"{first.id}.json"
    store.write_json(f"commits/{first.id}.json", dataclasses.replace(first, shard="s1").to_json())
    assert store.commit(first) == first  # what lay there was another shard's
    assert store.find("ingest", "", "s0", FP) == first
    path.write_bytes(path.read_bytes()[:40])
    assert store.commit(first) == first
    (tmp_path / first.files[0].path).unlink()
    put(store, "ingest", "", "s0", ROWS[:20])  # done again, as the first one's data is gone
    assert [commit.rows for commit in store.commits()] == [20]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_without_hard_links_it_looks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("warehouse.files.base.os.link", no_links)
    files = LocalFiles(tmp_path)
    assert [files.create("a/b", b"one"), files.create("a/b", b"two")] == [True, False]
    assert files.get("a/b") == b"one"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_an_answer_lost_on_the_network_is_no_other_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def asked_twice(source: Path, target: Path) -> None:
        real(source, target)
        real(source, target)

    monkeypatch.setattr("warehouse.files.base.os.link", asked_twice)
    assert LocalFiles(tmp_path).create("a", b"one")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_killed_publisher_s_files_are_swept_too(tmp_path: Path) -> None:
    for name in ("warehouse.duckdb.1-a.tmp", "warehouse.duckdb.1-a.tmp.wal", "warehouse.duckdb"):
        (tmp_path / name).write_bytes(b"x")
    store = Store(tmp_path)
    assert list(store.files.walk("")) == ["warehouse.duckdb"]
    assert store.sweep_temporary(older_than_s=0) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["warehouse.duckdb"]


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    assert list(files.walk("not there")) == []
    with pytest.raises(StoreError, match="cannot list "):
        list(files.walk("x" * 300))  # longer than the name of a file may be


def test_a_full_disk_is_a_store_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    store = Store(tmp_path)
    put(store, "ingest", "", "s0", ROWS)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("warehouse.files.base.os.fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        put(store, "ingest", "", "s1", ROWS)
    monkeypatch.undo()
    assert sorted(tmp_path.rglob("*")) == before
    assert put(store, "ingest", "", "s1", ROWS).rows == 50
