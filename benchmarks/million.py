"""A million short documents through a real build: what a document costs in CPU time, and whether anything grows.

    python benchmarks/million.py --documents 100000 [1000000] [--kills 5] [--json]

A corpus is made up, with two sums in every text, and built for one tool, the calculator, with a stub for the language
model that answers at once: two calls of every document are executed and scored. Each size runs in a process of its own,
through the same flow, Prefect server and settings as `toolformer build`. See docs/scale.md.

    cpu_seconds    of the process and of its Prefect server, from their start to their end
    peak_mb        the most memory that the flow's process has held
    growth         the largest build's CPU seconds divided by the smallest one's

With --kills every size is built a second time, and this build is killed with SIGKILL so often, at random moments, and
started again; both builds must have the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.report import parser_of, print_json, progress, say, say_figures
from benchmarks.stub_builds import build
from tasks.environment import environment
from tests.support.scripted_lm import token_starts
from toolformer_core.lm.base import Draw, DrawRequest, Scan, ScoreRequest
from toolformer_core.records import Prompt

CORPUS, DATA = "corpus.jsonl", "data"
_EXPLAINED = 20  # documents
_POLL_S = 0.5
_PATIENCE_S = 6 * 3600.0  # a build that takes longer hangs
_BATCH = 64  # texts a scan
_SUM = re.compile(r"(\d+) \w+ and (\d+) \w+, a total of (\d+)")
_RESPONSE = re.compile(r"-> \S+\]")  # in a call with one; without, the arrow stands alone
_GOODS = ("ropes", "nets", "lamps", "boats", "loaves", "barrels", "sails", "oars")


def write_corpus(path: Path, documents: int) -> None:
    """Write texts of about thirty words as JSON lines."""
    with path.open("w", encoding="utf-8") as stream:
        for n in range(documents):
            one, other, third = (_GOODS[(n * step + step) % len(_GOODS)] for step in (1, 3, 5))
            text = (
                f"On day {n} the inn sold {n + 2} {one} and {n % 97} {other}, a total of {n + 2 + n % 97} things. "
                f"Later {2 * n + 1} {third} and {n % 89} {one}, a total of {2 * n + 1 + n % 89} things, came by boat."
            )
            stream.write(json.dumps({"text": text}) + "\n")


class SumsLM:
    """A language model that wants a call in front of the result of every sum, and always draws the right one."""

    name = "sums"
    digest = "sums"

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        for at in range(0, len(texts), _BATCH):
            some = texts[at : at + _BATCH]
            yield _SumsScan(range(at, at + len(some)), some)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """A response makes what follows likely: L- - L+ is 1 nat."""
        return [_LIKELY if _RESPONSE.search(request.prefix) else _UNLIKELY for request in requests]


_LIKELY, _UNLIKELY = np.full(5, -1.0, dtype=np.float32), np.full(5, -2.0, dtype=np.float32)


class _SumsScan:
    def __init__(self, texts: Sequence[int], held: Sequence[str]) -> None:
        self.texts = texts
        self._calls: dict[tuple[int, int], Draw] = {}
        self.positions: list[NDArray[np.int64]] = []
        self.log_probs: list[NDArray[np.float32]] = []
        for index, text in zip(texts, held, strict=True):
            starts = token_starts(text)
            results = {}
            for match in _SUM.finditer(text):
                token = starts[bisect_right(starts, match.start(3)) - 1]  # a space in front belongs to it
                results[token] = Draw(f"Calculator({match[1]} + {match[2]})", True)
            self._calls |= {(index, at): draw for at, draw in results.items()}
            self.positions.append(np.array(starts, dtype=np.int64))
            self.log_probs.append(np.array([-1.0 if at in results else -20.0 for at in starts], dtype=np.float32))

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        return [self._calls[request.text, request.position] for request in requests]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--documents", type=int, nargs="+", default=[20_000], help="sizes")
    parser.add_argument("--kills", type=int, default=0, help="build again, killed so often")
    parser.add_argument("--here", type=Path, help="what a process of its own does: one build, of the corpus there")
    a = parser.parse_args()
    if a.here is not None:
        print_json(build_here(a.here))
        from cli.terminal import leave

        leave(0)  # as the command line does
    reports = []
    for size in sorted(a.documents):
        with tempfile.TemporaryDirectory() as folder:
            reports.append(measure(size, Path(folder), a.kills))
        say_figures(reports[-1])
        say()
    out: dict[str, Any] = dict(reports[-1])
    if len(reports) > 1:
        out["growth"] = round(reports[-1]["cpu_seconds"] / reports[0]["cpu_seconds"], 2)
        out["memory_growth"] = round(reports[-1]["peak_mb"] / reports[0]["peak_mb"], 3)
        out["smaller"] = reports[:-1]
        say(f"growth {out['growth']}, of memory {out['memory_growth']}")
    if a.json:
        print_json(out)
    if not all(report.get("identical", True) for report in reports):
        sys.exit(1)


def measure(documents: int, folder: Path, kills: int) -> dict[str, Any]:
    """Build the documents in an empty folder, and once more with kills if these are requested."""
    write_corpus(folder / CORPUS, documents)
    begin = time.perf_counter()
    process = _start(folder)
    said = process.stdout.read() if process.stdout else b""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"the build of {documents:,} documents ended with {process.returncode}")
    seconds, cpu = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
    report: dict[str, Any] = json.loads(said.splitlines()[-1])
    data = folder / DATA
    report = {
        "documents": documents,
        "shards": len(list((data / "shards/ingest/_").iterdir())),
        "cpu_seconds": round(cpu, 1),
        "cpu_ms_per_document": round(1000 * cpu / documents, 3),
        "seconds": round(seconds, 1),
        **report,
        "server_cpu_seconds": round(cpu - report["flow_cpu_seconds"], 1),
        **_sizes(data),
        **questions(data),
    }
    return report | _killed(folder, kills) if kills else report


def build_here(folder: Path) -> dict[str, Any]:
    """Build the folder's corpus in this process, and return what it cost."""
    parameters = {
        "corpus": str(folder / CORPUS),
        "data": str(folder / DATA),
        "tools": ["calculator"],
        "top_k": 2,
        "draws": 1,
        "shard_documents": 256,
        "workers": 4,
    }

    def report(stage: str, finished: int, total: int) -> None:
        if finished == total or finished % 100 == 0:
            held = f"{time.process_time():8.1f} s CPU {psutil.Process().memory_info().rss / 1e6:6.0f} MB"
            progress(f"{held}  {stage} {finished}/{total}")

    result = build(parameters, SumsLM(), on_shard_done=report)
    servers = psutil.Process().children(recursive=True)
    return {
        "version": result.version,
        "examples": result.examples,
        "skipped": result.skipped,
        "shards_done": result.done,
        "flow_cpu_seconds": round(time.process_time(), 1),
        "peak_mb": _peak_mb(os.getpid()),
        "server_peak_mb": max((_peak_mb(server.pid) for server in servers), default=0),
    }


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """Start a build in a session of its own, so that it and its server can be killed together."""
    command = [sys.executable, "-m", "benchmarks.million", "--here", str(folder)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, start_new_session=True)


