"""Servers built with the SDK itself, as most are, on pipes and over HTTP."""

import shlex
import sys
from collections.abc import Iterator

import pytest

from tests.core.tools.mcp_tools.conftest import SUPPORT
from tests.support.served_app import served
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.mcp import mcp_tool

SCRIPT = SUPPORT / "mcp_with_sdk.py"
ON_PIPES = f"mcp+stdio:{shlex.join([sys.executable, str(SCRIPT)])}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server over HTTP in a thread of this process."""
    from tests.support.mcp_with_sdk import make_server

    with served(make_server().streamable_http_app(), lifespan="on") as at:
        yield f"mcp+http://{at}/mcp"


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
