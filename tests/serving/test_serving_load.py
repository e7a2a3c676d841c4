"""Many at once: nobody is lost or mixed up, memory stays bounded, and what is too much is told so."""

import asyncio
import contextlib
import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import httpx
import pytest

from serving.server import ModelServer
from tests.serving.conftest import QUEUE, ROWS
from tests.serving.servers import DEADLINE_S, address_of, body_of, gated_server, model_server, raw, until
from toolformer_core.decode.engine import Handle
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.lm.hf.engine import TransformersLM

REQUESTS = 200
MEBIBYTE = 1 << 20


@pytest.fixture
def gated(lm: TransformersLM) -> Iterator[tuple[ModelServer, Callable[[], None]]]:
    """A server of two rows and a queue of one, whose tools do not answer; and what lets them."""
    with gated_server(lm, queue=1, grace_s=0.1) as found:
        yield found


def prompts() -> list[str]:
    """Half of them call a tool at once; some share beginnings."""
    return [f"Text {i}: the number {(i * 37) % 100}" + "!" * (i % 2) for i in range(REQUESTS)]


async def _read(client: httpx.AsyncClient, url: str, i: int, prompt: str) -> tuple[int, str, list[Any], str]:
    body = body_of(prompt, stream=True, max_tokens=6 + i % 5, toolformer={"k": 1, "show_calls": True})
    text, calls, finish, ids = "", [], "", set()
    async with client.stream("POST", f"{url}/v1/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        ended = False
        async for line in response.aiter_lines():
            assert not ended or not line
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                chunk = json.loads(line[6:])
                ids.add(chunk["id"])
                (choice,) = chunk["choices"]
                text += choice["text"]
                if choice["finish_reason"]:
                    finish, calls = choice["finish_reason"], choice["toolformer"]["calls"]
        assert ended
    assert len(ids) == 1
    return i, text, calls, finish


@pytest.mark.slow
def test_two_hundred_streams_at_once(server: ModelServer, alone: Toolformer) -> None:
    rows, taken = [], []

    async def watch() -> None:
        while True:
            rows.append(server.engine_thread._engine.running)
            taken.append(server.engine_thread.taken)
            await asyncio.sleep(0.01)

    async def load() -> list[Any]:
        watcher = asyncio.create_task(watch())
        limits = httpx.Limits(max_connections=REQUESTS)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:
            found = await asyncio.gather(*(_read(client, server.url, i, p) for i, p in enumerate(prompts())))
        watcher.cancel()
        return found

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = asyncio.run(load())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before

    assert [i for i, *_ in found] == list(range(REQUESTS))
    day = date.today().isoformat()
    called = 0
    for i, text, calls, finish in found:
        settings = GenerationSettings(max_new_tokens=6 + i % 5, top_k=1, context=day)
        (want,) = alone.generate([prompts()[i]], settings)
        assert (text, finish) == (want.text, want.finish)
        assert [c["response"] for c in calls] == [c.response for c in want.calls]
        called += bool(calls)
    assert called >= REQUESTS // 2
    assert max(rows) <= ROWS
    assert ROWS < max(taken) <= ROWS + QUEUE  # there was a queue indeed
    assert grown < 200 * MEBIBYTE  # client, server, and 200 connections, in this one process
    until(lambda: server.engine_thread.taken == 0, "the end of all sequences")


def test_a_full_queue_is_told(gated: tuple[ModelServer, Callable[[], None]]) -> None:
    server, let_go = gated
    with httpx.Client(base_url=server.url, timeout=60) as client, contextlib.ExitStack() as open_:
        for _ in range(3):  # two rows, one in the queue
            open_.enter_context(
                client.stream("POST", "/v1/completions", json=body_of(stream=True, toolformer={"k": 1}))
            )
        until(lambda: server.engine_thread._engine.running == 2, "two rows")
        refused = client.post("/v1/completions", json=body_of())
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full"
        assert client.post("/v1/completions", json=body_of(n=4)).status_code == 400  # would never fit
        metrics = client.get("/metrics").text
        assert "toolformer_running_rows 2.0" in metrics
        assert "toolformer_queue_length 1.0" in metrics
        assert 'toolformer_requests_total{endpoint="/v1/completions",status="429"} 1.0' in metrics
        let_go()
        until(lambda: server.engine_thread._engine.running == 0, "the end of the rows")
    until(lambda: server.engine_thread.taken == 0, "free places")
    assert httpx.post(f"{server.url}/v1/completions", json=body_of(n=3)).status_code == 200


def test_a_large_request_keeps_no_small_one_waiting(gated: tuple[ModelServer, Callable[[], None]]) -> None:
    """It has both rows, and its tools do not answer; the small one needs one of the rows."""
    server, let_go = gated
    with httpx.Client(base_url=server.url, timeout=DEADLINE_S) as client:
        large = body_of(n=2, stream=True, toolformer={"k": 1})
        with client.stream("POST", "/v1/completions", json=large) as answer:
            until(lambda: server.engine_thread._engine.running == 2, "two rows")
            small = client.post("/v1/completions", json=body_of(toolformer={"k": 0}))
            assert small.json()["choices"][0]["finish_reason"] == "length"
            let_go()
            lines = [line for line in answer.iter_lines() if line]
    assert sum('"finish_reason":"length"' in line for line in lines) == 2
    assert lines[-1] == "data: [DONE]"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_ends_its_sequences(gated: tuple[ModelServer, Callable[[], None]], stream: bool) -> None:
    server, _ = gated
    body = body_of(n=3, stream=stream, toolformer={"k": 1})
    with socket.create_connection(address_of(server)) as client:
        client.sendall(raw(body))
        until(lambda: server.engine_thread._engine.running == 2, "two rows")
        assert server.engine_thread.taken == 3
    until(lambda: server.engine_thread._engine.running == 0 and server.engine_thread.taken == 0, "the end of its rows")
    assert 'toolformer_sequences_total{finish="cancelled"} 3.0' in httpx.get(f"{server.url}/metrics").text


def test_a_client_that_does_not_read_holds_its_places_and_no_row(lm: TransformersLM) -> None:
    with model_server(lm, queue=0) as server:
        server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # for connections to come
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(address_of(server))
            # some 400 kB of chunks, and asyncio takes 64 kB before it has the writer wait
            client.sendall(raw(body_of("x", max_tokens=400, n=4, stream=True, toolformer={"k": 0})))
            metrics = f"{server.url}/metrics"
            until(lambda: 'sequences_total{finish="length"} 4.0' in httpx.get(metrics).text, "the end of its rows")
            until(lambda: server.engine_thread._engine.running == 0, "free rows")
            assert server.engine_thread.taken == 4
            assert httpx.post(f"{server.url}/v1/completions", json=body_of()).status_code == 429
        until(lambda: server.engine_thread.taken == 0, "its places")


def slow_submit(server: ModelServer) -> tuple[threading.Event, threading.Event, list[Handle]]:
    """Have submitting wait; return what is set when it begins, what lets it go on, and the handles."""
    at_work, let_go = threading.Event(), threading.Event()
    engine = server.engine_thread._engine
    assert engine is not None
    submit, handed = engine.submit, list[Handle]()

    def slow(*args: Any, **more: Any) -> Handle:
        at_work.set()
        let_go.wait()
        handed.append(submit(*args, **more))
        return handed[-1]

    engine.submit = slow  # type: ignore[method-assign]
    return at_work, let_go, handed


def test_a_request_that_is_given_up_while_it_is_handed_in(lm: TransformersLM) -> None:
    with model_server(lm) as server:
        at_work, let_go, _ = slow_submit(server)
        with socket.create_connection(address_of(server)) as client:
            client.sendall(raw(body_of(n=3)))
            assert at_work.wait(30)
        let_go.set()
        until(lambda: server.engine_thread.taken == 0, "its places")
        assert server.engine_thread._engine.running == 0


async def _cancelled(server: ModelServer, at_work: threading.Event, let_go: threading.Event) -> None:
    work = asyncio.ensure_future(server.engine_thread.submit(["x"] * 3, [GenerationSettings(max_new_tokens=400)] * 3))
    await asyncio.to_thread(at_work.wait, 30)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    assert server.engine_thread.taken == 3  # as long as nobody knows what becomes of them
    let_go.set()


def test_a_handing_in_that_is_cancelled(lm: TransformersLM) -> None:
    """Of three sequences the first is being tokenised when the request is cancelled: it ends, the others never come."""
    with model_server(lm) as server:
        at_work, let_go, handed = slow_submit(server)
        loop = server.engine_thread._loop
        assert loop is not None
        asyncio.run_coroutine_threadsafe(_cancelled(server, at_work, let_go), loop).result(30)
        until(lambda: server.engine_thread.taken == 0, "its places")
        until(lambda: handed[0].done, "its end")
        assert len(handed) == 1
