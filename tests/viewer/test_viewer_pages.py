"""The pages over a hand-made data folder: what they show, what they find, and how hostile texts appear."""

import csv
import io
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.viewer.conftest import HOSTILE, INPUT, LONG, pages
from toolformer_core.annotate.call_filter import CallFilter
from viewer.app import PAGES
from viewer.rendering import MENU, tool_class
from warehouse.what_if import what_if

Get = Callable[..., str]

NOW = CallFilter({"calculator": 0.5, "qa": 1.0})


def words(page: str) -> str:
    """Return what a reader sees of a page, on one line."""
    body = page.partition("<main")[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def listed(page: str) -> list[str]:
    """Return the documents of a list, by the ids in their links."""
    return list(dict.fromkeys(re.findall(r'<th scope="row"><a href="/documents/([a-z]+)', page)))


def test_the_first_page_lists_versions_and_runs_and_says_where_to_start(page: Get, version: str) -> None:
    shown = page("/")
    assert version in words(shown)
    assert "calculator 3 qa 0" in words(shown)
    assert f'href="/documents?version={version.replace("@", "%40")}"' in shown
    assert "r1" in words(shown)
    start = shown.partition("Where to start")[2].partition("</ul>")[0]
    calls, thresholds, document = re.findall(r'href="([^"]+)"', start)
    assert (calls, thresholds) == ("/calls?outcome=kept", "/thresholds")
    assert document in {f"/documents/{one}" for one in ("apples", "hostile", "long")}  # those with a kept call


def test_the_first_page_shows_a_funnel_and_the_gains_of_each_tool(page: Get) -> None:
    # The calculator: all documents but `plain`; calls at apples 16 and 29, hostile 25, long 110,000 and unlucky 3; five
    # calls were scored, and 7 / 0 was not; three are in C*. qa: one call, which is not kept.
    shown = page("/")
    stages = "documents 4, positions 5, sampled 6, executed 5, scored 5, kept 3"
    assert f'aria-label="Calculator: {stages}"' in shown
    assert 'aria-label="QA: documents 4, positions 1, sampled 1, executed 1, scored 1, kept 0"' in shown
    assert 'aria-label="Gains of 5 scored calls of Calculator, in nats; threshold now 0.5"' in shown
    assert f'<rect class="bar {tool_class("qa")}"' in shown


def test_every_page_names_the_version_it_speaks_of(page: Get, version: str) -> None:
    assert PAGES.keys() <= MENU.keys()
    assert "No evaluation is completed yet" in words(page("/models"))
    for path in (*MENU, "/documents/apples"):
        assert f" Of {version} of c, built " in words(page(path)), path  # the current build's
    for path in ("/documents", "/documents/apples"):
        assert f" Of {version} . " in words(page(path, version=version))


def test_a_document_shows_its_kept_call_inline(page: Get, version: str) -> None:
    for shown in (page("/documents/apples"), page("/documents/apples", version=version)):
        assert "Two and two make [Calculator(2 + 2) -> 4] 4 apples, so 4 in all." in words(shown)
        assert "2 * 2) ->" not in words(shown).partition("Every scored call")[0]


def test_a_call_is_shown_with_losses_helps_and_rivals(page: Get) -> None:
    shown = words(page("/documents/apples", call="calculator:16:0"))
    assert "kept : in C*" in shown
    assert "+0.733 nats; its threshold is 0.5" in shown  # 11/15
    assert "without the call 1.6667" in shown
    assert "with the call, no response 1.5667" in shown
    assert "with the call and its response 0.8333" in shown
    assert 'rank 1 of the document\'s for this tool; p(" [") = 0.368' in shown  # e^-1
    # 5/15 * (-0.3 + 2.7) = 0.8; 1/15 * (-2 + 1) = -0.067; they add up to 11/15
    assert "1 0.333 +0.800 -3.000 -2.700 -0.300" in shown
    assert "5 0.067 -0.067 -1.000 -1.000 -2.000" in shown
    assert "Rivals at the position: 2" in shown


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("calculator:16:1", "dropped: lower gain : another call at the same position gains more"),
        ("calculator:29:0", "dropped: below threshold : it gains less than its tool's threshold"),
        ("qa:16:0", "dropped: below threshold"),
    ],
)
def test_a_dropped_call_says_why(page: Get, call: str, reason: str) -> None:
    shown = page("/documents/apples", call=call)
    assert reason in words(shown)
    assert 'dropped" href="/documents/apples' in shown  # inline, too


