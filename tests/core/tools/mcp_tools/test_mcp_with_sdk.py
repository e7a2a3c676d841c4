"""Servers built with the SDK itself, as most are, on pipes and over HTTP."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.core.tools.mcp_tools.conftest import SUPPORT
from toolformer_core.errors import ToolError
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.base import ToolLimits
from toolformer_core.tools.mcp import MCPTool, SessionLimits, close, mcp_tool

SCRIPT = SUPPORT / "mcp_with_sdk.py"
ON_PIPES = f"mcp+stdio:{shlex.join([sys.executable, str(SCRIPT)])}"

Ask = Callable[[str], MCPTool]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server over HTTP in a thread of this process."""
    import uvicorn

    from tests.support.mcp_with_sdk import make_server

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # so that whoever connects early waits
        server = uvicorn.Server(uvicorn.Config(make_server().streamable_http_app(), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"mcp+http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        server.should_exit = True
        thread.join()


@pytest.fixture(params=["http", pytest.param("pipes", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("address")) if request.param == "http" else ON_PIPES


def test_arguments_and_answers(server: str) -> None:
    shout, add, convert = (mcp_tool(f"{server}#{tool}") for tool in ("shout", "add", "convert"))
    assert shout.run("don't, text=shout") == ToolResponse("DON'T, TEXT=SHOUT")
    assert add.run("b=2, a=40") == ToolResponse("42")
    # 10 / 0.3048 = 32.808...
    assert convert.run("value=10, unit=metre") == ToolResponse("32.81")
    assert convert.run("value=10, unit=Metre, digits=0, note=about") == ToolResponse("33 (about)")
    assert convert.run("value=10, unit=mile") == ToolFailure("invalid_input", "unit: 'mile' is not one of metre, foot")
    assert (convert.definition.server, convert.definition.version) == ("with-sdk", "1.2")
    assert convert.form.sentence == "The input is written `value=..., unit=...` (optional: digits, note)."


def test_errors_of_a_tool_are_its_own(server: str) -> None:
    failure = mcp_tool(f"{server}#divide").run("a=1, b=0")
    assert isinstance(failure, ToolFailure)
    assert (failure.reason, failure.retryable) == ("tool_error", False)


def test_many_threads_while_one_call_never_ends(server: str) -> None:
    add = mcp_tool(f"{server}#add", sessions=SessionLimits(calls=50))
    stuck = mcp_tool(f"{server}#stuck", limits=ToolLimits(timeout_s=0.5))
    with ThreadPoolExecutor(32) as threads:
        call = threads.submit(stuck.run, "")
        results = list(threads.map(lambda n: add.run(f"a={n}, b=1"), range(200)))
        assert results == [ToolResponse(str(n + 1)) for n in range(200)]
        assert call.result(30) == ToolFailure("timeout", "no answer within 0.475 s", retryable=True)


@pytest.mark.slow
def test_a_server_over_http_that_is_killed_during_a_call() -> None:
    process = subprocess.Popen([sys.executable, str(SCRIPT), "http"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        stuck, is_stuck = (mcp_tool(f"mcp+{address}#{tool}") for tool in ("stuck", "is_stuck"))
        with ThreadPoolExecutor() as threads:
            call = threads.submit(stuck.run, "")
            assert is_stuck.run("") == ToolResponse("true")
            process.kill()
            process.wait()
            failure = call.result(30)  # the call had 28.5 s; the end of the connection is noticed long before
        assert isinstance(failure, ToolFailure)
        assert (failure.reason, failure.retryable) == ("unreachable", True)
        close()
        with pytest.raises(ToolError, match="cannot connect"):
            stuck.load()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_a_server_on_pipes_that_is_killed_during_a_call() -> None:
    one = SessionLimits(sessions=1)
    stuck, is_stuck, pid = (mcp_tool(f"{ON_PIPES}#{tool}", sessions=one) for tool in ("stuck", "is_stuck", "pid"))
    with ThreadPoolExecutor() as threads:
        call = threads.submit(stuck.run, "")
        assert is_stuck.run("") == ToolResponse("true")
        first = pid.run("")
        assert isinstance(first, ToolResponse)
        os.kill(int(first.text), signal.SIGKILL)
        failure = call.result(30)
    assert isinstance(failure, ToolFailure)
    assert (failure.reason, failure.retryable) == ("unreachable", True)
    second = pid.run("")
    assert isinstance(second, ToolResponse)
    assert second != first
