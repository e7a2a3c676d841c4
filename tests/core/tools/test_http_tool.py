"""Tools behind an HTTP endpoint, and the tool files that describe them, against a server on loopback."""

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.support.served_app import Answer, answered
from toolformer_core.annotate.tool_prompt import prompt_for
from toolformer_core.errors import PromptError, UsageError
from toolformer_core.http_client import kept_client
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.base import limits_of, ttl_of
from toolformer_core.tools.build import build_tools
from toolformer_core.tools.custom.http_tool import HTTPTemplate, HTTPTool
from toolformer_core.tools.declaration import declaration_of

PEOPLE = {"France": 68, "Chad": 18}
CONTENTS = {
    "/large": b"x" * (1 << 20) + b"y",
    "/odd": b'{"@odata.count": 5, "page size": {"2d": [{"filter[x]": 1}]}, "a": {"b": 2}, "a.b": 3}',
    "/text": "caf\u00e9".encode() + b"\xff",
}


@dataclass
class Server:
    """Answers with the population of a country, or with what the path asks for."""

    url: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)  # what it was asked

    def answer(self, method: str, path: str, headers: Message, body: bytes) -> Answer:
        self.seen.append({"path": path, "authorization": headers.get("authorization"), "body": body})
        path, _, query = path.partition("?")
        if path.startswith("/status/"):
            return int(path.rsplit("/")[-1]), {"location": "/people?country=France"}, b""
        if path in CONTENTS:
            return 200, {}, CONTENTS[path]
        country = json.loads(body)["country"] if body else dict(parse_qsl(query)).get("country")
        return 200, {}, json.dumps({"country": country, "found": [{"people": PEOPLE.get(country or "")}]}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with answered(server.answer) as server.url:
        yield server


def http_tool(url: str, **template: Any) -> HTTPTool:
    return HTTPTool(HTTPTemplate(url, **template), name="People", key="people", description="Counts people.")


def test_a_request_and_what_is_read_from_its_response(server: Server) -> None:
    people = http_tool(server.url + "/people?country={input}", response="{found.0.people} million")
    assert people.run("France") == ToolResponse("68 million")
    assert people.run("Chad&country=France") == ToolFailure("no_result", "the response has no found.0.people")
    assert server.seen[-1]["path"] == "/people?country=Chad%26country%3DFrance"  # the input stays one value


def test_names_of_any_kind_are_asked_and_read(server: Server) -> None:
    response = "{@odata.count} {page size.2d.0.filter[x]} {a.b}"
    odd = http_tool(server.url + "/odd?$top={input}&filter[x]={input}", response=response)
    assert odd.run("5") == ToolResponse("5 1 2")  # steps come before a key with dots
    assert server.seen[-1]["path"] == "/odd?$top=5&filter[x]=5"


def test_json_is_filled_as_strings(server: Server) -> None:
    people = http_tool(server.url + "/people", method="POST", json={"country": "{input}"})
    assert people.run('Cha"d') == ToolResponse('{"country": "Cha\\"d", "found": [{"people": null}]}')
    assert json.loads(server.seen[-1]["body"]) == {"country": 'Cha"d'}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/status/404", ToolFailure("no_result", "HTTP 404")),
        ("/status/204", ToolFailure("no_result", "HTTP 204")),
        ("/status/302", ToolFailure("rejected", "HTTP 302")),  # not followed
        ("/status/429", ToolFailure("rate_limited", "HTTP 429", retryable=True)),
        ("/status/503", ToolFailure("server_error", "HTTP 503", retryable=True)),
        ("/large", ToolFailure("bad_response", "more than 1,048,576 bytes")),
        ("/text", ToolResponse("caf\u00e9\ufffd")),
    ],
)
def test_what_a_status_becomes(server: Server, path: str, expected: object) -> None:
    assert http_tool(server.url + path).run("x") == expected
    assert len(server.seen) == 1


def test_a_server_that_is_not_there_may_be_asked_again(server: Server) -> None:
    result = http_tool("http://127.0.0.1:9/x").run("x")  # nothing listens on the port `discard`
    assert isinstance(result, ToolFailure)
    assert (result.reason, result.retryable) == ("unreachable", True)


