"""Damage is found by its digest when it is read, set aside with a note and told; it is never read silently."""

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from wh_fixtures import alter, make_run, put, put_dataset, scored, snapshot_of, truncate

from warehouse.audit import audit, missing_files
from warehouse.catalog import Catalog
from warehouse.commits import Commit, Dataset
from warehouse.errors import CatalogError, CorruptDataError
from warehouse.files.base import temporary_beside
from warehouse.queries import rows_of
from warehouse.store import Store


def build(store: Store) -> tuple[Commit, Commit, Dataset]:
    documents = put(store, "ingest", "", "s0", [{"doc_id": "d1", "text": "a"}])
    scores = put(store, "score", "qa", "s0", [scored("d1", "qa", 1, 2.0)], inputs=(documents.files[0].digest,))
    store.write_run(make_run("r1", [documents.key, scores.key]))
    return documents, scores, put_dataset(store, "cstar", [scores])


@pytest.mark.parametrize("damage", [truncate, alter])
def test_damaged_data_is_told_and_who_rests_on_it(store: Store, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    documents, _, dataset = build(store)
    assert audit(store) == []
    file = documents.files[0]
    damage(tmp_path / file.path)
    assert (store.find("ingest", "", "s0", documents.fingerprint) is None) == (damage is truncate)
    with pytest.raises(CorruptDataError, match="run the same build again: it sets the file aside"):
        store.read(file)
    (found,) = audit(store)
    assert (found.path, found.datasets) == (file.path, (f"cstar@{dataset.version}",))
    assert "altered" in found.why
    assert store.read_commit(documents.key) is None  # to be done again
    assert not (tmp_path / file.path).exists()
    aside = tmp_path / "quarantine" / file.path
    note = json.loads(aside.with_name(aside.name + ".why.json").read_text(encoding="utf-8"))
    assert note["path"] == file.path
    assert note["why"] == found.why
    assert put(store, "ingest", "", "s0", [{"doc_id": "d1", "text": "a"}]) == documents  # the same path again
    assert audit(store) == []


@pytest.mark.parametrize("damage", [truncate, alter])
def test_damaged_records_are_told(store: Store, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    documents, _, dataset = build(store)
    name = f"cstar@{dataset.version}"
    records = [f"commits/{documents.id}.json", "runs/r1.json", f"datasets/cstar/{dataset.version}.json"]
    damage(tmp_path / records[0])
    assert [(d.path, d.datasets) for d in audit(store)] == [(records[0], (name,))]
    for path in records[1:]:
        damage(tmp_path / path)
    assert {d.path: d.datasets for d in audit(store)} == {records[1]: (), records[2]: (name,)}
    assert store.runs() == store.datasets() == []


def test_nothing_in_quarantine_is_overwritten(store: Store, tmp_path: Path) -> None:
    for text in (b"first", b"second", b"third"):
        store.files.put("shards/x.parquet", text)
        store.set_aside("shards/x.parquet", "it is no Parquet")
    found = {path.read_bytes() for path in (tmp_path / "quarantine" / "shards").glob("*.parquet")}
    assert found == {b"first", b"second", b"third"}


def test_a_damaged_dataset_says_so_where_it_is_read(store: Store, tmp_path: Path) -> None:
    _, scores, dataset = build(store)
    assert [t.num_rows for t in store.read_dataset(dataset)] == [1]
    alter(tmp_path / scores.files[0].path)
    for _ in range(2):  # altered, then gone
        with pytest.raises(CorruptDataError, match=f"dataset cstar@{dataset.version} is damaged"):
            list(store.read_dataset(dataset))
        audit(store)


def test_what_a_dataset_lacks_is_seen_without_reading_it(store: Store, tmp_path: Path) -> None:
    _, scores, dataset = build(store)
    (path,) = (file.path for file in scores.files)
    assert missing_files(store, dataset) == []
    truncate(tmp_path / path)
    assert missing_files(store, dataset) == [path]
    assert (tmp_path / path).exists()  # it is left to those who read it
    store.files.delete(path)
    assert missing_files(store, dataset) == [path]


def test_a_file_is_compared_again_only_when_it_was_written_since(store: Store, tmp_path: Path) -> None:
    (file,) = put(store, "ingest", "", "s0", [{"doc_id": "d1"}]).files
    path = tmp_path / file.path
    written = path.stat().st_mtime
    assert store.is_unaltered(file, since=written)
    alter(path)
    os.utime(path, (written, written))
    assert store.is_unaltered(file, since=written)  # by its times it is what it was: `audit` is there to look closer
    assert not store.is_unaltered(file, since=written - 1)
    alter(path)  # and back
    os.utime(path, (written + 5, written + 5))
    assert store.is_unaltered(file, since=written)
    path.unlink()
    assert not store.is_unaltered(file, since=written)


@pytest.mark.parametrize("damage", [truncate, alter, Path.unlink], ids=["truncated", "altered", "removed"])
def test_what_is_damaged_is_not_in_the_tables_of_a_snapshot(store: Store, damage: Callable[[Path], None]) -> None:
    whole = put(store, "prefilter", "qa", "s0", [{"doc_id": "d1"}])
    hurt = put(store, "prefilter", "mt", "s0", [{"doc_id": "d2"}])
    store.write_run(make_run("r", [whole.key, hurt.key]))
    path = Path(store.locate(hurt.files[0].path))
    damage(path)
    if path.exists():
        later = time.time() + 5  # a commit is dated in whole seconds
        os.utime(path, (later, later))
    published = snapshot_of(store)
    assert rows_of(published, "SELECT doc_id FROM prefiltered") == [{"doc_id": "d1"}]
    assert rows_of(published, "SELECT tool FROM shards WHERE NOT intact") == [{"tool": "mt"}]


def test_a_sweep_never_takes_what_is_being_written(store: Store, tmp_path: Path) -> None:
    living, dead = temporary_beside(tmp_path / "a.parquet"), temporary_beside(tmp_path / "b.parquet")
    theirs = tmp_path / "model.tmp"  # somebody else's
    for path in (living, dead, theirs):
        path.write_bytes(b"half")
        os.utime(path, (0, 0))  # as old as can be
    with living.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # as `put_local` does
        assert store.sweep_temporary(older_than_s=60.0) == 1
    assert living.exists()
    assert theirs.exists()
    assert not dead.exists()
    living.touch()
    assert store.sweep_temporary(older_than_s=60.0) == 0  # young: somewhere its writer may live on
    assert store.sweep_temporary(older_than_s=0.0) == 1


def test_what_is_written_is_locked_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, real, swept = Store(tmp_path), os.fsync, []

    def fsync(handle: int) -> None:
        swept.append(store.sweep_temporary(older_than_s=0.0))
        real(handle)

    monkeypatch.setattr("warehouse.files.base.os.fsync", fsync)
    store.files.put("a.json", b"{}")
    monkeypatch.undo()
    assert set(swept) == {0}
    assert (tmp_path / "a.json").read_bytes() == b"{}"


def test_a_damaged_catalog_is_set_aside_and_rebuilt(tmp_path: Path) -> None:
    store, path = Store(tmp_path), tmp_path / "catalog.duckdb"
    build(store)
    with Catalog(path, store=store) as catalog:
        whole = catalog.facts_of()
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(CatalogError, match="toolformer reconcile rebuilds it") as caught:
        Catalog(path)
    assert type(caught.value) is CatalogError
    with Catalog(path, store=store) as catalog:  # the lock is free again
        assert catalog.facts_of() == whole
    assert (tmp_path / "quarantine" / "catalog.duckdb").read_bytes().startswith(b"not a database")


def test_a_catalog_is_brought_in_step_with_the_store(tmp_path: Path) -> None:
    store, path = Store(tmp_path), tmp_path / "catalog.duckdb"
    documents, scores, dataset = build(store)
    with Catalog(path, store=store) as catalog:
        assert catalog.facts_of()["commits"].num_rows == 2
        store.write_run(make_run("r2", [], state="running"))
        more = put(store, "score", "mt", "s0", [])
        store.files.delete(f"commits/{documents.id}.json")
        store.files.delete(f"datasets/cstar/{dataset.version}.json")
        catalog.catch_up(store)
        store.write_run(make_run("r2", [more.key]))  # the flow that died here had not told the catalog
        catalog.catch_up(store)
        facts = catalog.facts_of()
        catalog.reconcile(store)
        again = catalog.facts_of()
    assert set(facts["commits"].column("commit_id").to_pylist()) == {scores.id, more.id}
    assert {r["run_id"]: r["state"] for r in facts["runs"].to_pylist()} == {"r1": "completed", "r2": "completed"}
    for name, rows in again.items():
        assert sorted(map(str, rows.to_pylist())) == sorted(map(str, facts[name].to_pylist())), name
