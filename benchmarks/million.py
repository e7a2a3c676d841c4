"""A million short documents through a real build: what a document costs in CPU time, and whether anything grows.

    python benchmarks/million.py --documents 100000 [1000000] [--kills 5] [--json]

A corpus is made up, with two sums in every text, and built for one tool, the calculator, with a stub for the language
model that answers at once: two calls of every document are executed and scored. Each size runs in a process of its own,
through the same flow, Prefect server and settings as `toolformer build`. See docs/scale.md.

    cpu_seconds    of the process and of its Prefect server, from their start to their end
    peak_mb        the most memory that the flow's process has held
    growth         the largest build's CPU seconds divided by the smallest one's

With --kills every size is built a second time, and this build is killed with SIGKILL so often, at moments that --seed
decides, and started again; both builds must have the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.stubs.million import SumsLM, write_corpus
from tasks.environment import environment

CORPUS, DATA = "corpus.jsonl", "data"
_EXPLAINED = 20  # documents
_POLL_S = 0.5
_PATIENCE_S = 6 * 3600.0  # a build that takes longer hangs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[20_000], help="sizes")
    parser.add_argument("--shard-documents", default="256", help="documents a shard, or auto")
    parser.add_argument("--workers", type=int, default=4, help="tasks at a time, as in toolformer build")
    parser.add_argument("--kills", type=int, default=0, help="build again, killed so often")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which the build is killed")
    parser.add_argument("--folder", type=Path, help="an empty folder that is kept (default: a temporary one)")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)  # one build, in this process, of the corpus there
    a = parser.parse_args()
    if a.here is not None:
        print(json.dumps(build(a.here, a.shard_documents, a.workers)), flush=True)  # noqa: T201
        import atexit

        atexit._run_exitfuncs()  # as the command line leaves
        os._exit(0)
    reports = []
    for size in sorted(a.documents):
        with tempfile.TemporaryDirectory() as temporary:
            folder = (a.folder or Path(temporary)) / str(size)
            folder.mkdir(parents=True)
            reports.append(measure(size, folder, a))
        print(_table(reports[-1]), flush=True)  # noqa: T201
    out: dict[str, Any] = dict(reports[-1])
    if len(reports) > 1:
        out["growth"] = round(reports[-1]["cpu_seconds"] / reports[0]["cpu_seconds"], 2)
        out["memory_growth"] = round(reports[-1]["peak_mb"] / reports[0]["peak_mb"], 3)
        out["smaller"] = reports[:-1]
        print(f"growth {out['growth']}, of memory {out['memory_growth']}")  # noqa: T201
    if a.json:
        print(json.dumps(out))  # noqa: T201
    if not all(report.get("identical", True) for report in reports):
        sys.exit(1)


def measure(documents: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Build the documents in an empty folder, and once more with kills if these are requested."""
    write_corpus(folder / CORPUS, documents)
    begin = time.perf_counter()
    process = _start(folder, options)
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
    if options.kills:
        report |= _killed(documents, folder, options, digests(data))
    return report


def build(folder: Path, shard_documents: str, workers: int) -> dict[str, Any]:
    """Build the folder's corpus in this process, as `toolformer build` does; return what it cost."""
    from tasks.environment import prepare_environment

    prepare_environment()  # as the command line does before anything else
    from flows.build_dataset.parameters import BuildParameters
    from flows.build_dataset.resolve import resolve

    parameters = BuildParameters(
        corpus=str(folder / CORPUS),
        data=str(folder / DATA),
        tools=["calculator"],
        top_k=2,
        draws=1,
        shard_documents=shard_documents if shard_documents == "auto" else int(shard_documents),
        workers=workers,
    )
    spec = resolve(parameters)
    prepare_environment(parameters.data)
    from flows.runtime.server import start_server, wait_for_server

    start_server()
    from benchmarks.stubs.overhead import use_in_builds
    from flows.build_dataset.flow import run_build
    from flows.forms.resolved import use_resolved
    from flows.runtime.ledger import reporting_to

    use_in_builds(SumsLM())

    def progress(stage: str, finished: int, total: int, done: object) -> None:
        if finished == total or finished % 100 == 0:
            held = f"{time.process_time():8.1f} s CPU {psutil.Process().memory_info().rss / 1e6:6.0f} MB"
            print(f"{held}  {stage} {finished}/{total}", file=sys.stderr, flush=True)  # noqa: T201

    wait_for_server()
    with reporting_to(progress), use_resolved((parameters, spec)):
        result = run_build(parameters)
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


def _start(folder: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start a build in a session of its own, so that it and its server can be killed together."""
    command = [sys.executable, "-m", "benchmarks.million", "--here", str(folder)]
    command += ["--shard-documents", options.shard_documents, "--workers", str(options.workers)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, start_new_session=True)


def _sizes(data: Path) -> dict[str, int]:
    def size(pattern: str) -> int:
        return sum(path.stat().st_size for path in data.glob(pattern) if path.is_file())

    return {
        "snapshot_bytes": size("warehouse.duckdb"),
        "catalog_bytes": size("catalog.duckdb*"),
        "prefect_bytes": size("**/prefect.db*"),
        "commits": sum(1 for _ in data.glob("commits/*/*/*.json")),
    }


def _killed(documents: int, folder: Path, options: argparse.Namespace, expected: dict[str, str]) -> dict[str, Any]:
    """Build the corpus in another folder, with kills; compare what came of it."""
    own = folder / "killed"
    own.mkdir()
    os.link(folder / CORPUS, own / CORPUS)
    chosen = random.Random(options.seed)
    commits = sum(1 for _ in (folder / DATA).glob("commits/*/*/*.json"))
    moments = sorted(chosen.sample(range(1, commits), options.kills))
    begin, kills = time.perf_counter(), []
    for moment in moments:
        process = _start(own, options)
        if _reached(process, own / DATA, moment):
            kills.append(sum(1 for _ in (own / DATA).glob("commits/*/*/*.json")))
            os.killpg(process.pid, signal.SIGKILL)
            print(f"killed at {kills[-1]:,} of {commits:,} commits", file=sys.stderr, flush=True)  # noqa: T201
        process.communicate()
    process = _start(own, options)
    process.communicate(timeout=_PATIENCE_S)
    if process.returncode != 0:
        raise RuntimeError(f"the build that had been killed ended with {process.returncode}")
    found = digests(own / DATA)
    return {
        "kills": kills,
        "killed_seconds": round(time.perf_counter() - begin, 1),
        "identical": found == expected,
        "digests": expected,
        **({} if found == expected else {"digests_of_killed": found}),
    }


def _reached(process: subprocess.Popen[bytes], data: Path, commits: int) -> bool:
    """Wait until a build has a number of commits; return False if it has ended before."""
    deadline = time.monotonic() + _PATIENCE_S
    while sum(1 for _ in data.glob("commits/*/*/*.json")) < commits:
        try:
            process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise
        else:
            return False
    return True


def _table(report: dict[str, Any]) -> str:
    lines = []
    for name, value in report.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        lines.append(f"{name:<24}{value:>16,}" if number else f"{name:<24}  {value}")
    return "\n".join(lines) + "\n"


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
