"""A million short documents through a real build: what a document costs in CPU time, and whether anything grows.

    python benchmarks/million.py --documents 100000 [1000000] [--json]

A corpus is made up, with two sums in every text, and built for one tool, the calculator, with a stub for the language
model that answers at once: two calls of every document are executed and scored. Each size runs in a process of its own,
through the same flow, Prefect server and settings as `toolformer build`. See docs/scale.md.

    cpu_seconds    of the process and of its Prefect server, from their start to their end
    peak_mb        the most memory that the flow's process has held
    growth         the largest build's CPU seconds divided by the smallest one's
"""

import json
import os
import re
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

from benchmarks.report import parser_of, peak_mib, print_json, progress, say, say_figures
from benchmarks.stub_builds import build
from tasks.environment import environment
from tests.support.scripted_lm import token_starts
from toolformer_core.lm.base import Draw, DrawRequest, Scan, ScoreRequest
from toolformer_core.records import Prompt

CORPUS, DATA = "corpus.jsonl", "data"
_EXPLAINED = 20  # documents
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
    bounds = None  # p(" [") is known everywhere

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
    parser.add_argument("--here", type=Path, help="what a process of its own does: one build, of the corpus there")
    a = parser.parse_args()
    if a.here is not None:
        print_json(build_here(a.here))
        from cli.terminal import leave

        leave(0)  # as the command line does
    reports = []
    for size in sorted(a.documents):
        with tempfile.TemporaryDirectory() as folder:
            reports.append(measure(size, Path(folder)))
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


def measure(documents: int, folder: Path) -> dict[str, Any]:
    """Build the documents in an empty folder, in a process of its own."""
    write_corpus(folder / CORPUS, documents)
    begin, before = time.perf_counter(), os.times()
    command = [sys.executable, "-m", "benchmarks.million", "--here", str(folder)]
    said = subprocess.run(command, check=True, env=environment(), stdout=subprocess.PIPE).stdout
    seconds, cpu = time.perf_counter() - begin, sum(os.times()[2:4]) - sum(before[2:4])
    report: dict[str, Any] = json.loads(said.splitlines()[-1])
    data = folder / DATA
    return {
        "documents": documents,
        "shards": len(list((data / "shards/ingest/_").iterdir())),
        "cpu_seconds": round(cpu, 1),
        "cpu_ms_per_document": round(1000 * cpu / documents, 3),
        "seconds": round(seconds, 1),
        **report,
        "server_cpu_seconds": round(cpu - report["flow_cpu_seconds"], 1),
        "snapshot_bytes": _size(data, "warehouse.duckdb"),
        "catalog_bytes": _size(data, "catalog.duckdb*"),
        "prefect_bytes": _size(data, "**/prefect.db*"),
        "commits": sum(1 for _ in data.glob("commits/*/*/*.json")),
        **questions(data),
    }


def build_here(folder: Path) -> dict[str, Any]:
    """Build the folder's corpus in this process, and return what it cost."""
    parameters = {
        "corpus": str(folder / CORPUS),
        "data": str(folder / DATA),
        "tools": ["calculator"],
        "top_k": 2,
        "samples": 1,
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


def _size(data: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in data.glob(pattern) if path.is_file())


def _peak_mb(pid: int) -> int:
    return round(peak_mib(pid) * 2**20 / 1e6)


def questions(data: Path) -> dict[str, float]:
    """Return the seconds that `yield_by_threshold` and `explain` take; of the latter the median and the slowest."""
    from warehouse.queries import rows_of, yield_by_threshold
    from warehouse.queries.explain import explain
    from warehouse.snapshot.publish import SNAPSHOT

    snapshot = data / SNAPSHOT
    begin = time.perf_counter()
    yield_by_threshold(snapshot)
    yields = time.perf_counter() - begin
    seconds = []
    for row in rows_of(snapshot, f"SELECT doc_id FROM facts.document_locations USING SAMPLE {_EXPLAINED}"):
        begin = time.perf_counter()
        explain(snapshot, row["doc_id"])
        seconds.append(time.perf_counter() - begin)
    return {
        "yields_seconds": round(yields, 3),
        "explain_seconds": round(statistics.median(seconds), 3),
        "slowest_explain_seconds": round(max(seconds), 3),
    }


if __name__ == "__main__":
    main()
