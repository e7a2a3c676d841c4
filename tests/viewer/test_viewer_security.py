"""What a browser may be made to do with the viewer, and what its SQL cell may do."""

import re
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient

import warehouse
from tests.support.vendored import PACKAGES, Package, altered
from viewer.rendering import MENU
from viewer.sql_process import ask_in_process


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:8001"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    ],
)
def test_other_hosts_and_origins_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get("/", headers=headers).status_code == 403
    assert client.post("/versions", headers=headers, content="name=x").status_code == 403


def test_pages_of_other_origins_may_link_here_and_nothing_more(client: TestClient) -> None:
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=followed).status_code == 200
    assert client.post("/versions", headers=followed, content="name=x").status_code == 403
    shown = client.get("/sql", params={"q": "SELECT 41 + 1"}, headers=followed).text
    assert "SELECT 41 + 1" in shown
    assert "read the query, then run it" in shown  # a link cannot run it


def test_responses_forbid_what_is_not_the_viewer_s_own(client: TestClient) -> None:
    for path in ("/", "/none", "/static/viewer.css", "/sql"):
        headers = client.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_no_page_has_inline_script_or_style(client: TestClient) -> None:
    for path in (*MENU, "/documents/apples?call=calculator:16:0"):
        shown = client.get(path).text
        assert "<style" not in shown
        assert "style=" not in shown
        assert shown.count("<script") == shown.count('<script src="/static/') == 2


def test_forms_are_small(client: TestClient) -> None:
    assert client.post("/versions", content="name=" + "x" * 70_000).status_code == 413
    answer = client.post("/versions", content="name=../x")
    assert answer.status_code == 400
    assert "../x" in answer.text


def test_a_query_is_answered(client: TestClient) -> None:
    shown = client.get("/sql", params={"q": "SELECT '<i>' AS \"<u>\", NULL AS n, count(*) AS c FROM documents"}).text
    assert "<bdi>&lt;u&gt;</bdi>" in shown
    assert "<td><bdi>&lt;i&gt;</bdi></td><td><i>NULL</i></td><td><bdi>5</bdi></td>" in shown


def test_the_questions_of_the_readme_are_links_that_run_them(client: TestClient) -> None:
    page = client.get("/sql").text
    links = re.findall(r'<li><a href="(/sql[^"]+)">([^<]+)</a>', page)
    readme = Path(warehouse.__file__).with_name("README.md").read_text(encoding="utf-8")
    asked = [parse_qs(urlsplit(unescape(href)).query)["q"][0] for href, _ in links]
    assert asked == [query.strip() for query in re.findall(r"```sql\n(.*?)```", readme, re.DOTALL)]
    assert links[0][1] == "How many examples would each threshold keep (the paper&#39;s Table 2)?"
    shown = client.get(unescape(links[5][0])).text  # why calls get no response: one failed
    assert "<td><bdi>division_by_zero</bdi></td>" in shown


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("DELETE FROM facts.gains", "DELETE is refused, as queries only read"),
        ("ATTACH '{folder}/other.duckdb'", "ATTACH is refused"),
        ("FROM read_text('/etc/hostname')", "queries read the data folder alone"),
        ("SELECT sum(range % 7) FROM range(1000000000000)", "took longer than 0.5 s"),  # long, and in little memory
    ],
)
def test_a_query_only_reads_and_ends(data: Path, sql: str, problem: str) -> None:
    answer = ask_in_process(data / "warehouse.duckdb", sql.format(folder=data), 0.5)
    assert problem in answer.problem
    assert not answer.rows


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_what_others_wrote_is_what_they_published(package: Package) -> None:
    assert altered(package) == []
