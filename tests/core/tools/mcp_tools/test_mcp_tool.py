"""What a tool of an MCP server answers, and what is known of it."""

import json
import pickle
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.types import CallToolResult

from tests.core.tools.mcp_tools.conftest import SUPPORT, sessions_end
from tests.support.mcp_by_hand import TOOLS, ByHand
from tests.support.served_app import served
from toolformer_core.errors import ToolError, UnknownNameError, UsageError
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult
from toolformer_core.tools.base import REMOTE_TTL_S, ToolLimits, limits_of, ttl_of
from toolformer_core.tools.mcp import MCPSettings, MCPTool, SessionLimits, close, mcp_tool
from toolformer_core.tools.mcp.tool import MAX_TEXT_CHARS, result_of

MakeTool = Callable[..., MCPTool]
PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
SOUND = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "name": "a", "uri": "https://example.org/a"}
FILE = {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "in a file"}}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_answers_from_a_server(by_hand: MakeTool) -> None:
    assert by_hand("echo").run("one, two=3") == ToolResponse("one, two=3")
    assert by_hand("repeat").run('text="ab, times=9", times=2') == ToolResponse("ab, times=9ab, times=9")
    assert by_hand("structured").run("") == ToolResponse('{"a":1,"b":[2,3]}')
    assert len(by_hand("long").run("").text) == 100_000  # type: ignore[union-attr]
    assert by_hand("failing").run("it") == ToolFailure("tool_error", "cannot do it")
    assert by_hand("refused").run("") == ToolFailure("invalid_input", "these arguments will not do")
    lax = by_hand("lax").run("")
    assert isinstance(lax, ToolFailure)
    assert (lax.reason, lax.retryable) == ("invalid_response", False)


def test_a_bad_input_never_reaches_the_server(by_hand: MakeTool) -> None:
    tool = by_hand("repeat", sessions=SessionLimits(connect_s=20))
    assert tool.run("text=a") == ToolFailure("invalid_input", "times is missing: write text=..., times=...")
    assert tool.run("text=a, times=0") == ToolFailure("invalid_input", "times: 0 is less than the minimum of 1")


def test_an_unknown_tool_is_named_with_the_nearest_one_of_all_pages(by_hand: MakeTool) -> None:
    with pytest.raises(UnknownNameError, match=r"'ecko'. Did you mean 'echo'\?") as caught:
        by_hand("ecko")
    assert set(caught.value.valid) == set(TOOLS)  # several pages of 5


def test_what_a_tool_says_of_itself(by_hand: MakeTool) -> None:
    tool = by_hand("echo")
    assert (tool.key, tool.name, tool.description) == ("echo", "Echo", "Does echo.")  # the first paragraph
    assert (tool.definition.server, tool.definition.version) == ("by-hand", "7")
    assert tool.form.template == "text"
    assert ttl_of(tool) == REMOTE_TTL_S
    assert limits_of(tool) == ToolLimits(at_once=32, timeout_s=30)
    named = by_hand("echo", name="Parrot", limits=ToolLimits(at_once=2))
    assert (named.key, named.name, limits_of(named).at_once) == ("parrot", "Parrot", 2)


