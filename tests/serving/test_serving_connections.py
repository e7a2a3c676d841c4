"""Clients that send half a request, or more connections than there may be."""

from __future__ import annotations

import contextlib
import json
import socket

import httpx
import pytest

from serving.settings import ServerSettings
from tests.serving.servers import DEADLINE_S, NAME, address_of, body_of, raw, running
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import UsageError
from toolformer_core.lm.hf.engine import TransformersLM


def test_a_body_must_come_in_time(lm: TransformersLM) -> None:
    with (
        running(lambda: Toolformer(lm, [], max_rows=2), max_rows=2, body_timeout_s=0.2) as server,
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
    with (
        running(lambda: Toolformer(lm, [], max_rows=2), max_rows=2, queue=0) as server,
        contextlib.ExitStack() as opened,
    ):
        for _ in range(258):
            opened.enter_context(socket.create_connection(address_of(server), timeout=DEADLINE_S))
        assert httpx.post(f"{server.url}/v1/completions", json=body_of()).status_code == 200
        opened.enter_context(socket.create_connection(address_of(server), timeout=DEADLINE_S))
        assert httpx.post(f"{server.url}/v1/completions", json=body_of()).status_code == 503


def test_a_time_limit_is_positive() -> None:
    with pytest.raises(UsageError):
        ServerSettings(NAME, body_timeout_s=float("nan"))