def test_what_the_stages_dropped_is_listed(page: Get) -> None:
    shown = words(page("/documents/unlucky"))
    assert "sample: 1 distinct samples that are no calls calculator at 3: unparsable, 3 times: 1 +" in shown
    assert "execute: 1 calls without a response calculator 7 / 0 : division by zero 0" in shown
    assert "prefilter: 2 calculator no number qa no number" in words(page("/documents/plain"))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["apples", "hostile", "long", "plain", "unlucky"]),
        ({"kept": "yes"}, ["apples", "hostile", "long"]),
        ({"text": "APPLES make"}, ["apples"]),
        ({"text": '"make 4"'}, ["apples"]),
        ({"text": '"4 make"'}, []),
        ({"text": "'; DROP TABLE facts.gains; --"}, []),
        ({"host": "HOSTILE.example"}, ["hostile"]),
        ({"host": "example"}, ["apples", "hostile", "long", "plain", "unlucky"]),
        ({"host": "xample"}, []),
        ({"since": "2017", "until": "2017"}, ["hostile", "unlucky"]),  # 2010 + the id's letters
        ({"longest": "20"}, ["plain"]),
        ({"shortest": "125000"}, ["long"]),
        ({"tool": "calculator"}, ["apples", "hostile", "long"]),
        ({"tool": "qa"}, []),
        ({"low": "0.15", "high": "0.3"}, ["apples"]),  # the qa call, 0.2
        ({"low": "0.15", "high": "0.3", "tool": "calculator"}, []),
        ({"low": "0.65", "kept": "yes"}, ["apples", "hostile", "long"]),
        ({"low": "1.9", "kept": "yes"}, ["hostile"]),
        ({"dropped": "prefilter:no_number"}, ["plain"]),
        ({"dropped": "sample:unparsable", "tool": "calculator"}, ["unlucky"]),
        ({"dropped": "sample:unparsable", "tool": "qa"}, []),
        ({"dropped": "execute:division_by_zero"}, ["unlucky"]),
    ],
)
def test_documents_are_found(page: Get, query: dict[str, str], found: list[str]) -> None:
    assert listed(page("/documents", **query)) == found


def test_documents_of_a_version_are_found(page: Get, version: str) -> None:
    assert listed(page("/documents", version=version)) == ["apples", "hostile", "long"]
    assert listed(page("/documents", version=version, high="1", host="apples.example")) == ["apples"]
    assert listed(page("/documents", version="none@0")) == []


def test_calls_are_listed_by_gain_and_outcome(page: Get) -> None:
    # of each tool the best at a position: 2.0 and 1.5 elsewhere, 11/15 and the rival's 0.2 at 16, 0.1 at 29
    gains = re.compile(r"[+-]\d\.\d{3}")
    assert gains.findall(page("/calls")) == ["+2.000", "+1.500", "+0.733", "+0.200", "+0.100"]
    assert gains.findall(page("/calls", outcome="kept")) == ["+2.000", "+1.500", "+0.733"]
    assert gains.findall(page("/calls", outcome="below_threshold")) == ["+0.200", "+0.100"]
    assert gains.findall(page("/calls", outcome="outdone")) == []
    assert gains.findall(page("/calls", tool="qa")) == ["+0.200"]
    assert gains.findall(page("/calls", low="0.2", high="1.5")) == ["+0.733", "+0.200"]


def test_the_calls_that_flip_are_those_of_what_if(page: Get, data: Path) -> None:
    # Nothing goes: 11/15 > 0.7. The qa call may come, but the calculator's at its position gains more.
    shown = words(page("/thresholds", **{"tau.calculator": "0.7", "tau.qa": "0.1", "k.calculator": "1"}))
    assert "would be added: 0" in shown
    assert "would be removed: 0" in shown
    shown = page("/thresholds", **{"tau.calculator": "0.75", "tau.qa": "0.1"})
    answer = what_if(data / "warehouse.duckdb", NOW, CallFilter({"calculator": 0.75, "qa": 0.1}), 100)
    # Now it goes, and the qa call is the best that is allowed at 16.
    assert [(call.tool, call.position) for call in answer.goes] == [("calculator", 16)]
    assert [(call.tool, call.position) for call in answer.comes] == [("qa", 16)]
    for name, calls in (("comes", answer.comes), ("goes", answer.goes)):
        section = shown.partition(f'<section id="{name}"')[2].partition("</section>")[0]
        links = re.findall(r"call=(\w+)%3A(\d+)", section)
        assert links == [(call.tool, str(call.position)) for call in calls]
        assert f": {len(calls)}" in words("<main" + section)
    assert "calculator 0.5 → 0.75 3 → 2 3 → 2" in words(shown)
    assert "qa 1 → 0.1 0 → 1 0 → 1" in words(shown)
    assert f"toolformer what-if --tau calculator=0.75,qa=0.1 --data {data}" in words(shown)


def test_thresholds_below_the_floor_are_told_beside_the_sliders(page: Get) -> None:
    shown = page("/thresholds", **{"tau.calculator": "-0.5"})
    assert "calculator was scored to the end only where the gain can reach 0" in words(shown)
    assert 'name="tau.calculator"' in shown
    assert "Materialise" not in shown


