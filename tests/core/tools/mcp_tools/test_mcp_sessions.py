"""Sessions are shared, replaced and discarded; no call waits for ever, and nothing is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.core.tools.mcp_tools.conftest import BY_HAND, sessions_end
from tests.support.mcp_by_hand import ByHand
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult
from toolformer_core.tools.base import ToolLimits
from toolformer_core.tools.mcp import MCPTool, SessionLimits, close
from toolformer_core.tools.mcp.loop import loop_thread

MakeTool = Callable[..., MCPTool]
QUICKLY = ToolLimits(timeout_s=0.2)
ROOT = Path(__file__).resolve().parents[4]


def text_of(result: ToolResult) -> str:
    assert isinstance(result, ToolResponse), result
    return result.text


def reason_of(result: ToolResult) -> tuple[str, bool]:
    assert isinstance(result, ToolFailure), result
    return result.reason, result.retryable


@pytest.fixture(params=["by_hand", "over_http"])
def make(request: pytest.FixtureRequest) -> MakeTool:
    """A tool of the server written by hand, on pipes and over HTTP."""
    tool: MakeTool = request.getfixturevalue(request.param)
    return tool


def test_a_tool_that_never_answers_runs_out_of_time(make: MakeTool) -> None:
    never, echo = make("never", limits=QUICKLY), make("echo")
    assert reason_of(never.run("")) == ("timeout", True)
    assert text_of(echo.run("still here")) == "still here"


def test_a_call_ends_in_time_even_if_the_sdk_does_not(by_hand: MakeTool, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging: list[asyncio.Event] = []

    async def call_tool(*_: object, **__: object) -> None:
        hanging.append(asyncio.Event())
        while not hanging[0].is_set():
            with suppress(asyncio.CancelledError):  # it cannot even be cancelled
                await hanging[0].wait()

    echo = by_hand("echo", limits=QUICKLY)
    with monkeypatch.context() as patch:
        patch.setattr("mcp.Client.call_tool", call_tool)
        assert reason_of(echo.run("hello")) == ("timeout", True)
    assert text_of(by_hand("echo").run("hello")) == "hello"
    loop_thread().loop.call_soon_threadsafe(hanging[0].set)


def test_a_call_waits_for_a_free_session_no_longer_than_its_own_time(over_http: MakeTool, http_server: ByHand) -> None:
    alone = SessionLimits(sessions=1, calls_at_once=1)
    hold, echo = over_http("hold", sessions=alone), over_http("echo", sessions=alone)
    hurried = over_http("echo", sessions=alone, limits=QUICKLY)
    with ThreadPoolExecutor() as threads:
        held = threads.submit(hold.run, "")
        assert http_server.arrived.acquire(timeout=10)
        assert reason_of(hurried.run("no room")) == ("timeout", True)
        http_server.let_go.set()
        assert text_of(held.result(10)) == "held"
    assert text_of(echo.run("room")) == "room"
    assert http_server.opened == 1


@pytest.mark.parametrize("how", ["die", "kill"])
def test_a_server_that_dies_fails_its_calls_at_once_and_is_started_again(by_hand: MakeTool, how: str) -> None:
    pid, hold, die = by_hand("pid"), by_hand("hold"), by_hand("die")
    first = int(text_of(pid.run("")))
    with ThreadPoolExecutor() as threads:
        held = [threads.submit(hold.run, "") for _ in range(3)]
        if how == "die":
            assert reason_of(die.run("")) == ("unreachable", True)
        else:
            os.kill(first, signal.SIGKILL)
        assert {reason_of(call.result(10)) for call in held} == {("unreachable", True)}
    second = int(text_of(pid.run("")))
    assert second != first
    assert not psutil.pid_exists(first)


def test_a_server_that_dies_between_two_calls_fails_neither(by_hand: MakeTool) -> None:
    pid = by_hand("pid")
    first = int(text_of(pid.run("")))
    os.kill(first, signal.SIGKILL)
    assert sessions_end() == 1  # noticed while nobody asks
    assert int(text_of(pid.run(""))) != first


def test_a_connection_that_breaks_during_a_call_is_opened_again(over_http: MakeTool, http_server: ByHand) -> None:
    never, echo = over_http("never"), over_http("echo")
    with ThreadPoolExecutor() as threads:
        call = threads.submit(never.run, "")
        assert http_server.arrived.acquire(timeout=10)
        http_server.break_connections()
        assert reason_of(call.result(10)) == ("unreachable", True)
    assert text_of(echo.run("again")) == "again"


@pytest.mark.parametrize("forgotten", [(404, -32600), (404, -32001), (400, -32000)])
def test_a_forgotten_session_is_replaced(over_http: MakeTool, http_server: ByHand, forgotten: tuple[int, int]) -> None:
    http_server.forgotten = forgotten
    echo = over_http("echo")
    http_server.sessions.clear()  # it was started anew
    assert text_of(echo.run("hello")) == "hello"
    assert http_server.opened == 2


@pytest.mark.parametrize("tool", ["closed", "late"])  # -32000, -32001: the SDK's for a lost connection and a timeout
def test_what_a_server_refuses_is_its_answer_whatever_the_code(make: MakeTool, tool: str) -> None:
    assert make(tool).run("") == ToolFailure("tool_error", "the database is down", retryable=False)


@pytest.mark.parametrize("tool", ["half", "latin", "shapeless"])  # half a surrogate pair; no UTF-8; no JSON-RPC
def test_an_answer_that_cannot_be_read_fails_its_call_at_once_and_no_other(make: MakeTool, tool: str) -> None:
    assert reason_of(make(tool, limits=QUICKLY).run("")) == ("invalid_response", False)
    assert text_of(make("echo").run("still here")) == "still here"


def test_a_line_that_is_no_message_is_not_logged(by_hand: MakeTool, caplog: pytest.LogCaptureFixture) -> None:
    assert text_of(by_hand("noisy").run("")) == "said"
    assert caplog.records == []  # a traceback for each of three lines


def test_the_patterns_of_an_output_schema_are_bounded(by_hand: MakeTool) -> None:
    checked = by_hand("checked")
    assert text_of(checked.run("aaa")) == "aaa"
    started = time.process_time()
    failure = checked.run("a" * 26 + "!")
    assert time.process_time() - started < 1.5
    assert reason_of(failure) == ("invalid_response", False)
    assert "does not match" in failure.detail  # type: ignore[union-attr]
    assert reason_of(checked.run("none")) == ("invalid_response", False)  # no structured content at all


def test_a_server_that_is_busy_may_be_asked_later(over_http: MakeTool, http_server: ByHand) -> None:
    echo = over_http("echo")
    http_server.status = 503
    failure = echo.run("hello")
    assert failure == ToolFailure("unreachable", "the server answered HTTP 503", retryable=True)
    assert reason_of(echo.run("hello")) == ("unreachable", True)  # no new session either
    http_server.status = 0
    assert text_of(echo.run("hello")) == "hello"


def test_many_threads_share_few_sessions(make: MakeTool, http_server: ByHand) -> None:
    repeat, pid = make("repeat"), make("pid")
    with ThreadPoolExecutor(32) as threads:
        results = list(threads.map(lambda n: text_of(repeat.run(f"text={n}x, times=2")), range(320)))
        pids = {text_of(result) for result in threads.map(lambda _: pid.run(""), range(64))}
    assert results == [f"{n}x{n}x" for n in range(320)]
    assert len(pids) <= 4
    assert http_server.opened <= 4
    assert [thread.name for thread in threading.enumerate()].count("mcp-loop") == 1


def test_there_are_no_more_sessions_than_allowed(over_http: MakeTool, http_server: ByHand) -> None:
    hold = over_http("hold", sessions=SessionLimits(sessions=2, calls_at_once=3))
    with ThreadPoolExecutor(10) as threads:
        held = [threads.submit(hold.run, "") for _ in range(10)]
        for _ in range(6):  # 2 sessions with 3 calls each; 4 wait
            assert http_server.arrived.acquire(timeout=10)
        assert http_server.opened == 2
        http_server.let_go.set()
        assert [text_of(call.result(10)) for call in held] == ["held"] * 10
    assert http_server.opened == 2


def test_all_who_wait_learn_that_there_is_no_server(over_http: MakeTool, http_server: ByHand) -> None:
    echo = over_http("echo")
    close()
    http_server.refuses_sessions = True
    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda _: reason_of(echo.run("hello")), range(16)))
    assert set(results) == {("unreachable", True)}


def test_closing_fails_calls_in_progress_and_the_next_one_starts_anew(over_http: MakeTool, http_server: ByHand) -> None:
    never, echo = over_http("never"), over_http("echo")
    with ThreadPoolExecutor() as threads:
        call = threads.submit(never.run, "")
        assert http_server.arrived.acquire(timeout=10)
        close()
        assert reason_of(call.result(10)) == ("unreachable", True)
    close()  # twice is once
    assert text_of(echo.run("again")) == "again"


_OTHERS: set[psutil.Process] = set()


@pytest.fixture(autouse=True)
def _children_of_earlier_tests() -> None:
    """Tests that ran before in this process may have left a server, e.g. Prefect's: it is not counted."""
    _OTHERS.clear()
    _OTHERS.update(psutil.Process().children(recursive=True))


