"""Calls to MCP servers: many over few sessions, and how much faster that is than a session for each.

    python benchmarks/tools/mcp_calls.py [--calls 10000] [--threads 24] [--baseline 100] [--json]
    python benchmarks/tools/mcp_calls.py --real [FOLDER] [--calls 200] [--json]

The first asks one small server on pipes and one over HTTP on loopback, both built with the SDK, and replaces sessions
on the way (`--session-calls`). `rss` is the memory of this process after 10, 50 and 100 % of the calls. The baseline
opens a session for each call with the SDK alone, as many at a time as there are threads.

The second installs servers that others wrote into FOLDER (a temporary one by default; a folder that is kept is not
installed into again), asks each a few questions whose answers are known, and times `--calls` calls: see `mcp_real.py`.

The exit status is 1 if an answer was wrong or missing. The last line is a JSON object with `--json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Report", "measure"]

ROOT = Path(__file__).resolve().parents[2]
SERVER = [sys.executable, str(ROOT / "benchmarks" / "tools" / "mcp_calls_server.py")]


@dataclass(frozen=True, slots=True)
class Report:
    """One server."""

    server: str
    calls: int
    wrong: int  # answers that were failures or other texts
    failures: dict[str, int]
    sessions: int  # opened
    wall_s: float
    calls_per_s: float
    p50_ms: float
    p99_ms: float
    rss_mb: tuple[int, int, int]  # after 10, 50 and 100 % of the calls
    left_over: tuple[int, int]  # child processes, threads, after closing, beyond those before
    session_per_call_per_s: float  # calls a second of the baseline
    ratio: float


@contextmanager
def _server(kind: str) -> Iterator[str]:
    """The reference of a running server."""
    if kind == "stdio":
        yield f"mcp+stdio:{shlex.join(SERVER)}"
        return
    process = subprocess.Popen([*SERVER, "http"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"mcp+{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def measure(kind: str, calls: int, threads: int, session_calls: int, baseline: int) -> Report:
    """Ask a server of a kind (`stdio` or `http`), and compare with a session for each call."""
    import threading

    import psutil

    from toolformer_core.records import ToolFailure
    from toolformer_core.tools.mcp import SessionLimits, close, mcp_tool, session_pool

    opened = _count_sessions(session_pool)
    process = psutil.Process()
    with _server(kind) as reference:
        before = len(process.children(recursive=True)), threading.active_count()
        tool = mcp_tool(f"{reference}#repeat", sessions=SessionLimits(calls=session_calls))
        seconds: list[float] = []
        failures: dict[str, int] = {}
        wrong = 0
        rss = []

        def ask(number: int) -> str:
            start = time.perf_counter()
            result = tool.run(f"text {number}")
            seconds.append(time.perf_counter() - start)
            return f"failure {result.reason}" if isinstance(result, ToolFailure) else result.text

        start = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            for number, text in enumerate(pool.map(ask, range(calls)), 1):
                if text.partition(" ")[2] != f"text {number - 1}":
                    wrong += 1
                    failures[text[:60]] = failures.get(text[:60], 0) + 1
                if number in (calls // 10, calls // 2, calls):
                    rss.append(round(process.memory_info().rss / 1e6))
        wall = time.perf_counter() - start
        close()
        left = len(process.children(recursive=True)) - before[0], threading.active_count() - before[1]
        per_s = _a_session_per_call(reference, baseline, threads)
    seconds.sort()
    return Report(
        kind,
        calls,
        wrong,
        failures,
        opened[0],
        round(wall, 1),
        round(calls / wall, 1),
        round(1000 * seconds[len(seconds) // 2], 1),
        round(1000 * seconds[len(seconds) * 99 // 100], 1),
        (rss[0], rss[1], rss[2]),
        left,
        round(per_s, 2),
        round(calls / wall / per_s, 1),
    )


def _count_sessions(module: object) -> list[int]:
    """Have the sessions counted that a pool opens."""
    from toolformer_core.tools.mcp.session import Session

    opened = [0]

    class Counted(Session):
        def __init__(self, *args: object, **more: object) -> None:
            opened[0] += 1
            super().__init__(*args, **more)  # type: ignore[arg-type]

    module.Session = Counted  # type: ignore[attr-defined]
    return opened


def _a_session_per_call(reference: str, calls: int, at_once: int) -> float:
    """Return how many calls a second are answered if each opens a session of its own."""
    from mcp import Client, StdioServerParameters

    async def one(number: int, room: asyncio.Semaphore) -> None:
        where = reference.removeprefix("mcp+")
        async with room:
            server = StdioServerParameters(command=SERVER[0], args=SERVER[1:]) if where.startswith("stdio:") else where
            async with Client(server) as client:
                answer = await client.call_tool("repeat", {"text": f"text {number}"})
                assert answer.content[0].text.endswith(f" text {number}")  # type: ignore[union-attr]

    async def every() -> None:
        room = asyncio.Semaphore(at_once)
        await asyncio.gather(*(one(number, room) for number in range(calls)))

    start = time.perf_counter()
    asyncio.run(every())
    return calls / (time.perf_counter() - start)


def _table(rows: list[dict[str, object]]) -> str:
    keys = list(rows[0])
    width = max(map(len, keys))
    return "\n".join(f"{key:{width}}  " + "  ".join(f"{row[key]!s:>22}" for row in rows) for key in keys)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, help="10000, and 200 of each real server")
    parser.add_argument("--threads", type=int, default=24)
    parser.add_argument("--session-calls", type=int, default=1000, help="after which a session is replaced")
    parser.add_argument("--baseline", type=int, default=100, help="calls with a session each")
    parser.add_argument("--only", choices=["stdio", "http"], help="one of the two servers")
    parser.add_argument("--real", nargs="?", const="", metavar="FOLDER", help="servers that others wrote")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    a = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if a.real is not None:
        return _real(a.real, a.calls or 200, a.threads, a.json)
    reports = [
        measure(kind, a.calls or 10_000, a.threads, a.session_calls, a.baseline)
        for kind in ([a.only] if a.only else ["stdio", "http"])
    ]
    print(_table([asdict(report) for report in reports]), flush=True)  # noqa: T201
    if a.json:
        print(json.dumps({"servers": [asdict(report) for report in reports]}), flush=True)  # noqa: T201
    return int(any(report.wrong for report in reports))


def _real(folder: str, calls: int, threads: int, as_json: bool) -> int:
    from benchmarks.tools.mcp_real import ask_all

    with tempfile.TemporaryDirectory(prefix="mcp-real-") as temporary:
        rows = ask_all(Path(folder or temporary).resolve(), calls, threads)
    for row in rows:
        note = f"  {row.note}" if row.note else ""
        print(  # noqa: T201
            f"{'skipped' if row.skipped else 'right' if row.right else 'WRONG':8}{row.server:34}{row.says:34}"
            f"{row.questions:3} questions  {row.calls:5} calls  {row.ms_per_call:7.1f} ms/call{note}",
            flush=True,
        )
    if as_json:
        print(json.dumps({"servers": [asdict(row) for row in rows]}), flush=True)  # noqa: T201
    return int(not all(row.right or row.skipped for row in rows) or all(row.skipped for row in rows))


if __name__ == "__main__":
    sys.exit(main())