def _commits(folder: Path) -> int:
    return sum(1 for _ in (folder / DATA).glob("commits/*/*/*.json"))


def _sizes(data: Path) -> dict[str, int]:
    def size(pattern: str) -> int:
        return sum(path.stat().st_size for path in data.glob(pattern) if path.is_file())

    return {
        "snapshot_bytes": size("warehouse.duckdb"),
        "catalog_bytes": size("catalog.duckdb*"),
        "prefect_bytes": size("**/prefect.db*"),
        "commits": _commits(data.parent),
    }


def _killed(folder: Path, kills: int) -> dict[str, Any]:
    """Build the corpus in another folder, with kills; compare what came of it."""
    own = folder / "killed"
    own.mkdir()
    os.link(folder / CORPUS, own / CORPUS)
    commits = _commits(folder)
    begin, killed_at = time.perf_counter(), []
    for moment in sorted(random.Random(0).sample(range(1, commits), kills)):
        process = _start(own)
        if _reached(process, own, moment):
            killed_at.append(_commits(own))
            os.killpg(process.pid, signal.SIGKILL)
            progress(f"killed at {killed_at[-1]:,} of {commits:,} commits")
        process.communicate()
    process = _start(own)
    process.communicate(timeout=_PATIENCE_S)
    if process.returncode != 0:
        raise RuntimeError(f"the build that had been killed ended with {process.returncode}")
    found, expected = digests(own / DATA), digests(folder / DATA)
    return {
        "kills": killed_at,
        "killed_seconds": round(time.perf_counter() - begin, 1),
        "identical": found == expected,
        "digests": expected,
        **({} if found == expected else {"digests_of_killed": found}),
    }


def _reached(process: subprocess.Popen[bytes], folder: Path, commits: int) -> bool:
    """Wait until a build has a number of commits; return False if it has ended before."""
    deadline = time.monotonic() + _PATIENCE_S
    while _commits(folder) < commits:
        try:
            process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise
        else:
            return False
    return True


def _peak_mb(pid: int) -> int:
    """Return the most memory that a living process has held so far; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return round(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024 / 1e6)


def digests(data: Path) -> dict[str, str]:
    """Return what two builds of one corpus must agree on: C*'s version, and a digest over what every commit holds."""
    from warehouse.store import Store

    store = Store(data)
    commits = hashlib.blake2b(digest_size=16)
    for commit in store.commits():
        commits.update(f"{commit.id} {commit.content_digest}\n".encode())
    dataset = store.datasets()[-1]
    files = hashlib.blake2b(digest_size=16)
    for file in dataset.files:
        content = store.files.get(file.path) or b""
        files.update(f"{file.path} {hashlib.blake2b(content, digest_size=16).hexdigest()}\n".encode())
    return {"dataset": f"{dataset.version} {files.hexdigest()}", "commits": commits.hexdigest()}


def questions(data: Path) -> dict[str, float]:
    """Return the seconds that `yield_by_threshold` and `explain` take; of the latter the median and the slowest."""
    from warehouse.queries import rows_of, yield_by_threshold
    from warehouse.queries.explain import explain
    from warehouse.snapshot.publish import SNAPSHOT

    snapshot = data / SNAPSHOT
    begin = time.perf_counter()
    yield_by_threshold(snapshot)
    yields = time.perf_counter() - begin
    ids = [
        row["doc_id"]
        for row in rows_of(snapshot, f"SELECT doc_id FROM facts.document_locations USING SAMPLE {_EXPLAINED}")
    ]
    seconds = []
    for doc_id in ids:
        begin = time.perf_counter()
        explain(snapshot, doc_id)
        seconds.append(time.perf_counter() - begin)
    return {
        "yields_seconds": round(yields, 3),
        "explain_seconds": round(statistics.median(seconds), 3),
        "slowest_explain_seconds": round(max(seconds), 3),
    }


if __name__ == "__main__":
    main()
