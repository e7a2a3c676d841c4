"""Real builds beside what `simulation.py` predicts of them, and the memory that a finished shard takes.

The builds on Dask are those of `gpu_wait.py`: a stub waits in the place of the model and of the tool, so what is
predicted is the queueing: three tasks at a card, one worker beside it, a tool that answers slowly, and Prefect's and
Dask's own CPU time on the cores that nothing else uses. The constants are those of `limits.py`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import resource
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report import say
from benchmarks.scale.limits import constants_of
from benchmarks.scale.simulation import simulate
from benchmarks.scale.world import Stage, World
from flows.cost.defaults import SINGLE
from flows.cost.sample import UNITS, Sample, read_sample
from tasks.run_shard import ShardResult
from warehouse.commits import CommitKey, DataFile, RowCounts
from warehouse.store import Store

__all__ = ["compare", "result_bytes", "waiting_world"]

ROOT = Path(__file__).resolve().parents[2]
_MS, _SHARD = 20.0, 50
_RUNS = ((800, 200.0), (500, 1000.0))  # documents, the tool's milliseconds


def waiting_world(documents: int, tool_ms: float, cores: int = 2) -> World:
    """Return the world of `gpu_wait.py`: one card, one other worker, one call of the tool for each document.

    Args:
        documents: of the corpus.
        tool_ms: of a call.
        cores: of this machine that nothing else uses; flow, server, scheduler and workers share them.
    """
    value = {name: constant.value for name, constant in constants_of({}).items()}
    ms = 0.001
    stages = (
        Stage("prefilter", "calculator", cpu_s=0.13 * ms),  # as overhead.py's commits say
        Stage("sample", "calculator", cpu_s=0.28 * ms, model_s=_MS * ms),
        Stage("execute", "calculator", cpu_s=0.08 * ms, calls=1.0, call_s=tool_ms * ms),
        Stage("score", "calculator", cpu_s=0.03 * ms, model_s=0.01 * ms),
        Stage("assemble", "", cpu_s=0.07 * ms),
    )
    return World(
        documents=documents,
        shard_documents=_SHARD,
        stages=stages,
        cards=1,
        workers=1,
        submit_s=value["submit_s"],
        task_cpu_s=value["dask_cpu_s"],
        cores=cores,
        note_s=value["commit_ms"] * ms,
    )


def _real(documents: int, tool_ms: float) -> tuple[dict[str, float], int]:
    """Return what `gpu_wait.py` measured, and how many cores other processes left it meanwhile."""
    options = [
        "--documents",
        str(documents),
        "--ms",
        str(_MS),
        "--tool-ms",
        str(tool_ms),
        "--shard-documents",
        str(_SHARD),
    ]
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu_wait.py"), *options, "--json"]
    began, others = time.perf_counter(), _others_cpu_s()
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    taken = (_others_cpu_s() - others) / (time.perf_counter() - began)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ended.stderr[-2000:]}")
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found, max(1, round((os.cpu_count() or 1) - taken))


def _others_cpu_s() -> float:
    """Return the CPU seconds that this machine has spent so far, but for those of this process's ended children."""
    times, own = psutil.cpu_times(), resource.getrusage(resource.RUSAGE_CHILDREN)
    return float(times.user + times.nice + times.system - own.ru_utime - own.ru_stime)


def compare(folder: Path | None) -> dict[str, Any]:
    """Run two real builds on Dask; print and return what was predicted and what was measured.

    Args:
        folder: what `plan_check.py --keep` left; its two smallest builds predict the others. None: there is none.
    """
    rows: list[dict[str, Any]] = []
    for documents, tool_ms in _RUNS:
        real, cores = _real(documents, tool_ms)
        outcome = simulate(waiting_world(documents, tool_ms, cores))
        name = f"Dask, {documents} documents, tool {tool_ms:g} ms"
        say(f"{name}: other processes left {cores} cores")
        rows.append({"run": name, "figure": "span, s", "predicted": outcome.card_span_s, "real": real["span_s"]})
        rows.append({"run": name, "figure": "card busy", "predicted": outcome.card_busy, "real": real["busy_share"]})
    if folder is not None:
        rows += _threads(folder)
    say(f"{'':<36}{'':<12}{'predicted':>10}{'real':>10}{'off':>8}")
    for row in rows:
        row["off"] = row["predicted"] / row["real"] - 1
        say(f"{row['run']:<36}{row['figure']:<12}{row['predicted']:>10.3g}{row['real']:>10.3g}{row['off']:>+8.1%}")
    return {"rows": rows}


def _threads(folder: Path) -> list[dict[str, Any]]:
    """Predict the makespan of the builds that `plan_check.py` left, but for the two smallest.

    Those two tell what a simulation of their CPU seconds cannot know: the time until the model answers (imports,
    weights), and how many seconds on the clock a CPU second takes beside what else runs.

    Raises:
        SystemExit: there are fewer than three.
    """
    found = [(data, sample) for data in sorted(folder.iterdir()) if (sample := read_sample(str(data))) is not None]
    if len(found) < 3:
        raise SystemExit(f"{folder} holds {len(found)} finished builds; two tell the start and the pace of a third")
    found.sort(key=lambda pair: pair[1].documents)
    smallest = found[0][1]
    simulated = [simulate(_thread_world(smallest, sample.documents)).makespan_s for _, sample in found]
    real = [_makespan(data) for data, _ in found]
    pace = (real[1] - real[0]) / (simulated[1] - simulated[0])
    start = real[0] - pace * simulated[0]
    say(f"threads: {start:.1f} s until the model answers, {pace:.2f} s on the clock for a CPU second")
    return [
        {
            "run": f"threads, {found[i][1].documents} documents",
            "figure": "makespan, s",
            "predicted": start + pace * simulated[i],
            "real": real[i],
        }
        for i in range(2, len(found))
    ]


def _thread_world(sample: Sample, documents: int) -> World:
    """Return the world of a build in threads: one model, and the rest computes beside it."""
    order = [*UNITS, "assemble"]
    stages = [
        Stage(stage, tool, cpu_s=t.own_cpu / sample.documents, model_s=t.model_cpu / sample.documents)
        for (stage, tool), t in sample.totals.items()
        if stage in order
    ]
    stages.sort(key=lambda stage: (not stage.tool, stage.tool, order.index(stage.name)))
    shards = next(t.commits for (stage, _), t in sample.totals.items() if stage == "assemble")
    return World(
        documents=documents,
        shard_documents=round(sample.documents / shards),
        stages=tuple(stages),
        workers=32,
        shared=True,
        dask=False,
        submit_s=SINGLE["thread_task_s"].value,
    )


def _makespan(data: Path) -> float:
    run = [run for run in Store(data).runs() if run.state == "completed"][-1]
    began, ended = (dt.datetime.fromisoformat(text) for text in (run.started, run.finished or run.started))
    return (ended - began).total_seconds()


def result_bytes(shards: int = 20_000) -> float:
    """Return the bytes of memory that a finished shard takes: its result, and its key in the ledger."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    results, keys, noted = [], [], set()
    for number in range(shards):
        key = CommitKey("sample", "calculator", f"part-{number:05d}", f"{number:032x}")
        file = DataFile(
            f"shards/sample/calculator/part-{number:05d}-{number:016x}.parquet", f"{number:032x}", 256, 9000
        )
        counts = (
            RowCounts("documents", 256, 200, {f"no_call{number % 3}": 56}),
            RowCounts("draws", 900, 800, {"x": 100}),
        )
        results.append(ShardResult(key, (file,), counts, 1.0 + number, False))
        keys.append(key)
        noted.add(key)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return taken / len(results)
