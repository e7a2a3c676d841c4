"""Every way in which a version of C* was made keeps its record, and its card tells of all of them."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from wh_fixtures import make_run, put, snapshot_of

from flows.build_dataset.flow import run_build
from flows.build_dataset.texts import count_texts, plain_texts, texts_section
from flows.build_dataset.versions import check_replaced
from flows.build_dataset.what_if import materialise
from flows.build_dataset.what_if_query import ask
from flows.export.find import find_dataset
from tests.support.commands import Run
from tests.support.small_builds import Built, small_build, write_jsonl
from toolformer_core.errors import UsageError
from warehouse.catalog import Catalog
from warehouse.commits import Dataset, dataset_version
from warehouse.gc import find_garbage
from warehouse.queries import current_build, rows_of
from warehouse.store import Store


def cat(folder: Path) -> Path:
    return write_jsonl(folder / "cat.jsonl", ["A cat sat on the mat."])


def test_no_other_corpus_takes_a_versions_place_unasked(few_documents: Path, as_built: Path, tmp_path: Path) -> None:
    store, other = Store(as_built), write_jsonl(tmp_path / "other.jsonl", ["Of 7 and 5 the sum is 12."])
    check_replaced(store, small_build(few_documents, as_built, tau_f={"calendar": 0.5}))
    (tmp_path / "link.jsonl").symlink_to(few_documents)
    check_replaced(store, small_build(tmp_path / ".." / tmp_path.name / "link.jsonl", as_built))
    (made,) = store.datasets()
    texts = sum(file.rows for file in made.files)
    refused = (
        f"cstar in {as_built} is made of {few_documents}, and {texts} of these texts hold calls; one of %s would take "
        "its place: add --replace or choose another --dataset or --data"
    )
    fewer = small_build(few_documents, as_built, limit=3)
    for asked, rows in ((small_build(other, as_built), other), (fewer, f"the first 3 rows of {few_documents}")):
        with pytest.raises(UsageError, match=re.escape(refused % rows)):
            check_replaced(store, asked)
        check_replaced(store, asked.model_copy(update={"replace": True}))
        check_replaced(store, asked.model_copy(update={"dataset": "another"}))


def test_two_thresholds_that_keep_the_same_calls_keep_a_record_each(run: Run, as_built: Path) -> None:
    store, snapshot = Store(as_built), as_built / "warehouse.duckdb"
    (before,) = store.datasets()
    # between neighbouring gains no threshold makes a difference: half a millinat below the smallest gain that is kept
    sql = "SELECT min(gain) AS gain FROM best_calls WHERE tool = 'calendar' AND gain >= 0.2"
    least = rows_of(snapshot, sql)[0]["gain"]
    ways = [materialise(store, ask(snapshot, {"calendar": least - d}), "cstar") for d in (2e-4, 1e-4)]
    assert {way.version for way in ways} == {before.version}  # the same texts
    assert len({before.made, *(way.made for way in ways)}) == 3
    told = [(d.thresholds["calendar"], d.number) for d in store.datasets()]
    assert told == [(0.2, 1), (least - 2e-4, 2), (least - 1e-4, 3)]

    card = run("datasets", f"cstar@{before.version}", "--data", as_built).out
    assert card == (as_built / "datasets" / "cstar" / f"{before.version}.md").read_text(encoding="utf-8")
    assert [card.count(f"UTC: {own.label}\n") for own in (before, *ways)] == [1, 1, 1]
    # the last of them is meant by the name, and by the version; each by its own
    assert find_dataset(store, "cstar") == find_dataset(store, f"cstar@{before.version[:6]}") == ways[1]
    assert [find_dataset(store, own.label) for own in (before, *ways)] == [before, *ways]
    told = json.loads(run("datasets", "--data", as_built, "--json").out)
    assert [(one["made"], one["thresholds"]) for one in told] == [(d.made, d.thresholds) for d in store.datasets()]

    # made once more in the first of these ways: no new record, and it is again what the name means
    records = {path: path.read_bytes() for path in (as_built / "datasets").rglob("*.json")}
    assert materialise(store, ask(snapshot, {"calendar": least - 2e-4}), "cstar") == ways[0]
    assert {path: path.read_bytes() for path in (as_built / "datasets").rglob("*.json")} == records
    assert find_dataset(store, "cstar") == ways[0]
    assert find_garbage(store, temporary_s=0.0) == []


def test_a_run_that_ends_meanwhile_leaves_the_card_of_another_alone(
    prefect_server: None, few_documents: Path, built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    asked = small_build(cat(tmp_path), data, dataset="cat")
    shutil.copytree(built[1].with_name(f"{built[1].name}-as-built"), data)
    few = small_build(few_documents, data)
    real, left = Catalog.close, ["few", "cat"]

    def close(catalog: Catalog) -> None:
        real(catalog)
        if left and left.pop() == "cat":  # the first run has given back its lock, and done nothing after that
            assert run_build(few).done == 0

    monkeypatch.setattr(Catalog, "close", close)
    result = run_build(asked)
    card = (data / "datasets" / "cat" / f"{result.version}.md").read_text(encoding="utf-8")
    now = current_build(result.snapshot)
    assert now is not None
    assert now.name == "cstar"  # what the snapshot speaks of is the other run
    assert "| cat.jsonl | 1 |" in card
    assert "few.jsonl" not in card
    assert "| calculator | 0.5 | 0 | 0 | 0 | 0 |" in card


def test_a_run_that_began_later_and_ended_sooner_leaves_the_card_of_another_alone(
    prefect_server: None, few_documents: Path, as_built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the newest *begun* run is the current one: while this one waits for the lock, another begins, works and ends
    from flows.runtime import running

    few = small_build(few_documents, as_built)
    real: Any = running.open_run
    waiting = [True]

    def opening(*about: Any) -> Any:
        if waiting and waiting.pop():
            assert run_build(few).done == 0
        return real(*about)

    monkeypatch.setattr(running, "open_run", opening)
    result = run_build(small_build(cat(tmp_path), as_built, dataset="cat"))
    card = (as_built / "datasets" / "cat" / f"{result.version}.md").read_text(encoding="utf-8")
    assert "| cat.jsonl | 1 |" in card
    assert "few.jsonl" not in card


def test_what_a_way_of_making_rests_on_is_kept_while_its_record_is_lost(prefect_server: None, as_built: Path) -> None:
    store, snapshot = Store(as_built), as_built / "warehouse.duckdb"
    made = materialise(store, ask(snapshot, {"calendar": 9.0, "calculator": 9.0}), "cstar")
    other = materialise(store, ask(snapshot, {"calendar": 8.0, "calculator": 8.0}), "cstar")
    assert (made.version, other.version) == (other.version, made.version)  # nothing gains 8 nats
    path = as_built / "datasets" / "cstar" / f"{made.id}.json"
    path.write_bytes(path.read_bytes()[:-20])
    assert other in store.datasets()
    assert made not in store.datasets()
    assert find_garbage(store, temporary_s=0.0) == []  # the other record does not stand in for it


GERMAN = "Von den 587 Büchern der Bibliothek sind heute 58 ausgeliehen, die anderen stehen im Regal."
TEXTS = {
    "http://a.org/1": "Of the 587 books of the library 58 are lent out today. Ask jo@ex.org about the others.",
    "http://a.org/2": "The library lends its books to everybody who lives here; call (555) 010-4477 for a card.",
    "https://b.de/": GERMAN,
    None: "Nobody has read the other books of the library for a long time, and they stand on the shelves.",
}
CALL = "[Calculator(1 + 1) -> 2] "


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Store, Dataset, Path]:
    store = Store(tmp_path)
    rows = [{"doc_id": f"d{n}", "text": text, "url": url} for n, (url, text) in enumerate(TEXTS.items())]
    rows.append({"doc_id": "d9", "text": "No call is here.", "url": "http://c.org"})  # it is not in C*
    call = {"tool": "calculator", "input": "1 + 1", "response": "2", "gain": 1.0}
    call |= {"position": 0, "start": 0, "end": len(CALL)}
    read = put(store, "ingest", "", "corpus", rows)
    examples = [{"doc_id": f"d{n}", "text": CALL + text, "calls": [call]} for n, text in enumerate(TEXTS.values())]
    made = put(store, "assemble", "", "part-00000", examples)
    store.write_run(make_run("r", [read.key, made.key]))
    about = ({"calculator": 4}, {"calculator": 0.5}, "r", "m", "c", "2026-01-01T00:00:00+00:00")
    return store, Dataset("c", dataset_version(made.files), made.files, *about), snapshot_of(store)


def test_texts_are_counted_without_their_calls(stored: tuple[Store, Dataset, Path]) -> None:
    store, dataset, snapshot = stored
    assert list(plain_texts(store, dataset)) == list(TEXTS.values())
    counts = count_texts(store, dataset, snapshot, mask_pii=False)
    assert counts == {
        "hosts": {"a.org": 2, "b.de": 1, "no address": 1},
        "languages": {"en": 3, "de": 1},
        "holding": {"e-mail address": 1, "telephone number": 1},
    }
    section = texts_section(counts, 4)
    assert "| hosts | a.org 50.0 %, b.de 25.0 %, no address 25.0 % |" in section  # 2, 1 and 1 of 4
    assert "| texts with e-mail addresses | 1 |" in section
    assert "a.org 40.0 %, b.de 20.0 %, no address 20.0 %, others 20.0 %" in texts_section(counts, 5)  # of 5 one is left


def test_masked_ones_are_not_counted(stored: tuple[Store, Dataset, Path]) -> None:
    store, dataset, snapshot = stored
    counts = count_texts(store, dataset, snapshot, mask_pii=True)
    assert counts["holding"] == {}
    assert "| e-mail addresses and telephone numbers | masked |" in texts_section(counts, 4)
