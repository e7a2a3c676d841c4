"""Two versions in the viewer: what differs, and a document of both."""

import csv
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from fastapi.testclient import TestClient
from wh_fixtures import CREATED, make_run, put, put_dataset

from tests.viewer.conftest import APPLES, changed, pages
from tests.viewer.test_viewer_pages import words
from warehouse.store import Store


@pytest.fixture
def client(data: Path, tmp_path: Path) -> Iterator[TestClient]:
    """The hand-made folder with a second version, which holds one of the first one's calls and one of its own."""

    def add_version(store: Store) -> None:
        call = {"tool": "calculator", "position": 16, "start": 16, "end": 42, "input": "2 + 2", "response": "4"}
        other = {"tool": "qa", "position": 0, "start": 0, "end": 5, "input": "<i>", "response": "b", "gain": 2.0}
        rows = [
            {"doc_id": "apples", "text": f"{APPLES[:16]} [Calculator(2 + 2) -> 4] 4", "calls": [{**call, "gain": 0.7}]},
            {"doc_id": "plain", "text": "[QA] Nothing", "calls": [other]},
        ]
        commit = put(store, "assemble", "", "s9", rows, parts={"config": "other"})
        told = {"parameters": {"tools": ["qa"], "seed": 1}, "flow": "what-if", "finished": CREATED}
        store.write_run(make_run("r2", [commit.key], **told))
        put_dataset(store, "strict", [commit], "r2", counts={"qa": 1}, thresholds={"qa": 2.0}, number=1)

    with pages(changed(data, tmp_path, add_version)) as found:
        yield found


def labels(client: TestClient) -> dict[str, str]:
    page = client.get("/compare").text
    named = {part.partition("@")[0]: part for part in words(page).split() if "@" in part}
    return {"a": named["cstar"], "b": named["strict"]}


def test_what_differs_and_what_the_runs_were_told(client: TestClient) -> None:
    shown = words(client.get("/compare", params=labels(client)).text)
    assert "calculator 1 2 0 3 → 1" in shown  # of three calls one is in both
    assert "qa 0 0 1 0 → 1" in shown
    assert "seed - 1" in shown
    assert f" Of {' and '.join(labels(client).values())} . " in shown
    by_name = client.get("/compare", params={"a": "cstar", "b": "strict"}).text
    assert words(by_name) == shown  # of a name, the newest version
    goes, comes = shown.partition("Calls of strict@")[0], shown.partition("Calls of strict@")[2]
    assert "hostile at 25" in goes
    assert "long at 110000" in goes
    assert "<i> → b plain at 0" in comes


def test_without_a_choice_the_newest_version_stands_against_the_one_before(client: TestClient) -> None:
    asked = labels(client)
    shown = client.get("/compare", params=asked).text
    for chosen in ({}, {"a": asked["a"]}, {"b": asked["b"]}):
        assert words(client.get("/compare", params=chosen).text) == words(shown)
    turned = words(client.get("/compare", params={"a": asked["b"]}).text)  # nothing is newer: with the one before
    assert "calculator 1 0 2 1 → 3" in turned
    assert f"a={quote_plus(asked['a'])}&amp;b={quote_plus(asked['b'])}" in shown  # links stay with these two


def test_what_one_version_alone_holds_as_csv(client: TestClient) -> None:
    rows = list(csv.DictReader(client.get("/compare?format=csv&table=comes").text.splitlines()))
    [row] = rows
    assert (row["doc_id"], row["position"], row["input"], row["gain"]) == ("plain", "0", "<i>", "2.0")


def test_a_document_side_by_side_and_wrong_values(client: TestClient) -> None:
    asked = labels(client)
    shown = words(client.get("/compare", params={**asked, "doc": "apples"}).text)
    assert shown.count("[Calculator(2 + 2) -> 4]") == 2
    shown = words(client.get("/compare", params={**asked, "doc": "plain"}).text)
    assert "No call of this document is in this version." in shown
    assert client.get("/compare", params={**asked, "doc": "nobody"}).status_code == 404
    assert client.get("/compare", params={**asked, "a": "x@y"}).status_code == 400
    assert client.get("/compare", params={**asked, "goes": "1"}).status_code == 400