def test_a_secret_is_sent_and_never_stored(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    people = http_tool(server.url + "/people?country={input}", headers={"Authorization": "Bearer ${PEOPLE_KEY}"})
    monkeypatch.delenv("PEOPLE_KEY", raising=False)
    with pytest.raises(UsageError, match="PEOPLE_KEY is not set"):
        people.load()
    before = people.fingerprint
    monkeypatch.setenv("PEOPLE_KEY", "s3cret")
    people.load()
    people.run("France")
    assert server.seen[-1]["authorization"] == "Bearer s3cret"
    assert people.fingerprint == before
    assert b"s3cret" not in pickle.dumps(people)
    # an input is data: it reads no variable
    people.run("${PEOPLE_KEY}")
    assert "s3cret" not in server.seen[-1]["path"]


def test_a_secret_shows_in_no_message_and_no_response(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    echo = http_tool(server.url + "/people?country=${PEOPLE_KEY}", headers={"Authorization": "${PEOPLE_KEY}"})
    monkeypatch.setenv("PEOPLE_KEY", "s3cret\n")  # as a file's content often ends
    assert echo.run("") == ToolResponse('{"country": "${PEOPLE_KEY}", "found": [{"people": null}]}')
    assert server.seen[-1]["authorization"] == "s3cret"
    monkeypatch.setenv("PEOPLE_KEY", "s3c\nret")  # h11 would quote it in its message, as s3c\\nret
    for ask in (echo.load, lambda: echo.run("")):
        with pytest.raises(UsageError, match="PEOPLE_KEY holds a line break") as caught:
            ask()
        assert "s3c" not in str(caught.value)


def test_an_input_that_no_request_can_hold_is_the_inputs_fault(server: Server) -> None:
    people = http_tool(server.url + "/people?country={input}")
    assert people.run("a\ud800") == ToolFailure("invalid_input", "lone surrogate U+D800 at character 2")


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("ftp://127.0.0.1/x", "no http or https address"),
        ("https://{input}/x", "must be written out"),
        ("https://user:pw@host/x", "holds a user name or password"),
        ("http://example.org/x", "only for this machine"),
        ("https://[::1/x", "no http or https address"),
    ],
)
def test_urls_that_are_refused(url: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        HTTPTemplate(url)


def test_a_tool_file(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "people.yaml"
    file.write_text(
        f"""
description: Counts people.
keywords: [population]
tau_f: 0.5
examples:
  - question: How many people live in Chad?
    input: Chad
  - question: Who am I?
    input: ""
mock_response: 18 million
limits: {{at_once: 4, per_second: 50, cost: 0.1}}
http:
  url: {server.url}/people?country={{input}}
  response: "{{found.0.people}} million"
""",
        "utf-8",
    )
    people = build_tools([str(file)])["people"]
    assert isinstance(people, HTTPTool)
    assert (people.name, people.run("Chad")) == ("People", ToolResponse("18 million"))
    assert (limits_of(people).at_once, limits_of(people).per_second, limits_of(people).cost) == (4, 50, 0.1)
    assert ttl_of(people) == 86_400
    assert declaration_of(people).filter.keywords == ("population",)
    assert declaration_of(people).examples == (("How many people live in Chad?", "Chad"), ("Who am I?", ""))
    assert declaration_of(people).mock_response == "18 million"
    before = people.fingerprint
    file.write_text(file.read_text("utf-8").replace("18 million", "2 people").replace("Who am I?", "Me?"), "utf-8")
    changed = build_tools([str(file)])["people"]
    assert declaration_of(changed).mock_response == "2 people"
    assert changed.fingerprint == before  # no answer depends on them
    with pytest.raises(PromptError, match=r"people\.txt"):
        prompt_for(people)
    assert build_tools([f"Folk={file}"])["folk"].name == "Folk"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("name: [", "is not YAML"),
        ("name: People", "exactly one of http and mcp"),
        ("name: two words\nhttp: {url: 'https://h/'}", "cannot be called"),
        ("http: {url: 'http://example.org/'}", "only for this machine"),
        ("http: {url: 'https://h/', method: DELETE}", "http.method"),
        ("name: a\u0939\u093f\nhttp: {url: 'https://h/'}", "cannot be called"),  # a mark, which no call's name may hold
        ("http: {url: 'https://h/', json: {day: 2024-01-01}}", "json: this cannot be written as JSON"),
        ("http: {url: 'https://h/', headers: {'a b': c}}", "headers: 'a b' is not the name"),
        ("http: {url: 'https://h/'}\nlimits: {at_once: 0}", "at_once must be at least 1"),
        ("http: {url: 'https://h/'}\nlimits: {tries: 11}", "tries at most 10"),
        ("http: {url: 'https://h/', ttl_s: 0}", "ttl_s must be positive"),
        ("mcp: mcp+stdio:x#y\nexamples: [{question: 'How far?'}]", r"examples\.0: .*write question and input"),
        ("mcp: mcp+stdio:x#y\nmock_response: ' '", "mock_response: String should match"),
        ("http: {url: 'https://h/'}\nexamples: [{question: 'How far?', input: '[5'}]", "close every bracket"),
        ('http: {url: "https://h/"}\nmock_response: "a\\nb"', "has several lines; write one line"),
        ("!!python/object/apply:os.system [echo]", "is not YAML"),  # nothing is ever made but plain values
    ],
)
def test_mistakes_in_a_tool_file_are_named(tmp_path: Path, text: str, wrong: str) -> None:
    (tmp_path / "t.yaml").write_text(text, "utf-8")
    with pytest.raises(UsageError, match=wrong):
        build_tools([str(tmp_path / "t.yaml")])


def test_no_tool_sends_what_the_server_of_another_has_set() -> None:
    assert kept_client(1, 1.0).cookies.jar._policy.allowed_domains() == ()  # type: ignore[attr-defined]
