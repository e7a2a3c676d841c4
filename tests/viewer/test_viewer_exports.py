"""What the pages show, as CSV and JSON."""

import csv
import io
import re
from html import unescape

import pytest
from fastapi.testclient import TestClient

from tests.viewer.conftest import INPUT


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