@pytest.mark.parametrize(
    "path", ["/documents", "/documents/hostile?call=calculator:25:0", "/calls", "/thresholds?tau.calculator=3"]
)
def test_hostile_texts_are_text(page: Get, path: str) -> None:
    shown = page(path)
    assert "<script>alert" not in shown
    assert "<img" not in shown
    assert "<b>bold" not in shown
    assert HOSTILE[:20] in unescape(shown)
    if "hostile" in path:
        assert f"Calculator({INPUT}) -> <b>bold</b>]" in unescape(shown)


def test_a_long_text_is_shown_in_parts(page: Get) -> None:
    first = page("/documents/long")
    assert "Part behind this" in first
    assert "Calculator(" not in first  # the call is in the second part, from 100,000 on
    second = page("/documents/long", **{"from": 100_000})
    assert f"[Calculator({'9' * 100_000}) -> 1]" in unescape(second)
    assert len(words(second)) > len(LONG)
    assert "9" * 200 not in page("/calls")


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/documents/none", 404, "no document has an id beginning with 'none'"),
        ("/documents/apples?call=qa:1:0", 400, "the current scores of this document have no call 'qa:1:0'"),
        ("/documents/apples?version=cstar@0", 400, "cstar@0 does not have this document"),
        ("/documents?shortest=x", 400, "shortest is a number from 0, not 'x'"),
        ("/documents?shortest=1.5", 400, "shortest is a whole number, not 1.5"),
        ("/documents?low=nan", 400, "low is a number, not 'nan'"),
        ("/documents?dropped=nowhere:x", 400, "dropped is written stage:reason"),
        ("/documents?version=cstar", 400, "version is written name@version"),
        ("/calls?after=1,2,3", 400, "after is no place in a list: '1,2,3'"),
        ("/calls?after=[0.5,2147483648,3,4]", 400, "after is no place in a list"),
        ("/calls?after=[0.5,1,-1,4]", 400, "after is no place in a list"),
        ("/calls?outcome=best", 400, "outcome is one of below_threshold, kept, outdone"),
        ("/none", 404, "Not Found: GET /none"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(client: TestClient, path: str, status: int, message: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert message in unescape(answer.text)


def test_nothing_built_yet(tmp_path: Path) -> None:
    with pages(tmp_path / "none") as client:
        assert "Nothing is built in" in client.get("/").text
        answer = client.get("/documents")
        assert answer.status_code == 503
        assert "build a dataset, or reconcile" in answer.text


def test_calls_as_shown(client: TestClient) -> None:
    page = client.get("/calls", params={"outcome": "below_threshold"}).text
    [as_json, as_csv] = (unescape(one) for one in re.findall(r'<a href="(\?[^"]*format=[^"]+)"', page))
    calls = client.get(f"/calls{as_json}").json()["calls"]
    assert [(call["tool"], call["position"], call["gain"]) for call in calls] == [
        ("qa", 16, pytest.approx(0.2)),
        ("calculator", 29, pytest.approx(0.1)),
    ]
    answer = client.get(f"/calls{as_csv}")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="calls.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["tool"], row["input"], row["response"]) for row in rows] == [
        ("qa", "How many apples?", "4"),
        ("calculator", "3 + 1", "4"),
    ]


@pytest.mark.parametrize(
    ("path", "tables"),
    [
        ("/", ["funnel", "gains", "versions", "runs"]),
        ("/documents", ["documents"]),
        ("/documents/hostile", ["calls"]),
        ("/thresholds?tau.calculator=0.75", ["now", "then", "gains", "comes", "goes"]),
        ("/judge", ["precisions", "agreements"]),
        ("/sql?q=SELECT 1 AS n, 2 AS n, NULL AS m", ["rows"]),
    ],
)
def test_every_page_with_a_table_gives_its_rows(client: TestClient, path: str, tables: list[str]) -> None:
    further = f"{path}{'&' if '?' in path else '?'}format="
    found = client.get(f"{further}json").json()
    assert list(found) == tables
    for name, rows in found.items():
        text = client.get(f"{further}csv&table={name}").text
        assert len(list(csv.DictReader(io.StringIO(text)))) == len(rows)
    if path == "/documents/hostile":
        assert found["calls"][0]["input"] == INPUT
    if "SELECT" in path:
        assert found["rows"] == [{"n": "1", "n_2": "2", "m": None}]


def test_what_is_no_table_is_told(client: TestClient) -> None:
    assert "table is one of calls, not 'x'" in unescape(client.get("/calls?format=csv&table=x").text)
    assert client.get("/calls?format=xml").status_code == 400
    assert client.get("/sql?format=csv").status_code == 404
