"""Clocks that are set back, or differ between machines, change no order: what was made last is what counts."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from wh_fixtures import make_run, put, scored

from flows.build_dataset.resolve import resolve
from flows.export.find import find_dataset
from flows.report import judging
from flows.runtime.ledger import open_run, reporting_to
from tasks.shards.run_shard import result_of
from tests.support.small_builds import small_build
from viewer.data import ViewedData
from warehouse import ratings
from warehouse.catalog import Catalog
from warehouse.commits import Commit, Dataset, Run, dataset_version
from warehouse.queries import current_build, rows_of
from warehouse.queries.evaluations import accuracies, evaluation_limits
from warehouse.ratings import CallIdentity, add_ratings, read_ratings, standing
from warehouse.snapshot.publish import publish
from warehouse.store import Store
from warehouse.what_if import stored_scores

TODAY, EARLIER = "2024-05-03T12:00:00+00:00", "2024-05-01T12:00:00+00:00"  # the clock is set back by two days


def ran(store: Store, run: Run, commits: list[Commit], dataset: str = "") -> Dataset | None:
    """One run, from its beginning to its end."""
    results = [result_of(commit, skipped=False) for commit in commits]
    with reporting_to(lambda *_: None), open_run(store, run) as ledger:  # outside a flow there is no logger
        for result in results:
            ledger.expect(result.key.stage, 1)
            ledger.add(result)
        if not dataset:
            return None
        files, made = results[-1].files, f"{ledger.run.number:012x}"
        told = (dataset, dataset_version(files), files, {"qa": 1}, {"qa": 1.0}, run.run_id, "m", "c", run.started)
        written = store.write_dataset(Dataset(*told, made=made, number=ledger.run.number))
        ledger.run = replace(ledger.run, dataset=written.key)
        ledger.catalog.record(datasets=[written])
        return written


def built(store: Store, run_id: str, started: str) -> Dataset:
    """A build of one document, whose version is of other content than that of any other run."""
    more = {"parts": {"config": run_id}, "created": started, "run_id": run_id}
    call = {"tool": "qa", "position": 0, "start": 0, "end": 1, "input": "x", "response": "y", "gain": 1.5}
    example = {"doc_id": "d1", "text": f"[QA(x) -> y] {run_id}", "calls": [call]}
    commits = [
        put(store, "ingest", "", "corpus", [{"doc_id": "d1"}], **more),
        put(store, "score", "qa", "s0", [scored("d1", "qa", 0, 1.5)], **more),
        put(store, "assemble", "", "s0", [example], **more),
    ]
    dataset = ran(store, Run(run_id, "build-dataset", started, None, "running", {}, "c", "m"), commits, "cstar")
    assert dataset is not None
    return dataset


def test_the_second_build_is_the_current_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    built(store, "first", TODAY)
    second = built(store, "second", EARLIER)

    def what_is_told(snapshot: Path) -> None:
        now = current_build(snapshot)
        assert now is not None
        assert (now.run_id, now.version) == ("second", second.version)
        assert stored_scores(snapshot).run_id == "second"
        assert find_dataset(store, "cstar") == second
        viewed = ViewedData(str(tmp_path))
        assert [row["run_id"] for row in viewed.versions()] == ["second", "first"]
        assert [row["run_id"] for row in viewed.rows("runs")] == ["second", "first"]
        assert rows_of(snapshot, "SELECT run_id FROM runs") == [{"run_id": "first"}, {"run_id": "second"}]
        assert rows_of(snapshot, "SELECT text FROM examples") == [{"text": "[QA(x) -> y] second"}]

    what_is_told(tmp_path / "warehouse.duckdb")
    (tmp_path / "catalog.duckdb").unlink()  # the order is in the store
    with Catalog(tmp_path / "catalog.duckdb", store=store, rebuild=True) as catalog:
        what_is_told(publish(store, catalog, anew=True))
    for run in store.runs():
        store.files.delete(f"runs/{run.run_id}.json")  # ... also in the records of versions alone
    assert find_dataset(store, "cstar") == second


def test_a_version_found_again_is_the_last_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number, (found, started) in enumerate((("a", TODAY), ("b", TODAY), ("a", EARLIER)), start=1):
        dataset = Dataset("cstar", found, (), {}, {}, f"r{number}", "m", "c", started, made=found * 12, number=number)
        store.write_dataset(dataset)
        store.write_run(make_run(f"r{number}", [], started, dataset=dataset.key, number=number))
    assert find_dataset(store, "cstar").version == "a"


def test_the_second_evaluation_counts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    told = {"evaluation": "e1", "task": "svamp", "arm": "base", "k": 0, "base": "b", "base_digest": "d0"}
    for number, (run_id, started) in enumerate((("first", TODAY), ("second", EARLIER)), start=1):
        item = {"evaluation": "e1", "task": "svamp", "item_id": run_id, "correct": True, "called": False}
        more = {"config": {**told, "model": run_id}, "created": started, "run_id": run_id}
        rows = [{**item, "tool": None}] * number
        commit = put(store, "evaluate", "", "e1-0", rows, parts={"items": run_id}, **more)
        run = Run(run_id, "evaluate", started, None, "running", {"limit": number}, "c", "m")
        ran(store, run, [commit])
    snapshot = tmp_path / "warehouse.duckdb"
    (row,) = accuracies(snapshot)
    assert (row["model"], row["items"], row["evaluated"]) == ("second", 2, dt.datetime(2024, 5, 1, 12))
    assert evaluation_limits(snapshot) == {"e1": (2, None)}


def test_what_two_machines_with_a_catalog_each_begin_has_one_order(tmp_path: Path) -> None:
    store, run = Store(tmp_path / "data"), Run("r1", "build-dataset", TODAY, None, "running", {}, "c", "m")
    numbers = []
    for run_id, machine, started in zip(("r1", "r2", "r3", "r4"), "abab", (TODAY, EARLIER) * 2, strict=True):
        with Catalog(tmp_path / machine / "catalog.duckdb", store=store) as catalog:
            numbers.append(catalog.begin(store, replace(run, run_id=run_id, started=started)).number)
    assert numbers == [1, 2, 3, 4]
    assert [run.run_id for run in store.runs()] == ["r1", "r2", "r3", "r4"]


def test_commits_of_no_known_end_are_in_the_order_of_their_runs(tmp_path: Path) -> None:
    """Two flows were killed before they listed any commit."""
    store = Store(tmp_path)
    with Catalog(tmp_path / "catalog.duckdb", store=store) as catalog:
        for run_id, started in (("first", TODAY), ("second", EARLIER)):
            catalog.begin(store, Run(run_id, "build-dataset", started, None, "running", {}, "c", "m"))
            more = {"parts": {"config": run_id}, "created": started, "run_id": run_id}
            put(store, "ingest", "", "corpus", [{"doc_id": run_id}], **more)
        catalog.catch_up(store)
        assert rows_of(publish(store, catalog), "SELECT doc_id FROM documents") == [{"doc_id": "second"}]


class Back(dt.datetime):
    """The time of a clock that is set back by an hour at every look."""

    looks = 0

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Back:
        cls.looks += 1
        return cls(2024, 5, 3, 12, tzinfo=tz) - dt.timedelta(hours=cls.looks)


@pytest.mark.parametrize("place", ["folder", "url"])
def test_the_last_rating_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    for module in (ratings, judging):
        monkeypatch.setattr(module, "dt", SimpleNamespace(datetime=Back, timedelta=dt.timedelta, UTC=dt.UTC))
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path if place == "folder" else f"memory://{tmp_path.name}/clocks")
    call = CallIdentity("d", "qa", 0, "x", "y")
    add_ratings(store, "a", [(call, "accept")])
    add_ratings(store, "b", [(call, "accept")])
    before = judging.rating_filter(store, "accepted")
    add_ratings(store, "a", [(call, "reject")])
    add_ratings(store, "b", [(call, "reject")])
    said = read_ratings(store)[0]
    assert [one.user + " " + one.verdict for one in said] == ["a accept", "b accept", "a reject", "b reject"]
    assert standing(said) == {call: {"a": "reject", "b": "reject"}}
    assert before.calls == {call.digest}
    assert judging.rating_filter(store, "accepted", before.until) == before  # later ratings stay out of it
    assert judging.rating_filter(store, "accepted").calls == frozenset()


def test_failures_of_a_clock_that_was_ahead_are_asked_again(few_documents: Path, tmp_path: Path) -> None:
    asked = small_build(few_documents, tmp_path / "data", answers="retry")
    store = Store(tmp_path / "data")
    ahead = (dt.datetime.now(dt.UTC) + dt.timedelta(days=2)).isoformat(timespec="seconds")
    for stage in ("execute", "execute_2"):
        put(store, stage, "calculator", "s0", [], created=ahead)
    assert resolve(asked).retry_failures_before > ahead
