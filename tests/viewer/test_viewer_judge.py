"""Judging in the viewer: calls drawn in a seeded order, ratings under a name, the precision that follows."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.viewer.conftest import ORIGIN, changed, pages
from tests.viewer.test_viewer_pages import NOW, words
from warehouse.indexed_calls import IndexedCalls
from warehouse.ratings import CallIdentity, add_ratings, read_ratings
from warehouse.store import Store

KEPT = {("apples", 16), ("hostile", 25), ("long", 110_000)}


@pytest.fixture
def own(data: Path, tmp_path: Path) -> Path:
    """A copy of the data folder, which ratings may change."""
    return changed(data, tmp_path)


@pytest.fixture
def client(own: Path) -> Iterator[TestClient]:
    with pages(own, {"origin": ORIGIN}) as found:
        yield found


def hidden(page: str, name: str) -> str:
    form = page.partition('class="verdict"')[2]
    found = re.search(rf'name="{name}" value="([^"]*)"', form)
    return unescape(found[1])


def judge(client: TestClient, page: str, verdict: str) -> str:
    """Press a button of the form on a page; return the page that follows."""
    fields = {name: hidden(page, name) for name in ("doc", "call", "back")}
    answer = client.post("/ratings", data={**fields, "verdict": verdict})
    assert answer.status_code == 200, answer.text
    return answer.text


def test_every_kept_call_is_drawn_once_in_an_order_of_the_seed(own: Path) -> None:
    calls = IndexedCalls(own / "warehouse.duckdb")
    orders = []
    for seed in range(4):
        seen: list[tuple[str, int]] = []
        while (drawn := calls.draw(NOW, "calculator", seed, seen)).call is not None:
            assert (drawn.total, drawn.left) == (3, 3 - len(seen))
            seen.append((drawn.call.doc_id, drawn.call.position))
        assert drawn.left == 0
        assert set(seen) == KEPT
        orders.append(tuple(seen))
    assert len(set(orders)) > 1
    assert calls.draw(NOW, "qa", 0).call is None  # its only call gains too little


def test_ratings_are_made_one_call_after_another_and_a_precision_follows(client: TestClient, own: Path) -> None:
    client.post("/judge/name", data={"user": "Zoë <b>", "back": "/judge"})
    page = client.get("/judge").text
    assert re.search(r"0 of 3 kept calls of calculator judged by Zoë <b>", words(page))
    for number, verdict in enumerate(["accept", "reject", "accept"], 1):
        page = judge(client, page, verdict)
        assert re.search(rf"{number} of 3 kept calls of calculator judged by Zoë <b>", words(page))
        assert f"Your last verdict: {verdict}" in words(page)
    assert "No kept call of calculator is left to judge." in words(page)
    assert "calculator 0.5 2 1 0 0.667 0.208 to 0.939" in words(page)  # Wilson, 2 of 3
    ratings, damaged = read_ratings(Store(own))
    assert [(one.user, one.verdict) for one in ratings] == [("Zoë <b>", one) for one in ("accept", "reject", "accept")]
    assert {(rating.call.doc_id, rating.call.position) for rating in ratings} == KEPT
    assert damaged == 0
    client.post("/judge/name", data={"user": "b", "back": "/judge?tool=calculator"})
    page = judge(client, client.get("/judge").text, "unsure")
    assert "Zoë <b> , b 1 0 " in words(page) or "b , Zoë <b> 1 0 " in words(page)


def test_the_last_verdict_is_taken_back_on_the_page_of_the_next_call(client: TestClient, own: Path) -> None:
    first = client.get("/judge").text
    page = judge(client, first, "reject")
    form = page.partition('aria-label="The last verdict"')[2]
    values = dict(re.findall(r'name="(doc|call|back)" value="([^"]*)"', form))
    page = client.post("/ratings", data={**values, "verdict": "none"}).text
    assert [rating.verdict for rating in read_ratings(Store(own))[0]] == ["reject", "none"]
    assert words(page) == words(first)  # it is the next one again
    assert "Your last verdict" not in words(page)


def test_a_verdict_on_a_call_that_is_no_longer_scored_is_taken_back(client: TestClient, own: Path) -> None:
    client.post("/judge/name", data={"user": "a", "back": "/judge"})
    gone = CallIdentity("apples", "calculator", 1, "no such", "call")
    add_ratings(Store(own), "a", [(gone, "reject")])
    form = {"doc": gone.doc_id, "call": gone.digest, "back": "/judge"}
    assert client.post("/ratings", data={**form, "verdict": "accept"}).status_code == 404
    assert client.post("/ratings", data={**form, "verdict": "none"}).status_code == 200
    assert [rating.verdict for rating in read_ratings(Store(own))[0]] == ["reject", "none"]


def test_a_call_of_a_document_is_judged_and_the_rating_taken_back(client: TestClient, own: Path) -> None:
    at = "/documents/hostile?call=calculator:25:0"
    page = judge(client, client.get(at).text, "reject")
    assert re.search(r"Judged: \S+ reject", words(page))
    assert "Take back" in page
    page = judge(client, page, "none")
    assert "Judged:" not in words(page)
    ratings, _ = read_ratings(Store(own))
    assert [rating.verdict for rating in ratings] == ["reject", "none"]
    assert ratings[0].call == CallIdentity("hostile", "calculator", 25, '"><img src=x onerror=alert(2)>', "<b>bold</b>")


def test_what_is_no_rating_and_what_another_page_sends_is_refused(client: TestClient, own: Path) -> None:
    page = client.get("/judge").text
    fields = {name: hidden(page, name) for name in ("doc", "call", "back")} | {"verdict": "accept"}
    for changes, status in (({"verdict": "yes"}, 400), ({"call": "0" * 32}, 404), ({"doc": "nobody"}, 404)):
        assert client.post("/ratings", data=fields | changes).status_code == status
    assert client.post("/ratings", data=fields, headers={"origin": "http://evil.example"}).status_code == 403
    assert read_ratings(Store(own)) == ([], 0)


def test_nobody_is_sent_elsewhere(client: TestClient) -> None:
    for back in ("//evil.example/", "https://evil.example/", "/\\evil.example", ""):
        answer = client.post("/judge/name", data={"user": "a", "back": back}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/judge")