def children() -> list[psutil.Process]:
    """Return the processes that this test has started and that are still there."""
    return [child for child in psutil.Process().children(recursive=True) if child not in _OTHERS]


@pytest.mark.parametrize("times", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_nothing_is_left_of_closed_sessions(make: MakeTool, http_server: ByHand, times: int) -> None:
    echo = make("echo")

    def used_up(number: int) -> tuple[int, int]:
        for _ in range(number):
            assert text_of(echo.run("hello")) == "hello"
            close()
        return len(children()), psutil.Process().num_fds()

    before, after = used_up(3), used_up(times)
    assert before[0] == after[0] == 0
    # the server over HTTP is in this process: a connection that it has not yet closed counts, too
    assert after[1] - before[1] <= (8 if http_server.opened else 0)


def test_a_forked_process_has_sessions_of_its_own(by_hand: MakeTool) -> None:
    pid = by_hand("pid")
    first = text_of(pid.run(""))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12: this process has threads
        child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            os.write(writing, text_of(pid.run("")).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        second = stream.read()
    os.waitpid(child, 0)
    assert second.isdigit()
    assert second != first
    assert text_of(pid.run("")) == first


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)"])
def test_servers_end_with_the_interpreter(ending: str) -> None:
    script = f"""
    from toolformer_core.tools.mcp import mcp_tool
    print(mcp_tool({f"mcp+stdio:{BY_HAND}#pid"!r}).run("").text, flush=True)
    {ending}
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True, timeout=60
    )
    server = psutil.Process(int(done.stdout)) if psutil.pid_exists(int(done.stdout)) else None
    if server is not None:  # a process that is killed closes nothing, but its pipes end
        server.wait(10)
    assert done.stderr == ""


@pytest.mark.slow
def test_a_server_that_will_not_end_is_made_to(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text(
        "import signal, sys, threading\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"sys.path.insert(0, {str(ROOT / 'tests' / 'support')!r})\n"
        "import mcp_by_hand\n"
        "mcp_by_hand.run_on_pipes()\n"
        "threading.Event().wait()\n"
    )
    from toolformer_core.tools.mcp import mcp_tool

    server = int(text_of(mcp_tool(f"mcp+stdio:{sys.executable} -I -S {script}#pid").run("")))
    close()
    assert not psutil.pid_exists(server)


def test_a_server_that_may_be_stuck_is_left(by_hand: MakeTool) -> None:
    never, pid = by_hand("never", limits=QUICKLY), by_hand("pid")
    first = text_of(pid.run(""))
    never.run("")
    assert text_of(pid.run("")) != first
