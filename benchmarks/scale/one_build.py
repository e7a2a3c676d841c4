"""One build of `million.py`, in this process: what it cost, and where the time went. It prints one JSON object.

Stages are measured by the CPU time of the threads that run their shards: commits and look-ups are in it, the stub of
the model and the tool's own threads are not. What is left of the process's CPU time is that of the flow itself, of
those threads, and of Prefect's client.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import os
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

CORPUS = "corpus.jsonl"
DATA = "data"
TOOL = "calculator"
_PLAYED = 20  # documents that are explained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="holds the corpus and gets the data folder")
    parser.add_argument("--shard-documents", default="256")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--profile", type=Path, help="write profiles of the threads that run shards, and of the flow")
    a = parser.parse_args()
    report = build(a.folder, a.shard_documents, a.workers, a.profile)
    print(json.dumps(report), flush=True)  # noqa: T201
    sys.stdout.flush()
    import atexit

    atexit._run_exitfuncs()  # as the command line leaves
    os._exit(0)


def build(folder: Path, shard_documents: str, workers: int, profile: Path | None) -> dict[str, Any]:
    """Build the folder's corpus as `toolformer build` does; return what it cost."""
    from tasks.environment import prepare_environment

    prepare_environment()  # as the command line does before anything else
    from cli.build import check_build_parameters
    from flows.build_dataset.parameters import BuildParameters

    asked = BuildParameters.model_validate(
        {
            "corpus": str(folder / CORPUS),
            "data": str(folder / DATA),
            "tools": [TOOL],
            "top_k": 2,
            "draws": 1,
            "shard_documents": shard_documents,
            "workers": workers,
        }
    )
    check_build_parameters(asked)
    prepare_environment(asked.data)
    from flows.server import start_server, wait_for_server

    start_server()
    from benchmarks.overhead_stub import use_in_builds
    from benchmarks.scale.stub import SumsLM
    from flows.build_dataset.flow import run_build
    from flows.ledger import reporting_to

    use_in_builds(SumsLM())
    stages, publishing = _measured_stages(profile is not None), _measured_publishing()

    def progress(stage: str, finished: int, total: int, done: object) -> None:
        if finished == total or finished % 100 == 0:
            held = f"{time.process_time():8.1f} s CPU {psutil.Process().memory_info().rss / 1e6:6.0f} MB"
            print(f"{held}  {stage} {finished}/{total}", file=sys.stderr, flush=True)  # noqa: T201

    wait_for_server()
    with reporting_to(progress), _profiled(profile):
        result = run_build(asked)
    if profile is not None:
        stages.write(profile)
    servers = psutil.Process().children(recursive=True)
    return {
        "version": result.version,
        "examples": result.examples,
        "skipped": result.skipped,
        "shards_done": result.done,
        "flow_cpu_seconds": round(time.process_time(), 1),
        "peak_mb": _peak_mb(os.getpid()),
        "server_peak_mb": max((_peak_mb(server.pid) for server in servers), default=0),
        "stage_cpu_seconds": stages.seconds(),
        **publishing,
    }


class _StageTimes:
    """CPU seconds of the threads that run shards, by stage."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._seconds: dict[str, float] = defaultdict(float)
        self.profiles: list[cProfile.Profile] = []

    def add(self, stage: str, seconds: float) -> None:
        with self._turn:
            self._seconds[stage] += seconds

    def seconds(self) -> dict[str, float]:
        return {stage: round(seconds, 2) for stage, seconds in self._seconds.items()}

    def write(self, path: Path) -> None:
        import pstats

        stats: pstats.Stats | None = None
        for profile in self.profiles:
            profile.create_stats()
            if stats is None:
                stats = pstats.Stats(profile)
            else:
                stats.add(profile)
        if stats is not None:
            stats.dump_stats(path.with_suffix(".shards.prof"))


def _measured_stages(profiled: bool) -> _StageTimes:
    """Have every shard's CPU time counted from now on."""
    import flows.stage_tasks

    tasks: Any = flows.stage_tasks
    run_stage: Callable[..., Any] = tasks.run_stage
    times, own = _StageTimes(), threading.local()

    def measured(stage: Any, inputs: Any) -> Any:
        begin = time.thread_time()
        try:
            if not profiled or stage.per == "source":
                return run_stage(stage, inputs)
            if not hasattr(own, "profile"):
                own.profile = cProfile.Profile(time.thread_time)
                times.profiles.append(own.profile)
            return own.profile.runcall(run_stage, stage, inputs)
        finally:
            times.add(stage.name, time.thread_time() - begin)

    tasks.run_stage = measured
    return times


@contextmanager
def _profiled(path: Path | None) -> Iterator[None]:
    """Profile the thread of the flow."""
    if path is None:
        yield
        return
    profile = cProfile.Profile(time.thread_time)
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        profile.dump_stats(path.with_suffix(".flow.prof"))


def _measured_publishing() -> dict[str, Any]:
    """Have every snapshot counted from now on; the figures are in the dict that this returns."""
    import flows.ledger

    figures: dict[str, Any] = {"published": 0, "publish_seconds": 0.0, "publish_cpu_seconds": 0.0, "publish_bytes": 0}
    ledger: Any = flows.ledger

    def measured(write: Callable[..., Any]) -> Callable[..., Any]:
        def published(*args: Any, **options: Any) -> Any:
            begin, cpu = time.perf_counter(), time.thread_time()
            path = write(*args, **options)
            figures["published"] += 1
            figures["publish_seconds"] = round(figures["publish_seconds"] + time.perf_counter() - begin, 2)
            figures["publish_cpu_seconds"] = round(figures["publish_cpu_seconds"] + time.thread_time() - cpu, 2)
            figures["publish_bytes"] += path.stat().st_size
            figures["last_publish_seconds"] = round(time.perf_counter() - begin, 2)
            return path

        return published

    ledger.publish = measured(ledger.publish)
    return figures


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
    from warehouse.explain import explain
    from warehouse.queries import rows_of, yield_by_threshold
    from warehouse.snapshot.publish import SNAPSHOT

    snapshot = data / SNAPSHOT
    begin = time.perf_counter()
    yield_by_threshold(snapshot)
    yields = time.perf_counter() - begin
    ids = [row["doc_id"] for row in rows_of(snapshot, f"SELECT doc_id FROM facts.places USING SAMPLE {_PLAYED}")]
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
