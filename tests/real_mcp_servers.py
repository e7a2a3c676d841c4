"""MCP servers that others wrote, installed on demand, and questions to them whose answers are known: `make test-mcp`.

    python -m tests.real_mcp_servers [FOLDER] [--calls 200]      # FOLDER keeps what was installed

    mcp-server-time, mcp-server-git                     Python, SDK 2
    mcp-server-calculator                               Python, SDK 1, in a virtual environment of its own
    a server of a few lines over HTTP                   the same
    @modelcontextprotocol/server-everything             JavaScript, on pipes and over HTTP; needs node and npm

Installing needs the package registries; what cannot be installed is no success. Where git, node or npm is missing, the
row says so, and the server is left out. The exit status is 1 if an answer was wrong or missing.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Question:
    """An input to a tool, and what its response, or the reason of its failure, must match."""

    tool: str
    input: str
    answer: str  # a regular expression, found anywhere
    fails: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one server."""

    server: str
    says: str = ""  # its name and version
    questions: int = 0
    calls: int = 0
    ms_per_call: float = 0.0
    right: bool = False
    skipped: bool = False
    note: str = ""


class _Missing(Exception):
    """A program that this machine has not got."""


class _NotInstalled(Exception):
    """A server that could not be installed or started."""


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


def ask_all(folder: Path, calls: int, threads: int) -> list[Row]:
    """Install the servers into a folder, unless they are there, ask them, and time a number of calls to each."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, serve, questions in (
        ("mcp-server-time", _time, _TIME),
        ("mcp-server-git", _git, ()),
        ("mcp-server-calculator (SDK 1)", _calculator, _CALCULATOR),
        ("server-everything", _everything, _EVERYTHING),
        ("server-everything over HTTP", _everything_http, _EVERYTHING),
        ("a server over HTTP (SDK 1)", _sdk1_http, _SDK1_QUESTIONS),
    ):
        with ExitStack() as stack:
            try:
                reference, more = stack.enter_context(serve(folder))
                rows.append(_ask(name, reference, (*questions, *more), calls, threads))
            except _Missing as exc:
                rows.append(Row(name, skipped=True, note=str(exc)))
            except _NotInstalled as exc:
                rows.append(Row(name, note=str(exc)))
    return rows


def _ask(name: str, reference: str, questions: tuple[Question, ...], calls: int, threads: int) -> Row:
    from toolformer_core.errors import ToolformerError
    from toolformer_core.records import ToolFailure
    from toolformer_core.tools.mcp import SessionLimits, close, mcp_tool

    limits = SessionLimits(sessions=2)
    try:
        tools = {q.tool: mcp_tool(f"{reference}#{q.tool}", sessions=limits) for q in questions}
        for question in questions:
            result = tools[question.tool].run(question.input)
            fails = isinstance(result, ToolFailure)
            said = f"{result.reason}: {result.detail}" if isinstance(result, ToolFailure) else result.text
            if fails is not question.fails or not re.search(question.answer, said, re.DOTALL):
                return Row(name, note=f"{question.tool}({question.input}) answered {said[:200]!r}")
        first = questions[0]
        start = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            results = list(pool.map(lambda _: tools[first.tool].run(first.input), range(calls)))
        ms = 1000 * (time.perf_counter() - start) / calls
        wrong = [r for r in results if isinstance(r, ToolFailure) or not re.search(first.answer, r.text, re.DOTALL)]
        note = f"{len(wrong)} of {calls} calls went wrong: {wrong[0]}" if wrong else ""
        told = tools[first.tool].definition
        return Row(name, f"{told.server} {told.version}", len(questions), calls, round(ms, 1), not wrong, note=note)
    except ToolformerError as exc:
        return Row(name, note=str(exc))
    finally:
        close()


Serving = Iterator[tuple[str, tuple[Question, ...]]]


@contextmanager
def _time(folder: Path) -> Serving:
    program = _python(folder / "sdk2", "mcp-server-time", "mcp-server-time", "mcp-server-git")
    yield f"mcp+stdio:{program} --local-timezone Etc/UTC", ()


@contextmanager
def _git(folder: Path) -> Serving:
    if shutil.which("git") is None:
        raise _Missing("git is not installed")
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
    port = _free_port()
    words = ["node", "--require", str(hook), str(_npm(folder)), "streamableHttp"]
    with _listening(words, "listening", {"PORT": str(port)}):
        yield f"mcp+http://127.0.0.1:{port}/mcp", ()


@contextmanager
def _sdk1_http(folder: Path) -> Serving:
    _python(folder / "sdk1", "mcp-server-calculator", "mcp<2", "mcp-server-calculator")
    script = folder / "sdk1_http.py"
    script.write_text(_SDK1)
    port = _free_port()
    with _listening([str(folder / "sdk1" / "bin" / "python"), str(script), str(port)], "Uvicorn running", {}):
        yield f"mcp+http://127.0.0.1:{port}/mcp", ()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


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
                raise _NotInstalled(f"{words[0]} ended before it listened")
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
            raise _Missing(f"{program} is not installed")
    package = "@modelcontextprotocol/server-everything"
    script = folder / "npm" / "node_modules" / package / "dist" / "index.js"
    if not script.is_file():
        _run(["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder / "npm"), package])
    return script


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=_INSTALL_S)
    if done.returncode:
        raise _NotInstalled(f"{' '.join(words[:3])} ... failed: {(done.stderr.strip() or done.stdout.strip())[-300:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="of installed servers (default: temporary)")
    parser.add_argument("--calls", type=int, default=200, help="of each server")
    parser.add_argument("--threads", type=int, default=24)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="real-mcp-") as temporary:
        rows = ask_all((given.folder or Path(temporary)).resolve(), given.calls, given.threads)
    for row in rows:
        result = "skipped" if row.skipped else "right" if row.right else "WRONG"
        sys.stdout.write(
            f"{result:8}{row.server:34}{row.says:34}{row.questions:3} questions  {row.calls:5} calls  "
            f"{row.ms_per_call:7.1f} ms/call  {row.note}\n"
        )
    return int(not all(row.right or row.skipped for row in rows) or all(row.skipped for row in rows))


if __name__ == "__main__":
    sys.exit(main())
