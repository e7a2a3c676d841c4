"""Two evaluated arms in the viewer: counts with links, items side by side, filters, pages, hostile texts."""

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from wh_fixtures import make_run, put, snapshot_of

from tasks.viewer_links import arm_key, arms_page
from tests.viewer.conftest import changed, pages
from tests.viewer.test_viewer_pages import words
from tests.warehouse.snapshot.test_wh_analyst_views import a_training
from viewer.pages.models import baseline, pieces_with_calls
from viewer.rendering import tool_class
from warehouse.queries.item_changes import EvaluatedSide
from warehouse.records import write_training
from warehouse.store import Store

WITHOUT, WITH = "toolformer-disabled:0:d1", "toolformer:10:d1"
HOSTILE = "<script>alert(1)</script>"


def put_arm(store: Store, evaluation: str, arm: str, k: int, rows: list[dict[str, Any]]) -> None:
    about = {"evaluation": evaluation, "task": "svamp", "arm": arm, "k": k}
    config = {**about, "model": "runs/m", "base": "b", "model_digest": "d1", "base_digest": "d0", "source": "s.json"}
    plain = {"prompt": "How many?", "answers": ["4", "four"], "tool": None, "failure": None}
    shown = [{**about, **plain, **row, "called": row.get("tool") is not None} for row in rows]
    commit = put(store, "evaluate", "", evaluation, shown, parts={"evaluation": evaluation}, config=config)
    store.write_run(make_run(f"run-{evaluation}", [commit.key], flow="evaluate"))


def put_evaluations(store: Store) -> None:
    """Write two arms: with tools eleven items turn right, one turns wrong."""
    right = [f"i{number:02}" for number in range(11)]
    without = [{"item_id": item, "correct": False, "continuation": " 5"} for item in right]
    turned = {"correct": True, "tool": "calculator", "continuation": " [Calculator(2 + 2) -> 4] 4"}
    having = [{"item_id": item, **turned} for item in right]
    without.append({"item_id": HOSTILE, "correct": True, "continuation": f" {HOSTILE}"})
    failed = {"item_id": HOSTILE, "correct": False, "tool": "qa", "failure": "empty", "continuation": " [QA(x) -> ]"}
    put_arm(store, "e1", "toolformer-disabled", 0, without)
    put_arm(store, "e2", "toolformer", 10, [*having, failed])


@pytest.fixture(scope="module")
def client(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    def evaluate(store: Store) -> None:
        put_evaluations(store)
        write_training(store, a_training("cstar-toolformer-1", checkpoint=str(Path("runs/m").absolute())))

    with pages(changed(data, tmp_path_factory.mktemp("evaluated"), evaluate)) as found:
        yield found


def shown(client: TestClient, **query: str) -> str:
    answer = client.get("/models", params={"a": WITHOUT, "b": WITH, **query})
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_page_names_the_models_and_the_versions_they_are_finetuned_on(client: TestClient) -> None:
    one, other = "runs/m, toolformer-disabled, k = 0", "runs/m, toolformer, k = 10"
    assert f"Of {one} (finetuned on cstar@v1) and {other} (finetuned on cstar@v1) ." in words(shown(client))


def test_counts_lead_to_their_items(client: TestClient) -> None:
    page = shown(client)
    text = words(page)
    assert "svamp calculator 0 11 0 0 0" in text  # right both times, turned right, turned wrong, ...
    assert "svamp qa 0 0 1 0 0" in text
    [link] = re.findall(r'href="([^"]+)">1</a>', page)
    turned_wrong = client.get(unescape(link)).text
    assert "Items: 1" in words(turned_wrong)
    assert "<script>alert" not in turned_wrong
    assert f"{HOSTILE} : turned wrong qa" in words(turned_wrong)
    assert "The call failed: empty" in words(turned_wrong)


def test_items_show_both_continuations_and_come_in_pages_and_as_json(client: TestClient) -> None:
    page = shown(client, change="turned_right")
    assert "Items: 11" in words(page)
    assert page.count('<article class="item"') == 10
    assert "How many? Answers: 4 · four" in words(page)
    assert re.search(r'<mark class="call tool-0"><bdi> \[Calculator\(2 \+ 2\) -&gt; 4\]</bdi></mark> 4', page)
    [link] = re.findall(r'<a rel="next" href="([^"]+)"', page)
    rest = client.get(unescape(link)).text
    assert rest.count('<article class="item"') == 1
    assert "Next page" not in rest
    [item] = client.get("/models?tool=qa&format=json").json()["items"]
    assert (item["task"], item["item_id"], item["change"]) == ("svamp", HOSTILE, "turned_wrong")
    assert item["second"]["failure"] == "empty"


def test_filters(client: TestClient) -> None:
    assert "Items: 1" in words(shown(client, tool="qa"))
    assert "Items: 12" in words(shown(client, task="svamp"))
    assert client.get("/models", params={"a": WITHOUT, "b": WITH, "tool": "nothing"}).status_code == 400
    assert client.get("/models", params={"a": WITHOUT, "b": WITH, "after": "1"}).status_code == 400
    assert client.get("/models", params={"a": WITHOUT, "b": "base:0:x"}).status_code == 404


def test_links_from_elsewhere_lead_here(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLFORMER_VIEWER", "http://127.0.0.1:8001/")
    address = arms_page([arm_key("toolformer-disabled", 0, "d1"), arm_key("toolformer", 10, "d1")], "svamp")
    assert address is not None
    assert "Items: 12" in words(client.get(address).text)


def test_without_a_choice_the_finetuned_model_stands_against_its_base(client: TestClient) -> None:
    page = client.get("/models").text
    assert page == shown(client)  # here the only other arm: itself without tools
    one, other = ("task", ""), ("other", "")
    finetuned = EvaluatedSide("toolformer", 10, "runs/m", "b", "d1", {one: "e1"})
    disabled = replace(finetuned, arm="toolformer-disabled")
    base = replace(finetuned, arm="base", model="b", digest="d0")
    foreign, elsewhere = replace(base, model="c"), replace(base, evaluations={other: "e2"})
    for sides, best in (
        ([foreign, disabled, base], base),
        ([foreign, disabled], disabled),
        ([elsewhere, foreign], foreign),
    ):
        assert baseline([finetuned, *sides], finetuned) is best


def test_a_user_s_own_tool_has_its_key_and_colour(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_run(make_run("r1", [], parameters={"tool_names": {"units": "Convert"}}))
    item = {"item_id": "i1", "correct": True, "tool": "units", "continuation": " [Convert(3 km) -> 3000 m] 3000"}
    put_arm(store, "e1", "toolformer-disabled", 0, [{"item_id": "i1", "correct": False, "continuation": " 5"}])
    put_arm(store, "e2", "toolformer", 10, [item])
    snapshot_of(store)
    with pages(tmp_path) as found:
        page = shown(found)
    assert "svamp units 0 1 0 0 0" in words(page)
    assert f'<mark class="call {tool_class("units")}"><bdi> [Convert(3 km) -&gt; 3000 m]</bdi></mark>' in page


def test_only_calls_that_were_made_are_coloured() -> None:
    names = {"calculator": "Calculator"}
    pieces = pieces_with_calls("So [Calculator(1 + 1) -> 2] and [QA(x)] and [Word(y) -> z].", names)
    assert [(piece.text, piece.tool) for piece in pieces] == [
        ("So", ""),
        (" [Calculator(1 + 1) -> 2]", "calculator"),
        (" and [QA(x)] and", ""),
        (" [Word(y) -> z]", "Word"),
        (".", ""),
    ]