def test_the_fingerprint_holds_no_secret(by_hand: MakeTool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = by_hand("echo")
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    given = by_hand("echo", settings=MCPSettings(env=("MY_TOKEN",)), name="Parrot", limits=ToolLimits(at_once=1))
    assert given.fingerprint == tool.fingerprint  # neither secrets nor names nor limits change a response
    assert b"hunter2" not in pickle.dumps(given)


@pytest.mark.parametrize("what", ["tool", "description", "schema", "server", "version"])
def test_each_part_of_the_definition_changes_the_fingerprint(by_hand: MakeTool, what: str) -> None:
    tool = by_hand("echo")
    definition = replace(tool.definition, **{what: '{"type":"object"}'})
    assert replace(tool, definition=definition).fingerprint != tool.fingerprint


def test_the_order_of_arguments_does_not_change_the_fingerprint(by_hand: MakeTool) -> None:
    tool = by_hand("repeat")
    given = json.loads(tool.definition.schema)
    turned = {key: dict(reversed(value.items())) if key == "properties" else value for key, value in given.items()}
    definition = replace(tool.definition, schema=json.dumps(turned))
    assert definition.schema != tool.definition.schema
    assert definition.parts == tool.definition.parts


def test_a_pickled_tool_answers_elsewhere(by_hand: MakeTool) -> None:
    tool = by_hand("echo", name="Parrot", settings=MCPSettings(env=("HOME",)), limits=ToolLimits(tries=5))
    again = pickle.loads(pickle.dumps(tool))
    assert (again.fingerprint, again.name, again.limits) == (tool.fingerprint, "Parrot", tool.limits)
    again.load()
    assert again.run("hello") == ToolResponse("hello")


def test_a_server_of_another_version_is_not_loaded(by_hand: MakeTool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = MCPSettings(env=("BY_HAND_VERSION",))
    monkeypatch.setenv("BY_HAND_VERSION", "7")
    tool = by_hand("echo", settings=settings)
    tool.load()
    close()
    monkeypatch.setenv("BY_HAND_VERSION", "8")
    with pytest.raises(ToolError, match=r"the version of .*#echo has changed"):
        tool.load()


def test_a_process_gets_named_variables_and_no_others(by_hand: MakeTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    monkeypatch.setenv("OTHER_TOKEN", "hunter3")
    monkeypatch.setenv("LANG", "C.UTF-8")
    result = by_hand("environment", settings=MCPSettings(env=("MY_TOKEN",))).run("")
    assert isinstance(result, ToolResponse)
    environment = json.loads(result.text)
    assert (environment["MY_TOKEN"], environment["LANG"]) == ("hunter2", "C.UTF-8")
    assert environment["PATH"]
    assert not {"OTHER_TOKEN", "PYTHONPATH", "PYTEST_CURRENT_TEST"} & set(environment)


def test_headers_name_variables(over_http: MakeTool, http_server: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    tool = over_http("echo", settings=MCPSettings(headers={"Authorization": "MY_TOKEN"}))
    assert tool.run("hello") == ToolResponse("hello")
    assert http_server.authorizations == {"Bearer hunter2"}


def test_a_server_that_cannot_be_started_says_why_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="there is no program 'no-such-program'"):
        mcp_tool("mcp+stdio:no-such-program#echo")
    with pytest.raises(ToolError, match=r"cannot connect .* its last words: usage: hello"):
        mcp_tool("mcp+stdio:echo usage: hello#echo")  # it is no server
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    script = tmp_path / "broken.py"
    script.write_text("import os, sys; sys.exit('bad token ' + os.environ['MY_TOKEN'])")
    with pytest.raises(ToolError, match=r"its last words: bad token \$\{MY_TOKEN\}"):
        mcp_tool(f"mcp+stdio:{sys.executable} -I -S {script}#echo", settings=MCPSettings(env=("MY_TOKEN",)))


def test_a_server_that_must_be_greeted_is_started_again(by_hand: MakeTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BY_HAND_STRICT", "1")
    assert by_hand("echo", settings=MCPSettings(env=("BY_HAND_STRICT",))).run("hello") == ToolResponse("hello")


def test_a_server_that_never_greets_back_is_given_up(tmp_path: Path) -> None:
    script = tmp_path / "silent.py"
    script.write_text("import sys; sys.stdin.read()")
    with pytest.raises(ToolError, match=r"did not answer within 0\.5 s"):
        mcp_tool(f"mcp+stdio:{sys.executable} -I -S {script}#echo", sessions=SessionLimits(connect_s=0.5))
    assert sessions_end() <= 1  # with its process
    assert sessions_end() == 0


def test_an_address_without_a_server_says_so(http_server: ByHand) -> None:
    http_server.status = 401
    with pytest.raises(ToolError, match="it answered HTTP 401"):
        mcp_tool(f"mcp+{http_server.url}#echo")


@pytest.mark.parametrize(
    ("content", "structured", "result"),
    [
        ([text("one")], None, ToolResponse("one")),
        ([text("one"), PICTURE, text("two"), FILE], None, ToolResponse("one\ntwo\nin a file")),
        ([], {"result": "x"}, ToolResponse("x")),
        ([], {"a": "é", "b": {"c": None}}, ToolResponse('{"a":"é","b":{"c":null}}')),
        ([PICTURE, SOUND, PICTURE], None, ToolFailure("not_text", "the tool answered with audio, image, and no text")),
        ([], None, ToolFailure("no_result", "the tool answered with nothing")),
    ],
)
def test_what_an_answer_becomes(content: list[dict[str, Any]], structured: Any, result: ToolResult) -> None:
    answer = CallToolResult.model_validate({"content": content, "structuredContent": structured})
    assert result_of(answer) == result


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        ([text("no such  zone")], "no such zone"),
        ([], "the tool reported an error without a text"),
        ([text("x" * 10_000)], "x" * 500),
    ],
)
def test_an_answer_marked_as_error_is_a_failure_for_good(content: list[dict[str, Any]], detail: str) -> None:
    answer = CallToolResult.model_validate({"content": content, "isError": True})
    assert result_of(answer) == ToolFailure("tool_error", detail, retryable=False)


def test_a_long_text_is_cut() -> None:
    # 60,000 + newline + the 39,999 characters that are left of 100,000; the third text has no room at all
    blocks = [text("a" * 60_000), text("b" * 10_000_000), text("c")]
    result = result_of(CallToolResult.model_validate({"content": blocks}))
    assert result == ToolResponse("a" * 60_000 + "\n" + "b" * 39_999)
    structured = CallToolResult.model_validate({"content": [], "structuredContent": {"result": "a" * 200_000}})
    assert result_of(structured) == ToolResponse("a" * MAX_TEXT_CHARS)


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
