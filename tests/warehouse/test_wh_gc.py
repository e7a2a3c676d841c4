"""What nothing refers to is found and taken away; what a dataset, an evaluation or unfinished work needs never is."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wh_fixtures import make_commit, make_run, put, put_dataset, scored, snapshot_of

from warehouse.audit import audit
from warehouse.catalog import Catalog
from warehouse.commits import Commit, DataFile, Dataset
from warehouse.gc import active_runs, dataset_commits, delete_garbage, find_garbage, needed_commits
from warehouse.queries import rows_of
from warehouse.store import Store

DAY_S = 86_400.0
MAY = 1_714_564_800.0  # 2024-05-01T12:00:00Z, when the fixtures' commits were made


def build(store: Store, config: str, day: int, *, state: str = "completed", dataset: str | None = None) -> list[Commit]:
    """Documents, scores of them, an example of those; on a day of May 2024."""
    parts, created = {"config": config}, f"2024-05-{day:02d}T12:00:00+00:00"
    more = {"parts": parts, "created": created, "run_id": config}
    documents = put(store, "ingest", "", "s0", [{"doc_id": "d1", "text": config}], **more)
    read = (documents.files[0].digest,)
    scores = put(store, "score", "qa", "s0", [scored("d1", "qa", 1, float(day))], inputs=read, **more)
    read = (scores.files[0].digest,)
    examples = put(store, "assemble", "", "s0", [{"doc_id": "d1", "text": config}], inputs=read, **more)
    commits = [documents, scores, examples]
    store.write_run(make_run(config, [c.key for c in commits], started=created, state=state))
    if dataset is not None:
        put_dataset(store, dataset, [examples], config, created=created)
    return commits


def listed(store: Store, **more: float) -> dict[str, str]:
    return {item.path: item.kind for item in find_garbage(store, **{"now": MAY + 30 * DAY_S, **more})}


def take_away(store: Store, **more: float) -> list[str]:
    with Catalog(Path(store.root) / "catalog.duckdb", store=store) as catalog:
        garbage = find_garbage(store, **{"now": MAY + 30 * DAY_S, **more})
        delete_garbage(store, catalog, garbage)
    return [item.path for item in garbage]


def test_what_was_superseded_goes_and_what_a_dataset_needs_stays(store: Store, tmp_path: Path) -> None:
    named = build(store, "a", 1, dataset="cstar")
    superseded = build(store, "b", 2)
    newest = build(store, "c", 3)
    wanted = {f"commits/{c.id}.json": "commit" for c in superseded} | {c.files[0].path: "data" for c in superseded}
    assert listed(store) == wanted
    (item, *_) = find_garbage(store, now=MAY)
    assert item.bytes == (tmp_path / item.path).stat().st_size
    assert set(take_away(store)) == set(wanted)
    assert {c.id for c in store.commits()} == {c.id for c in (*named, *newest)}
    assert [store.read(c.files[0]).num_rows for c in named] == [1, 1, 1]
    assert listed(store) == {}
    snapshot = tmp_path / "warehouse.duckdb"
    assert rows_of(snapshot, "SELECT gain FROM scored") == [{"gain": 3.0}]
    assert {r["stage"] for r in rows_of(snapshot, "FROM lineage")} == {"ingest", "score", "assemble"}
    assert audit(store) == []


def test_every_evaluation_that_counts_stays(store: Store) -> None:
    def evaluated(name: str, day: int) -> Commit:
        config = {"evaluation": name, "task": "svamp"}
        commit = put(store, "evaluate", "", f"{name}-0", [], parts={"on": f"{name}{day}"}, config=config)
        store.write_run(make_run(f"{name}{day}", [commit.key], started=f"2024-05-{day:02d}", flow="evaluate"))
        return commit

    old, new, other = evaluated("e1", 1), evaluated("e1", 2), evaluated("e2", 1)
    built = build(store, "b", 3)
    assert set(listed(store)) == {f"commits/{old.id}.json", old.files[0].path}
    take_away(store)
    assert {c.id for c in store.commits()} == {new.id, other.id, *(c.id for c in built)}


def test_unfinished_work_is_kept_for_some_days(store: Store) -> None:
    killed = build(store, "a", 1, state="running")  # a run that was killed
    silent = put(store, "score", "mt", "s9", [], run_id="z", created="2024-05-01T12:00:00+00:00")  # before its manifest
    build(store, "b", 2)
    theirs = {f"commits/{c.id}.json" for c in (*killed, silent)}
    assert not theirs & set(listed(store, now=MAY + 6.9 * DAY_S))
    assert theirs <= set(listed(store, now=MAY + 7.1 * DAY_S))
    assert theirs <= set(listed(store, now=MAY + 1.1 * DAY_S, unfinished_days=1.0))
    assert active_runs(store, unfinished_days=1.0, now=MAY + 0.9 * DAY_S) == ["a"]
    assert active_runs(store, unfinished_days=1.0, now=MAY + 1.1 * DAY_S) == []


def test_leftovers_go_by_age_and_quarantine_goes(store: Store, tmp_path: Path) -> None:
    (commit, *_) = build(store, "a", 1)
    left = store.write("ingest", "", "s7", "f" * 32, store.read(commit.files[0]))  # data, and its writer was killed
    (tmp_path / "shards" / "x.parquet.99-ab.tmp").write_bytes(b"half")
    store.files.put("shards/broken.parquet", b"x")
    store.set_aside("shards/broken.parquet", "it is broken")
    kinds = {
        left.path: "data",
        "shards/x.parquet.99-ab.tmp": "temporary",
        "quarantine/shards/broken.parquet": "quarantine",
        "quarantine/shards/broken.parquet.why.json": "quarantine",
    }
    os.utime(tmp_path / left.path, (MAY, MAY))
    os.utime(tmp_path / "shards" / "x.parquet.99-ab.tmp", (MAY, MAY))
    assert listed(store) == kinds
    os.utime(tmp_path / left.path, (MAY + 30 * DAY_S - 60,) * 2)  # a minute old: its commit may follow
    assert left.path not in listed(store)
    os.utime(tmp_path / left.path, (MAY, MAY))
    assert set(take_away(store)) == set(kinds)
    assert listed(store) == {}


def test_while_a_dataset_s_card_is_lost_whatever_it_may_need_stays(store: Store, tmp_path: Path) -> None:
    named = build(store, "a", 1, dataset="cstar")
    build(store, "b", 2)
    (card,) = (tmp_path / "datasets").rglob("*.json")
    whole = card.read_bytes()
    card.write_bytes(whole[:-20])
    assert store.datasets() == []
    assert listed(store) == {}
    store.files.put(f"datasets/cstar/{card.name}", whole)  # the same build wrote it again
    assert set(listed(store)) == {f"quarantine/datasets/cstar/{card.name}{more}" for more in ("", ".why.json")}
    needed = dataset_commits(store.datasets()[0], {c.id: c for c in store.commits()}, store.runs())
    assert needed == {c.id for c in named}


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_a_kill_leaves_it_consistent(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    named, gone, newest = build(store, "a", 1, dataset="cstar"), build(store, "b", 2), build(store, "c", 3)
    snapshot_of(store)
    with Catalog(tmp_path / "catalog.duckdb", store=store) as catalog:
        taken: list[str] = []
        delete = store.files.delete

        def delete_until_killed(path: str) -> None:
            if len(taken) == steps:
                raise KeyboardInterrupt
            taken.append(path)
            delete(path)

        monkeypatch.setattr(store.files, "delete", delete_until_killed)
        with pytest.raises(KeyboardInterrupt):
            delete_garbage(store, catalog, find_garbage(store, now=MAY))
    assert [path.partition("/")[0] for path in taken] == (["commits"] * 3 + ["shards"] * 3)[:steps]
    store = Store(tmp_path)
    assert audit(store) == []  # no commit stands without its data
    assert {c.id for c in (*named, *newest)} <= {c.id for c in store.commits()}
    for item in rows_of(tmp_path / "warehouse.duckdb", 'SELECT intact FROM shards WHERE "current"'):
        assert item["intact"]
    assert rows_of(tmp_path / "warehouse.duckdb", "SELECT gain FROM scored") == [{"gain": 3.0}]
    again = build(store, "b", 2)  # who wants it back has it back, byte for byte
    assert [c.files for c in again] == [c.files for c in gone]
    take_away(store)
    assert listed(store) == {}
    assert {c.id for c in store.commits()} == {c.id for c in (*named, *newest)}


names = st.sampled_from(["a", "b", "c", "d", "e"])


@settings(max_examples=25, deadline=None)  # each asks DuckDB what is current
@given(st.lists(st.tuples(names, st.lists(names, max_size=3)), max_size=8), st.lists(names, max_size=2), st.data())
def test_sources_are_kept_as_well(made: list[tuple[str, list[str]]], wanted: list[str], data: st.DataObject) -> None:
    commits = []
    for number, (digest, inputs) in enumerate(made):
        file = DataFile(f"p{number}", digest, 1, 1)
        more = {"parts": {"n": str(number)}, "inputs": tuple(inputs), "run_id": "r"}
        commits.append(make_commit("score", "", "s", [file], **more))
    files = tuple(c.files[0] for c in commits if c.files[0].digest in wanted)
    datasets = [Dataset("n", "v", files, {}, {}, "gone", "m", "c", "t")] if files else []
    used = data.draw(st.lists(st.sampled_from(commits))) if commits else []
    runs = [make_run("r", [c.key for c in used])]
    keep = needed_commits(commits, runs, datasets, unfinished_since="9999")
    held = {file.digest for c in commits if c.id in keep for file in c.files}
    there = {file.digest for c in commits for file in c.files}
    for commit in commits:
        if commit.id in keep:
            assert set(commit.inputs) & there <= held
        if commit.files[0] in files:
            assert commit.id in keep
