"""Keys, hosts, sizes, errors, health, and how the server ends."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import MutableMapping
from typing import Any

import httpx
import openai
import pytest

from serving.metrics import Metrics
from serving.middleware import RequestMiddleware
from serving.server import ModelServer
from serving.settings import ServerSettings
from tests.serving.servers import DEADLINE_S, NAME, address_of, body_of, gated_server, model_server, raw, running, until
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.endpoints import is_loopback
from toolformer_core.errors import ModelError, UsageError
from toolformer_core.lm.hf.engine import TransformersLM

KEY = "for this test alone"


def test_the_key_is_asked_for_everywhere_but_at_the_page_and_health(lm: TransformersLM) -> None:
    with model_server(lm, rows=2, api_key=KEY) as server:
        paths = ["/v1/models", "/metrics", "/openapi.json", "/nothing"]
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}):
            for path in paths:
                refused = httpx.get(server.url + path, headers=headers)
                assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
                assert refused.headers["www-authenticate"] == "Bearer"
        for path in ("/", "/health", "/health/live", "/health/ready"):
            assert httpx.get(server.url + path).status_code == 200
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
            assert client.completions.create(model=NAME, prompt="x", max_tokens=2).choices[0].text
        with (
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.completions.create(model=NAME, prompt="x")
        assert httpx.get(server.url + "/health", headers={"host": "elsewhere.example"}).status_code == 200


def test_without_a_key_no_other_name_and_no_other_page_is_answered(server: ModelServer) -> None:
    """Which names and pages those are: see test_origins."""
    assert httpx.get(server.url + "/v1/models", headers={"host": "elsewhere.example"}).status_code == 403
    for method, path in (("GET", "/v1/models"), ("POST", "/v1/completions"), ("OPTIONS", "/v1/completions")):
        headers = {"origin": "http://elsewhere.example", "content-type": "text/plain"}
        refused = httpx.request(method, server.url + path, headers=headers)
        assert refused.status_code == 403
        assert "set an API key" in refused.json()["error"]["message"]
    assert httpx.get(server.url + "/v1/models", headers={"origin": server.url}).status_code == 200


def test_too_large_a_body(lm: TransformersLM) -> None:
    with model_server(lm, rows=2, max_body=2000) as server:
        url = server.url + "/v1/completions"
        assert httpx.post(url, json=body_of("x" * 10)).status_code == 200
        refused = httpx.post(url, json=body_of("x" * 3000))
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, "request_too_large")
        pieces = (b"x" * 100 for _ in range(100))  # its length is not told beforehand
        assert httpx.post(url, content=pieces, headers={"content-type": "application/json"}).status_code == 413


@pytest.mark.parametrize(
    ("path", "pieces", "status", "read_before"),
    [
        ("/metrics", [(b"a", True), (b"b", True), (b"c", False)], 401, 0),
        ("/", [(b"aaa", True), (b"bbb", True), (b"c", True), (b"d", False)], 413, 2),  # 6 bytes are over 5
        ("/", [(b"aaaaaa", False)], 413, 1),
    ],
)
def test_a_refused_body_is_read(path: str, pieces: list[tuple[bytes, bool]], status: int, read_before: int) -> None:
    """A connection closed over unread bytes is reset: the client may lose the answer."""
    events: list[str] = []
    waiting = iter(pieces)

    async def receive() -> dict[str, object]:
        content, more = next(waiting)  # raises when asked beyond the end
        events.append("read")
        return {"type": "http.request", "body": content, "more_body": more}

    async def send(message: MutableMapping[str, Any]) -> None:
        events.append(str(message.get("status", "answer" if message.get("more_body", False) else "end")))

    async def nobody(*_: object) -> None:
        raise AssertionError("the request was let in")

    settings = ServerSettings(NAME, api_key=KEY, max_body=5)
    middleware = RequestMiddleware(nobody, metrics=Metrics(*[lambda: 0] * 3), settings=settings)
    scope = {"type": "http", "path": path, "headers": []}
    asyncio.run(middleware(scope, receive, send))
    reads = ["read"] * len(pieces)
    assert events == [*reads[:read_before], str(status), "answer", *reads[read_before:], "end"]


def test_a_body_must_come_in_time(lm: TransformersLM) -> None:
    with (
        model_server(lm, rows=2, body_timeout_s=0.2) as server,
        socket.create_connection(address_of(server), timeout=DEADLINE_S) as half,
    ):
        half.sendall(raw(body_of())[:-5])
        answer = b""
        while b"}}" not in answer:
            answer += half.recv(4096)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (head[:12], json.loads(body)["error"]["code"]) == (b"HTTP/1.1 408", "timeout")


def test_a_connection_too_many_is_answered_with_503(lm: TransformersLM) -> None:
    """2 rows and no queue make 2 places, and 2 * 2 + 256 = 260 connections, of which the newcomer would be the last."""
    with model_server(lm, rows=2, queue=0) as server, contextlib.ExitStack() as opened:
        for _ in range(258):
            opened.enter_context(socket.create_connection(address_of(server), timeout=DEADLINE_S))
        assert httpx.post(f"{server.url}/v1/completions", json=body_of()).status_code == 200
        opened.enter_context(socket.create_connection(address_of(server), timeout=DEADLINE_S))
        assert httpx.post(f"{server.url}/v1/completions", json=body_of()).status_code == 503


def test_errors_have_openai_s_shape(server: ModelServer) -> None:
    url, json_ = server.url + "/v1/completions", {"content-type": "application/json"}
    found = [
        *((400, httpx.post(url, content=content, headers=json_)) for content in ("{", "[]", b"\xff")),
        (400, httpx.post(url, json={"model": NAME})),
        (404, httpx.get(server.url + "/v1/nothing")),
        (405, httpx.get(url)),
    ]
    for status, response in found:
        assert response.status_code == status, response.text
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    # what a page of another site may send without asking the browser is not read as JSON
    refused = httpx.post(url, content=json.dumps(body_of()))
    assert refused.status_code == 415
    assert "Content-Type: application/json" in refused.json()["error"]["message"]


def requests_by_status(server: ModelServer) -> dict[str, float]:
    """What /metrics counted of completions."""
    found = re.findall(
        r'toolformer_requests_total\{endpoint="/v1/completions",status="(\w+)"\} (\S+)',
        httpx.get(f"{server.url}/metrics").text,
    )
    return {status: float(count) for status, count in found}


def test_a_handler_that_fails_is_counted_as_a_500(lm: TransformersLM, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("nobody thought of this")

    with model_server(lm, rows=2) as server:
        monkeypatch.setattr(server.engine_thread, "submit", broken)
        answer = httpx.post(f"{server.url}/v1/completions", json=body_of())
        assert answer.status_code == 500
        message = "the server failed; its log says why"
        assert answer.json()["error"] == {"message": message, "type": "server_error", "param": None, "code": None}
        monkeypatch.undo()
        assert httpx.post(f"{server.url}/v1/completions", json=body_of()).status_code == 200
        until(lambda: requests_by_status(server) == {"500": 1, "200": 1}, "the count of both")


def test_a_client_that_goes_before_its_answer_has_a_status_of_its_own(lm: TransformersLM) -> None:
    with gated_server(lm, grace_s=0.1) as (server, _):
        request = raw(body_of(toolformer={"k": 1}))
        with socket.create_connection(address_of(server)) as client:
            client.sendall(request[:-5])  # it goes before its body is there
        until(lambda: requests_by_status(server) == {"499": 1}, "the count of the first")
        with socket.create_connection(address_of(server)) as client:
            client.sendall(request)  # and while a tool is at work
            until(lambda: server.engine_thread._engine.running == 1, "its row")
        until(lambda: requests_by_status(server) == {"499": 2}, "the count of the second")


def test_health_while_the_model_is_loading(lm: TransformersLM) -> None:
    let_go = threading.Event()

    def load() -> Toolformer:
        let_go.wait()
        return Toolformer(lm, [], max_rows=2)

    with running(load, wait=False, max_rows=2) as server:
        try:
            assert httpx.get(server.url + "/health").json() == {"live": True, "ready": False, "status": "loading"}
            assert httpx.get(server.url + "/health/live").status_code == 200
            assert httpx.get(server.url + "/health/ready").status_code == 503
            refused = httpx.post(server.url + "/v1/completions", json=body_of())
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
            assert "retry-after" in refused.headers
        finally:
            let_go.set()
        until(lambda: httpx.get(server.url + "/health/ready").status_code == 200, "readiness")


def test_a_model_that_cannot_be_loaded_ends_the_server() -> None:
    def load() -> Toolformer:
        raise ModelError("no such model")

    server = ModelServer(ServerSettings(NAME, port=0), load)
    with pytest.raises(ModelError, match="no such model"):
        server.serve_until_ended()


@pytest.mark.parametrize("in_time", [False, True])
def test_open_streams_have_a_time_of_grace(lm: TransformersLM, in_time: bool) -> None:
    with gated_server(lm, grace_s=20 if in_time else 0.3) as (server, let_go):
        with httpx.stream("POST", server.url + "/v1/completions", json=body_of(stream=True, toolformer={"k": 1})) as r:
            lines = r.iter_lines()
            assert "call_started" in next(lines)
            server.end()
            if in_time:
                until(lambda: server.engine_thread.state == "draining", "the end")
                let_go()
            *rest, last, done = [line for line in lines if line]
        if in_time:
            assert '"finish_reason":"length"' in last
        else:
            assert (rest, json.loads(last.removeprefix("data: "))["error"]["code"]) == ([], "stopped")
        assert done == "data: [DONE]"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_the_command_well(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "cli.main", "serve", "--port", "0", "--tools", "calculator"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            told = process.stdout.readline()
            url = told.split("page at ")[1].split(",")[0]
            until(lambda: _ready(url), "the model")
            got = httpx.post(url + "/v1/completions", json={"model": "embedded", "prompt": "The sum", "max_tokens": 3})
            assert got.json()["usage"]["completion_tokens"] >= 3
            process.send_signal(number)
            assert process.wait(DEADLINE_S) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()


def _ready(url: str) -> bool:
    try:
        return httpx.get(url + "/health/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_an_address_that_is_taken(server: ModelServer) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    with pytest.raises(UsageError, match="cannot listen"):
        ModelServer(ServerSettings(NAME, port=port), lambda: None)  # type: ignore[arg-type,return-value]


def test_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.8.0.1", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.org"]))


def test_settings_do_not_show_the_key() -> None:
    assert KEY not in repr(ServerSettings(NAME, api_key=KEY))


@pytest.mark.parametrize("wrong", [{"api_key": ""}, {"body_timeout_s": float("nan")}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ServerSettings(NAME, **wrong)
