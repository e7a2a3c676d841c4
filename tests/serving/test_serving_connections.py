"""Clients that send half a request: they are let go in time, and keep nobody else out."""

from __future__ import annotations

import contextlib
import json
import resource
import select
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from serving.connections import open_files
from serving.server import ModelServer, ServerSettings
from tests.serving.servers import DEADLINE_S, NAME, address_of, body_of, raw, running, until
from tests.serving.test_serving_load import Gated
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import UsageError
from toolformer_core.lm.hf.engine import TransformersLM

HALF_HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
HALF_BODY = raw(body_of())[:-5]
NEVER_S = 3600.0


@contextlib.contextmanager
def connected(server: ModelServer, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Connections that have sent these bytes."""
    with contextlib.ExitStack() as open_:
        found = []
        for _ in range(count):
            client = open_.enter_context(socket.create_connection(address_of(server), timeout=DEADLINE_S))
            client.sendall(sent)
            found.append(client)
        yield found


def rest_of(client: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    return b"".join(iter(lambda: client.recv(4096), b""))


def error_in(answer: bytes) -> tuple[int, str]:
    """The status and the code of the last answer of these bytes."""
    head, _, body = answer.rpartition(b"HTTP/1.1 ")[2].partition(b"\r\n\r\n")
    return int(head[:3]), json.loads(body)["error"]["code"]


@pytest.mark.parametrize("sent", [HALF_HEAD, HALF_BODY], ids=["head", "body"])
def test_half_sent_requests_keep_nobody_out(lm: TransformersLM, sent: bytes) -> None:
    """2 rows and no queue make 2 places, and 4 * 2 + 256 = 264 connections: they are all taken."""
    with (
        running(lambda: Toolformer(lm, [], max_rows=2), max_rows=2, queue=0) as server,
        connected(server, 264, sent) as clients,
    ):
        for _ in range(3):
            answer = httpx.post(f"{server.url}/v1/completions", json=body_of(), timeout=DEADLINE_S)
            assert answer.status_code == 200, answer.text
        assert error_in(rest_of(clients[0])) == (503, "connections_full")  # the oldest had to go
        newest = clients[-1]
        assert not select.select([newest], [], [], 0)[0]
        newest.sendall(raw(body_of()).removeprefix(sent))  # and the newest may still end its request
        assert newest.recv(12) == b"HTTP/1.1 200"


def test_headers_must_come_in_time(lm: TransformersLM) -> None:
    with running(lambda: Toolformer(lm, [], max_rows=2), max_rows=2, header_timeout_s=0.2) as server:
        with connected(server, 1, b"") as (silent,):
            assert rest_of(silent) == b""
        with connected(server, 1, HALF_HEAD) as (half,):
            assert error_in(rest_of(half)) == (408, "timeout")
        with connected(server, 1, HALF_HEAD) as (dropping,):  # a byte now and then does not help
            while not select.select([dropping], [], [], 0.02)[0]:
                dropping.sendall(b"X")
            assert error_in(rest_of(dropping)) == (408, "timeout")
        first = raw(body_of())
        with connected(server, 1, first) as (kept,):  # nor does a request before
            assert kept.recv(12) == b"HTTP/1.1 200"
            kept.sendall(HALF_HEAD)
            assert error_in(rest_of(kept)) == (408, "timeout")


def test_a_body_must_come_in_time(lm: TransformersLM) -> None:
    with (
        running(lambda: Toolformer(lm, [], max_rows=2), max_rows=2, body_timeout_s=0.2) as server,
        connected(server, 1, HALF_BODY) as (half,),
    ):
        answer = b""
        while b"}}" not in answer:
            answer += half.recv(4096)
        assert error_in(answer) == (408, "timeout")


def test_a_request_that_is_there_has_all_the_time_it_takes(lm: TransformersLM) -> None:
    tools = [Gated("T"), Gated("U")]
    load = lambda: Toolformer(lm, tools, max_rows=2, tool_timeout_s=60)  # noqa: E731
    with (
        running(load, max_rows=2, header_timeout_s=0.1, body_timeout_s=0.1) as server,
        connected(server, 1, raw(body_of(toolformer={"k": 1}))) as (asking,),
    ):
        until(lambda: server.engine_thread._running() == 1, "its row")
        for _ in range(2):  # twice as long
            with connected(server, 1, b"") as (silent,):
                assert rest_of(silent) == b""
        for tool in tools:
            tool.let_go.set()
        assert asking.recv(12) == b"HTTP/1.1 200"


def test_one_connection_too_many_while_all_others_are_answered(lm: TransformersLM) -> None:
    tools = [Gated("T"), Gated("U")]
    load = lambda: Toolformer(lm, tools, max_rows=2, tool_timeout_s=60)  # noqa: E731
    with (
        running(load, max_rows=2, connections=2, header_timeout_s=NEVER_S) as server,
        connected(server, 2, raw(body_of(toolformer={"k": 1}))) as asking,
    ):
        until(lambda: server.engine_thread._running() == 2, "their rows")
        refused = httpx.post(f"{server.url}/v1/completions", json=body_of())
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "connections_full")
        assert "retry-after" in refused.headers
        for tool in tools:
            tool.let_go.set()
        for client in asking:
            assert client.recv(12) == b"HTTP/1.1 200"


def test_a_half_sent_request_does_not_hold_up_the_end(lm: TransformersLM) -> None:
    with (
        running(lambda: Toolformer(lm, [], max_rows=2), max_rows=2, header_timeout_s=NEVER_S) as server,
        connected(server, 1, HALF_HEAD) as (head,),
        connected(server, 1, HALF_BODY) as (body,),
    ):
        until(lambda: len(server.server_state.connections) == 2, "both")
        server.end()
        assert error_in(rest_of(head)) == (503, "stopped")
        assert error_in(rest_of(body)) == (503, "stopped")


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (1024, 4096, 3072, 1408),  # 1408 connections, as many being accepted, 256 other files: 2 * 1408 + 256 = 3072
        (1024, resource.RLIM_INFINITY, 3072, 1408),
        (4096, 4096, None, 1408),  # enough
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 1408),
        (512, 1024, 1024, 384),  # (1024 - 256) / 2
        (64, 64, 64, 1),
    ],
)
def test_files_for_connections(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None, connections: int
) -> None:
    limits: list[Any] = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.append(pair))
    assert open_files(1408) == connections
    assert limits[1:] == ([] if raised is None else [(raised, hard)])


def test_times_and_numbers_out_of_range() -> None:
    for wrong in ({"connections": 0}, {"header_timeout_s": 0.0}, {"body_timeout_s": float("nan")}):
        with pytest.raises(UsageError):
            ServerSettings(NAME, **wrong)  # type: ignore[arg-type]
