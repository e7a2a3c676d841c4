"""Whatever becomes of a tool, every request ends."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.serving.servers import body_of, failing_model, model_server, running, tool_named, until
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import ToolError
from toolformer_core.lm.hf.engine import TransformersLM


def _ask_many(url: str, count: int) -> list[httpx.Response]:
    bodies = [body_of(f"{i}!", toolformer={"k": 1}) for i in range(count)]
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(lambda body: httpx.post(f"{url}/v1/completions", json=body, timeout=60), bodies))


def _failures(responses: list[httpx.Response]) -> set[str | None]:
    assert {r.status_code for r in responses} == {200}
    choices = [r.json()["choices"][0] for r in responses]
    assert all(c["finish_reason"] == "length" for c in choices)
    return {call["failure"] for c in choices for call in c["toolformer"]["calls"]}


def _raises(exc: BaseException) -> Callable[[str, str], object]:
    def answer(input: str, context: str) -> object:
        raise exc

    return answer


@pytest.mark.parametrize(
    ("answer", "failure"),
    [(_raises(SystemExit(1)), "crashed"), (_raises(ToolError("no data")), "unavailable")],
    ids=["exits", "unavailable"],
)
def test_a_tool_that_fails(lm: TransformersLM, answer: Callable[[str, str], object], failure: str) -> None:
    tools = [tool_named("T", answer), tool_named("U", answer)]
    with model_server(lm, tools) as server:
        assert _failures(_ask_many(server.url, 12)) == {failure}
        metrics = httpx.get(f"{server.url}/metrics").text
    assert f'outcome="{failure}"' in metrics
    assert "toolformer_engine_restarts_total 0.0" in metrics


def test_a_tool_that_hangs(lm: TransformersLM) -> None:
    let_go = threading.Event()

    def hang(input: str, context: str) -> str:
        let_go.wait()
        return "late"

    tools = [tool_named("T", hang), tool_named("U", hang)]
    load = lambda: Toolformer(lm, tools, max_rows=4, tool_timeout_s=0.2, tool_workers=2)  # noqa: E731
    with running(load, max_rows=4) as server:
        assert _failures(_ask_many(server.url, 12)) == {"timeout"}
        let_go.set()


def test_an_engine_that_fails_begins_anew(lm: TransformersLM, caplog: pytest.LogCaptureFixture) -> None:
    with model_server(lm) as server:
        with failing_model(server, times=1):
            first = httpx.post(f"{server.url}/v1/completions", json=body_of(toolformer={"k": 0}))
            assert (first.status_code, first.json()["error"]["code"]) == (503, "stopped")
            until(lambda: httpx.post(f"{server.url}/v1/completions", json=body_of()).status_code == 200, "an answer")
        assert server.engine_thread.taken == 0
        assert "toolformer_engine_restarts_total 1.0" in httpx.get(f"{server.url}/metrics").text
    assert "out of memory" in caplog.text


def test_an_engine_that_keeps_failing_must_write_a_token(lm: TransformersLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.engine_thread._PAUSE_S", 0.01)
    pauses: list[float] = []
    with model_server(lm) as server:
        thread = server.engine_thread
        wait = thread._ended.wait
        monkeypatch.setattr(thread._ended, "wait", lambda pause_s: pauses.append(pause_s) or wait(pause_s))
        with failing_model(server):
            for failures in (1, 2, 3):
                answer = httpx.post(f"{server.url}/v1/completions", json=body_of(toolformer={"k": 0}))
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopped")
                until(lambda: len(pauses) >= failures, "the failure")  # noqa: B023
                if failures < 3:
                    until(lambda: thread.state == "ready", "a new engine")
            until(lambda: len(pauses) > 5, "engines that fail before they are ready")
            assert httpx.get(f"{server.url}/health").json() == {"live": True, "ready": False, "status": "restarting"}
            refused = httpx.post(f"{server.url}/v1/completions", json=body_of())
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
        until(lambda: httpx.get(f"{server.url}/health/ready").status_code == 200, "an engine that writes")
        assert httpx.post(f"{server.url}/v1/completions", json=body_of()).status_code == 200
    assert pauses[:5] == pytest.approx([0, 0.01, 0.02, 0.04, 0.08])


def test_a_request_that_meets_a_failing_engine_may_retry(lm: TransformersLM, monkeypatch: pytest.MonkeyPatch) -> None:
    failed, go_on = threading.Event(), threading.Event()
    with model_server(lm) as server:
        engine = server.engine_thread._engine
        assert engine is not None

        def fail() -> bool:
            raise RuntimeError("out of memory")

        free = engine._cache.release  # the last that an engine does

        def release() -> None:
            free()
            failed.set()
            go_on.wait()

        monkeypatch.setattr(engine._cache, "release", release)
        monkeypatch.setattr(engine, "step", fail)
        engine.between_rounds(lambda: None)
        assert failed.wait(30)
        try:
            answer = httpx.post(f"{server.url}/v1/completions", json=body_of())
        finally:
            go_on.set()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopped")
