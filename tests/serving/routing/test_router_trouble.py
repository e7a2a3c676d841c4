"""Whatever a client sends and whatever fails, a routed request ends in the usual way."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from serving.server import ModelServer
from serving.settings import ServerSettings
from tests.serving.routed import CALLED, MESSAGE, ROUTES, WEATHER, Tool, asking, chat, function, ranking, settings
from tests.serving.servers import DEADLINE_S, NAME, address_of, failing_model, model_server, raw, until
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import ModelError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import ToolFailure


def sevens_by(answer: Callable[[str, str], object]) -> Tool:
    return Tool("sevens", "T", "Seven times a number.", answer)


def waiting_sevens(answer: str) -> tuple[Tool, threading.Event, threading.Event]:
    """A tool that answers when it is let go; what is set when it is asked, and what lets it go."""
    asked, let_go = threading.Event(), threading.Event()

    def wait(input: str, context: str) -> str:
        asked.set()
        let_go.wait()
        return answer

    return sevens_by(wait), asked, let_go


@contextlib.contextmanager
def routed(
    lm: TransformersLM, tools: list[Tool], rows: int = 4, mock: Sequence[str] = (), **more: Any
) -> Iterator[ModelServer]:
    """A server of a model with these tools, its router on."""
    with model_server(lm, tools, rows, **{"router": settings(tools, mock=mock), **more}) as one:
        yield one


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
        ({"tools": [WEATHER] * 129}, "tools"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [function("a b", "x")]}, "tools[0].function"),
        ({"tools": [function("f", "\ud800")]}, "tools[0].function"),
        ({"tools": [function("f", "x", {"a": {"type": "text"}})]}, "tools[0].function.parameters"),
        ({"tools": [function("f", "x", {"a": {"$ref": "http://localhost/x"}})]}, "tools[0].function.parameters"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "absent"}}}, "tool_choice"),
        ({"tool_choice": "required", "toolformer": {"k": 0}}, "tool_choice"),
        ({"messages": [{"role": "user", "content": " "}], "tool_choice": "required"}, "messages"),
        ({"messages": [MESSAGE, {"role": "tool", "tool_call_id": "1", "content": "x"}]}, "messages[1].tool_call_id"),
        ({"messages": [MESSAGE, CALLED]}, "messages[1]"),
        ({"messages": [MESSAGE, {"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "messages[1].tool_calls[0]"),
        ({"toolformer": {"tools": ["abacus"]}}, "toolformer.tools"),
        ({"toolformer": {"answer": "poem"}}, "toolformer.answer"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"n": 69}, None),  # more choices than places
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_refused(server: ModelServer, more: dict[str, Any], param: str | None) -> None:
    body = json.dumps({"model": NAME, "messages": [MESSAGE], "max_tokens": 2, **more})
    refused = httpx.post(
        f"{server.url}/v1/chat/completions", content=body, headers={"content-type": "application/json"}, timeout=30
    )
    assert refused.status_code == 400, refused.text
    error = refused.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").startswith(param or "")
    assert bool(error["param"]) == bool(param)


def test_a_demanded_call_that_cannot_be_written(client: openai.OpenAI) -> None:
    two = function("weather-of", "The weather.", {"city": {"enum": ["Rome", "Oslo"]}})
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, "How is the weather?", tools=[two], tool_choice="required")
    assert (caught.value.code, caught.value.param) == ("tool_use_failed", "tool_choice")
    assert "Rome" in caught.value.message


def test_a_tool_that_fails_is_passed_over(lm: TransformersLM) -> None:
    failing = sevens_by(lambda input, context: ToolFailure("broken", "no battery"))
    with routed(lm, [failing]) as server, asking(server) as own:
        answer = chat(own, "What is seven of these?")
    assert answer.choices[0].finish_reason == "length"
    assert (ROUTES[-1].runs_it, ROUTES[-1].rejected_tools) == ("nobody", {"sevens": "broken no battery"})


def test_a_client_that_leaves_while_its_tools_are_ranked_gives_its_places_back(lm: TransformersLM) -> None:
    tool, asked, let_go = waiting_sevens("late")
    with routed(lm, [tool]) as server:
        body = {"model": NAME, "messages": [MESSAGE], "max_tokens": 2}
        with socket.create_connection(address_of(server)) as connection:
            connection.sendall(raw(body, "/v1/chat/completions"))
            assert asked.wait(30)
        left = 'toolformer_requests_total{endpoint="/v1/chat/completions",status="499"} 1.0'
        until(lambda: left in httpx.get(f"{server.url}/metrics").text, "the client's leaving")
        assert server.engine_thread.taken == 0
        let_go.set()


def test_a_small_model_that_cannot_be_loaded_ends_the_server(lm: TransformersLM, tools: list[Tool]) -> None:
    def fail() -> Toolformer:
        raise ModelError("no such weights")

    server = ModelServer(
        ServerSettings(NAME, port=0, router=settings(tools, load=fail, model="small")), lambda: Toolformer(lm, tools)
    )
    with pytest.raises(ModelError, match="no such weights"):
        server.serve_until_ended()


def test_a_request_whose_tools_are_ranked_is_answered_while_the_server_ends(lm: TransformersLM) -> None:
    tool, asked, let_go = waiting_sevens("at last")
    body = {"model": NAME, "messages": [{"role": "user", "content": "seven"}]}
    with routed(lm, [tool], grace_s=DEADLINE_S) as server, ThreadPoolExecutor() as threads:
        found = threads.submit(httpx.post, f"{server.url}/v1/chat/completions", json=body, timeout=60)
        assert asked.wait(DEADLINE_S)
        server.end()
        until(lambda: server.engine_thread.state == "draining", "the end")
        let_go.set()
        answer = found.result(DEADLINE_S)
    assert answer.status_code == 200, answer.text
    (call,) = answer.json()["choices"][0]["toolformer"]["calls"]
    assert call["response"] == "at last"


def test_a_server_with_one_place_ranks_in_turns(lm: TransformersLM, tools: list[Tool], client: openai.OpenAI) -> None:
    """Three texts are written for a request, one after the other, as there is one row and no queue."""
    text = "What is seven of these?"
    want = chat(client, text, tools=[WEATHER])
    wanted = ranking()
    with routed(lm, tools, 1, queue=0, mock=("days",)) as server, asking(server) as own:
        got = chat(own, text, tools=[WEATHER])
    assert got.choices[0].message.content == want.choices[0].message.content
    assert ranking() == wanted


def test_a_query_that_no_prompt_has_room_for(client: openai.OpenAI) -> None:
    long = "seven " * 400  # the context is 512 tokens
    with pytest.raises(openai.BadRequestError, match="shorten the prompt"):
        chat(client, long)  # nobody's call can be written, and the model cannot answer either
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, long, tools=[WEATHER], tool_choice="required")
    assert caught.value.code == "tool_use_failed"


@pytest.mark.parametrize("choice", ["auto", {"type": "function", "function": {"name": "sevens"}}])
def test_the_engine_fails_while_tools_are_ranked(lm: TransformersLM, tools: list[Tool], choice: Any) -> None:
    with routed(lm, tools, mock=("days",)) as server:
        body = {"model": NAME, "messages": [{"role": "user", "content": "seven"}], "tool_choice": choice}
        with failing_model(server, times=1):
            first = httpx.post(f"{server.url}/v1/chat/completions", json=body)
            assert (first.status_code, first.json()["error"]["code"]) == (503, "stopped")
            again = lambda: httpx.post(f"{server.url}/v1/chat/completions", json=body).status_code == 200  # noqa: E731
            until(again, "an answer")
        assert server.engine_thread.taken == 0


def test_the_server_is_ready_when_both_models_are(lm: TransformersLM, tools: list[Tool]) -> None:
    let_go = threading.Event()

    def load_small() -> Toolformer:
        let_go.wait()
        return Toolformer(lm, [], max_rows=2)

    router = settings(tools, load=load_small, model="small", max_rows=2)
    with routed(lm, tools, wait=False, router=router) as server:
        try:
            until(lambda: server.engine_thread.state == "ready", "the server's model")
            probe = httpx.get(f"{server.url}/health/ready")
            assert (probe.status_code, probe.json()) == (503, {"ready": False, "status": "loading"})
            assert httpx.get(f"{server.url}/health").json()["ready"] is False
            body = {"model": NAME, "messages": [{"role": "user", "content": "seven"}]}
            refused = httpx.post(f"{server.url}/v1/chat/completions", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
        finally:
            let_go.set()
        until(lambda: httpx.get(f"{server.url}/health/ready").status_code == 200, "both models")
        assert httpx.post(f"{server.url}/v1/chat/completions", json=body).status_code == 200
