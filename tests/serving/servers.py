"""A real server in a thread of this process, on a free port of the loopback interface."""

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import httpx

from serving.server import ModelServer
from serving.settings import ServerSettings
from tests.fakes import FakeTool, GatedTool
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.lm.hf.engine import TransformersLM

DEADLINE_S = 30.0
NAME = "tiny"


def until(holds: Callable[[], bool], what: str = "it") -> None:
    """Wait until something holds."""
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, f"{what} did not come about"
        time.sleep(0.01)


@contextlib.contextmanager
def running(load: Callable[[], Toolformer], *, wait: bool = True, **settings: Any) -> Iterator[ModelServer]:
    """Run a server until the block is left."""
    server = ModelServer(ServerSettings(NAME, port=0, **{"grace_s": 0.2, **settings}), load)
    thread = threading.Thread(target=server.serve_until_ended)
    thread.start()
    try:
        until(lambda: server.started, "the server")
        if wait:
            until(lambda: httpx.get(f"{server.url}/health/ready").status_code == 200, "the model")
        yield server
    finally:
        server.end()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@contextlib.contextmanager
def model_server(
    lm: TransformersLM, tools: Sequence[FakeTool] = (), rows: int = 4, *, tool_timeout_s: float = 60.0, **settings: Any
) -> Iterator[ModelServer]:
    """Run a server of a model with tools until the block is left."""
    load = partial(Toolformer, lm, list(tools), max_rows=rows, tool_timeout_s=tool_timeout_s)
    with running(load, max_rows=rows, **settings) as server:
        yield server


def tool_named(name: str, answers: Any, key: str = "") -> FakeTool:
    """A fake tool with a name in calls."""
    tool = FakeTool(answers)
    tool.key, tool.name = key or name.lower(), name
    return tool


@contextlib.contextmanager
def gated_server(lm: TransformersLM, **settings: Any) -> Iterator[tuple[ModelServer, Callable[[], None]]]:
    """A server of two rows whose tools do not answer; and what lets them, which is done at the end as well."""
    tools = [GatedTool("T"), GatedTool("U")]

    def let_go() -> None:
        for tool in tools:
            tool.let_go.set()

    with model_server(lm, tools, 2, **settings) as server:
        try:
            yield server, let_go
        finally:
            let_go()


@contextlib.contextmanager
def failing_model(server: ModelServer, times: float = math.inf) -> Iterator[None]:
    """Have so many passes of a server's model fail."""
    hf_model = server.engine_thread.toolformer.lm.hf_model
    logits = hf_model.logits

    def fail(hidden: Any) -> Any:
        nonlocal times
        times -= 1
        if times >= 0:
            raise RuntimeError("out of memory")
        return logits(hidden)

    hf_model.logits = fail  # type: ignore[method-assign]
    try:
        yield
    finally:
        del hf_model.logits


def body_of(prompt: str = "So!", **more: Any) -> dict[str, Any]:
    """A completion request."""
    return {"model": NAME, "prompt": prompt, "max_tokens": 8, **more}


def address_of(server: ModelServer) -> tuple[str, int]:
    """For a socket."""
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


def raw(body: dict[str, Any], path: str = "/v1/completions") -> bytes:
    """A request as it goes over the wire."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"
    return "\r\n".join((*head, f"Content-Length: {len(content)}", "", "")).encode() + content
