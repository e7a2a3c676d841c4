"""A build with a tool of a real MCP server that dies halfway, and the same command that completes it.

    python benchmarks/tools/mcp_build.py [--command mcp-server-time] [--documents 50] [--json]

The embedded model annotates documents that name a country and its day of the week; the tool is `get_current_time` of
`mcp-server-time`, started on pipes (`pip install mcp-server-time` somewhere, and name its program). Its program is
wrapped, so that it can be taken away: once half of the shards have been executed, the server is killed and cannot be
started any more. The build then ends with one line; the server is put back, and the same command goes on. Exit 1 unless
the build fails in between, completes, keeps and drops calls, and loses no row.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil

_COUNTRIES = ("Poland", "Jamaica", "Egypt", "Portugal", "Iceland", "Turkey", "Singapore", "Israel", "Japan", "Cuba")
_SHARD_DOCUMENTS = 10
_PROMPT = """Add calls to a clock where a text names a country and its day. A call is written [Clock(country)], right \
before the day that it gives. Here are some examples:

Input: In Iran it is Friday, and the shops close at six.
Output: In Iran it is [Clock(Iran)] Friday, and the shops close at six.

Input: The office in Navajo has opened: there it is Monday already.
Output: The office in Navajo has opened: there it is [Clock(Navajo)] Monday already.

Input: They called from Libya, where it was still Sunday.
Output: They called from Libya, where it was still [Clock(Libya)] Sunday.

Input: {text}
Output:
"""
# The clock's server, as long as it is there: a wrapper that a test can take away.
_WRAPPER = """#!/bin/sh
[ -e "{gone}" ] && exit 1
exec {command} --local-timezone UTC
"""


def main() -> int:
    """Run the build twice and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--command", default="mcp-server-time", help="the server's program")
    parser.add_argument("--documents", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    given = parser.parse_args()
    program = shutil.which(given.command)
    if program is None:
        sys.stderr.write(f"{given.command} is not installed: pip install mcp-server-time\n")
        return 2
    with tempfile.TemporaryDirectory() as name:
        report = _measure(Path(name), program, given.documents)
    for key, value in report.items():
        sys.stdout.write(f"{key:28} {value}\n")
    if given.json:
        sys.stdout.write(json.dumps(report) + "\n")
    return 0 if report["passed"] else 1


def _measure(folder: Path, program: str, documents: int) -> dict[str, object]:
    gone, server = folder / "gone", folder / "clock-server"
    server.write_text(_WRAPPER.format(gone=gone, command=program), "utf-8")
    server.chmod(0o755)
    (folder / "clock.txt").write_text(_PROMPT, "utf-8")
    (folder / "clock.yaml").write_text(
        f"name: Clock\nmcp: 'mcp+stdio:{server}#get_current_time'\ntau_s: 0.0\ntau_f: 0.2\n", "utf-8"
    )
    day = dt.datetime.now(dt.UTC).strftime("%A")
    texts = [
        f"{country} is far away. In {country} it is {day}, and meeting {number} begins soon."
        for number, country in zip(range(documents), _COUNTRIES * documents, strict=False)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    halfway = threading.Event()
    first, first_line = _build(folder, lambda executed: _take_away(gone, server, executed, documents, halfway))
    gone.unlink(missing_ok=True)
    second, last_line = _build(folder, lambda executed: None)
    counts = _counts(folder)
    return {
        "documents": documents,
        "first_exit": first,
        "first_says": first_line,
        "second_exit": second,
        "second_says": last_line,
        **counts,
        "passed": first == 1
        and second == 0
        and halfway.is_set()
        and all(counts[k] for k in ("kept", "dropped"))
        and bool(counts["rows_conserved"]),
    }


def _build(folder: Path, on_executed: object) -> tuple[int, str]:
    """Run the build, and call `on_executed` with the shards executed; return its exit and its last line."""
    command = [
        *(sys.executable, "-m", "cli.main", "build", "--corpus", "corpus.jsonl", "--data", "data"),
        *("--tool", "clock.yaml", "--shard-documents", str(_SHARD_DOCUMENTS), "--top-k", "6", "--draws", "6"),
        *("--workers", "1"),
    ]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(0.2):
                on_executed(len(list((folder / "data" / "commits" / "execute" / "clock").glob("*.json"))))  # type: ignore[operator]

        watcher = threading.Thread(target=watch)
        watcher.start()
        for line in process.stdout:
            lines.append(line.rstrip())
        stop.set()
        watcher.join()
    errors = [line for line in lines if line.startswith("error:")]
    return process.returncode, (errors or [line for line in lines if line] or [""])[-1]


def _take_away(gone: Path, server: Path, executed: int, documents: int, halfway: threading.Event) -> None:
    """Kill the server and keep it from starting, once half of the shards have been executed."""
    if halfway.is_set() or executed < documents // _SHARD_DOCUMENTS // 2:
        return
    halfway.set()
    gone.touch()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "--local-timezone" in words and any("mcp-server-time" in word for word in words):
            process.send_signal(signal.SIGKILL)


def _counts(folder: Path) -> dict[str, object]:
    from warehouse.queries import rows_of, stats

    snapshot = folder / "data" / "warehouse.duckdb"
    [scored] = rows_of(snapshot, "SELECT count(*) AS calls FROM scored")
    [kept] = rows_of(snapshot, "SELECT count(*) AS calls FROM kept_calls")
    balances = stats(snapshot).balances
    conserved = all(b.rows_in == b.kept + sum(b.dropped.values()) + sum(b.failed.values()) for b in balances)
    failed: dict[str, int] = {}
    for balance in balances:
        if balance.stage == "execute":
            failed = dict(balance.failed)
    return {
        "scored": scored["calls"],
        "kept": kept["calls"],
        "dropped": scored["calls"] - kept["calls"],
        "failed_calls": failed,
        "rows_conserved": conserved,
    }


if __name__ == "__main__":
    raise SystemExit(main())
