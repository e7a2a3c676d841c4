"""MCP servers that others wrote, fetched from the package registries, answer as is known: `make test-mcp`.

The variable MCP names a folder that keeps what was installed. What cannot be installed fails; without git, node or npm
a test is skipped.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from ops.ports import free_port
from toolformer_core.records import ToolFailure, ToolResult
from toolformer_core.tools.mcp import SessionLimits, close, mcp_tool

_CALLS, _THREADS = 200, 24
_INSTALL_S = 600
_LOOPBACK = """const { Server } = require("net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, ...rest.filter((x) => typeof x === "function"));
};
"""  # the server would listen on every address of this machine
_SDK1 = """import sys
from mcp.server.fastmcp import FastMCP
server = FastMCP("sdk1", host="127.0.0.1", port=int(sys.argv[1]))
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
@server.tool()
def lines(words: list[str]) -> list[str]:
    return words
@server.tool()
def fail() -> str:
    raise ValueError("on purpose")
server.run("streamable-http")
"""


class Question(NamedTuple):
    """An input to a tool, and what its response, or the reason of its failure, must match."""

    tool: str
    input: str
    answer: str  # a regular expression, found anywhere
    fails: bool = False


_TIME = (
    Question("convert_time", "source_timezone=Asia/Tokyo, time=16:30, target_timezone=Etc/UTC", r"T07:30:00\+00:00"),
    Question("get_current_time", "Europe/Paris", '"timezone": "Europe/Paris"'),
    Question("get_current_time", "Nowhere/City", "tool_error.*Nowhere", fails=True),
    Question("convert_time", "time=16:30", "invalid_input.*source_timezone, target_timezone are missing", fails=True),
)
_CALCULATOR = (
    Question("calculate", "2 + 3 * 4", "^14$"),
    Question("calculate", "(1 + 2) ** 3 / 9", r"^3(\.0)?$"),
    Question("calculate", "", "invalid_input", fails=True),
)
_EVERYTHING = (
    Question("echo", "one, two (three)", r"^Echo: one, two \(three\)$"),
    Question("get-sum", "a=2, b=40.5", r"sum of 2 and 40\.5 is 42\.5"),
    Question("get-sum", "a=two, b=3", "invalid_input.*'two' is not number", fails=True),
    Question("get-structured-content", "chicago", '"temperature"'),
    Question("get-tiny-image", "", "image"),  # texts around a picture
    Question("get-resource-links", "2", "resource"),
    Question("get-annotated-message", "messageType=success, includeImage=true", "success"),
    Question("get-env", "", '"PATH"'),
)
_SDK1_QUESTIONS = (
    Question("add", "b=2, a=40", "^42$"),
    Question("lines", "a, b", "^a\nb$"),
    Question("fail", "", "tool_error.*on purpose", fails=True),
)


Served = tuple[str, tuple[Question, ...]]  # a reference to the server, and questions of this folder alone
Serving = Iterator[Served]


@contextmanager
def _time(folder: Path) -> Serving:
    program = _python(folder / "sdk2", "mcp-server-time", "mcp-server-time", "mcp-server-git")
    yield f"mcp+stdio:{program} --local-timezone Etc/UTC", ()


@contextmanager
def _git(folder: Path) -> Serving:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    program = _python(folder / "sdk2", "mcp-server-git", "mcp-server-time", "mcp-server-git")
    repository = folder / "a repository, with a comma"
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir()
    who = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.org"]
    (repository / "poem.txt").write_text("roses\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "The first line"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    (repository / "poem.txt").write_text("violets\n")
    yield (
        f"mcp+stdio:{program} --repository '{repository}'",
        (
            Question("git_status", str(repository), "modified: +poem.txt"),
            Question("git_log", f"max_count=1, repo_path={repository}", "The first line"),
            Question("git_diff_unstaged", str(repository), r"\+violets"),
            Question("git_add", f'repo_path="{repository}", files=[poem.txt]', "staged"),
            Question("git_diff", f"repo_path={repository}, target=HEAD, context_lines=0", "-roses"),
            Question("git_show", f"repo_path={repository}, revision=no-such", "tool_error", fails=True),
            Question("git_log", f"repo_path={repository}, max_count=many", "invalid_input.*not integer", fails=True),
        ),
    )


@contextmanager
def _calculator(folder: Path) -> Serving:
    program = _python(folder / "sdk1", "mcp-server-calculator", "mcp<2", "mcp-server-calculator")
    yield f"mcp+stdio:{program}", ()


@contextmanager
def _everything(folder: Path) -> Serving:
    yield f"mcp+stdio:node {_npm(folder)} stdio", ()


@contextmanager
def _everything_http(folder: Path) -> Serving:
    hook = folder / "loopback.cjs"
    hook.write_text(_LOOPBACK)
    port = free_port()
    words = ["node", "--require", str(hook), str(_npm(folder)), "streamableHttp"]
    with _listening(words, "listening", {"PORT": str(port)}):
        yield f"mcp+http://127.0.0.1:{port}/mcp", ()


@contextmanager
def _sdk1_http(folder: Path) -> Serving:
    _python(folder / "sdk1", "mcp-server-calculator", "mcp<2", "mcp-server-calculator")
    script = folder / "sdk1_http.py"
    script.write_text(_SDK1)
    port = free_port()
    with _listening([str(folder / "sdk1" / "bin" / "python"), str(script), str(port)], "Uvicorn running", {}):
        yield f"mcp+http://127.0.0.1:{port}/mcp", ()


@contextmanager
def _listening(words: list[str], sign: str, variables: dict[str, str]) -> Iterator[None]:
    """A process that has written a sign to its standard error, that it listens; ended with the context."""
    process = subprocess.Popen(
        words, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    drain = threading.Thread(target=process.stderr.read)
    try:
        while sign not in (line := process.stderr.readline()):
            if not line:
                pytest.fail(f"{words[0]} ended before it listened")
        drain.start()  # it writes a line for each request
        yield
    finally:
        process.terminate()
        process.wait()
        if drain.is_alive():
            drain.join()
        process.stderr.close()


def _python(venv: Path, program: str, *packages: str) -> Path:
    """Return a program of a virtual environment, made and filled unless it is there."""
    found = venv / "bin" / program
    if not found.is_file():
        _run([sys.executable, "-m", "venv", str(venv)])
        _run([str(venv / "bin" / "pip"), "install", "--quiet", *packages])
    return found


def _npm(folder: Path) -> Path:
    """Return the script of the JavaScript server, installed unless it is there."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    package = "@modelcontextprotocol/server-everything"
    script = folder / "npm" / "node_modules" / package / "dist" / "index.js"
    if not script.is_file():
        _run(["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder / "npm"), package])
    return script


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=_INSTALL_S)
    assert done.returncode == 0, (
        f"{' '.join(words[:3])} ... failed: {(done.stderr.strip() or done.stdout.strip())[-300:]}"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = Path(os.environ.get("MCP") or tmp_path_factory.mktemp("mcp")).resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path


def _as_expected(result: ToolResult, question: Question) -> bool:
    failed = isinstance(result, ToolFailure)
    said = f"{result.reason}: {result.detail}" if isinstance(result, ToolFailure) else result.text
    return failed is question.fails and re.search(question.answer, said, re.DOTALL) is not None


@pytest.mark.parametrize(
    ("serve", "questions"),
    [
        (_time, _TIME),
        (_git, ()),
        (_calculator, _CALCULATOR),
        (_everything, _EVERYTHING),
        (_everything_http, _EVERYTHING),
        (_sdk1_http, _SDK1_QUESTIONS),
    ],
)
def test_a_server_answers_every_question_and_many_calls_at_once(
    serve: Callable[[Path], AbstractContextManager[Served]], questions: tuple[Question, ...], folder: Path
) -> None:
    with serve(folder) as (reference, more):
        questions = (*questions, *more)
        try:
            tools = {q.tool: mcp_tool(f"{reference}#{q.tool}", sessions=SessionLimits(sessions=2)) for q in questions}
            for question in questions:
                result = tools[question.tool].run(question.input)
                assert _as_expected(result, question), (question, result)
            first = questions[0]
            with ThreadPoolExecutor(_THREADS) as pool:
                results = list(pool.map(lambda _: tools[first.tool].run(first.input), range(_CALLS)))
            assert [result for result in results if not _as_expected(result, first)] == []
        finally:
            close()
