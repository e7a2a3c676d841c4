"""A tool with faults, and a tool that is slow, in a real build: does it finish, and what does it cost?

    python benchmarks/tools/tool_faults.py [--documents 3000] [--json]

Three builds through the flow, each in a process of its own, with a model that draws another call for every document:

    plain     a tool that takes 50 ms and has no fault
    faults    the same, but 30 % of its questions meet a fault, 5 % each: it hangs beyond its time limit of 1 s (at both
              tries), raises, answers nothing, 10 MB, lone surrogates, or a text full of brackets and arrows
    latency   a tool that takes 200 ms, in one shard, 32 calls at a time

    conserved   every stage has its rows, and every question its one execution
    exact       the failures are those that were put in, by reason, and no response holds a bracket
    bound       1.1 x (wall of `plain` + the time of all calls that hung / 32); the wall of `faults` must not exceed it
    speedup     calls a second while the tool is asked, as a multiple of one after another (5 a second)

The last line is a JSON object with `--json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["main", "measure"]

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
_PLACES = 32
_TIMEOUT_S, _CALL_S, _SLOW_S = 1.0, 0.05, 0.2

# One row a question: what came of it, of all shards of the build.
_EXECUTED = "SELECT input, failure, response FROM executed"
_EXECUTE_S = "SELECT sum(seconds) AS seconds, count(*) AS shards FROM shards WHERE stage = 'execute' AND current"


def measure(scenario: str, documents: int, folder: Path) -> dict[str, Any]:
    """Build a made-up corpus in this process; return the figures."""
    from tasks.environment import prepare_environment

    prepare_environment(str(folder / "data"))
    from flows.server import start_server, wait_for_server

    start_server()
    wait_for_server()  # Prefect reads its address when it is imported
    import tasks.stages.execute
    import tasks.stages.sample
    import tasks.stages.score
    from benchmarks.gpu_wait import LOG, MODEL_MS
    from benchmarks.gpu_wait_stub import WaitingLM
    from benchmarks.overhead import CORPUS, make_corpus
    from benchmarks.tools.tool_faults_stub import FaultyTool, expected_failures
    from flows.build_dataset.flow import run_build
    from flows.build_dataset.parameters import BuildParameters
    from warehouse.queries import rows_of, stats

    os.environ |= {LOG: os.devnull, MODEL_MS: "0"}
    slow = scenario == "latency"
    lm, tool = WaitingLM(), FaultyTool(_SLOW_S if slow else _CALL_S, scenario == "faults", 30.0 if slow else _TIMEOUT_S)
    sampling: Any = tasks.stages.sample
    scoring: Any = tasks.stages.score
    executing: Any = tasks.stages.execute
    sampling.model_of = scoring.model_of = lambda spec: lm
    executing.tool_of = lambda spec, key: tool
    make_corpus(folder / CORPUS, documents)
    asked = BuildParameters(
        corpus=str(folder / CORPUS),
        data=str(folder / "data"),
        tools=["calculator"],
        tau_s=0.05,
        top_k=1,
        draws=1,
        shard_documents=documents if slow else -(-documents // 2),
    )
    start = time.perf_counter()
    result = run_build(asked)
    wall = time.perf_counter() - start
    snapshot = Path(result.snapshot)
    rows = rows_of(snapshot, _EXECUTED)
    failures = [row["failure"] for row in rows if row["failure"]]
    counted = {reason: failures.count(reason) for reason in sorted(set(failures))}
    expected = expected_failures([row["input"] for row in rows]) if scenario == "faults" else {}
    figures = stats(snapshot)
    (costs,) = figures.tools
    (execute,) = rows_of(snapshot, _EXECUTE_S)
    brackets = sum(any(mark in row["response"] for mark in "[]") for row in rows)
    return {
        "questions": len(rows),
        "wall_s": round(wall, 2),
        "execute_s": round(execute["seconds"], 2),
        "calls": costs.calls,
        "calls_a_second": round(len(rows) / execute["seconds"] * execute["shards"], 1),
        "p50_ms": round(costs.p50_ms or 0.0, 1),
        "p99_ms": round(costs.p99_ms or 0.0, 1),
        "failures": counted,
        "conserved": figures.conserved and len({row["input"] for row in rows}) == len(rows) == costs.questions,
        "exact": counted == expected and brackets == 0,
        "hung_s": 2 * counted.get("timeout", 0) * _TIMEOUT_S if scenario == "faults" else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--scenario", help=argparse.SUPPRESS)  # in this process, all that is written in --here
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.here is not None:
        print(json.dumps(measure(a.scenario, a.documents, a.here)), flush=True)  # noqa: T201
        sys.stdout.flush()
        import atexit

        atexit._run_exitfuncs()  # as the command line leaves
        os._exit(0)
    reports: dict[str, Any] = {}
    for scenario in ("plain", "faults", "latency"):
        with tempfile.TemporaryDirectory(prefix="tool-faults-") as folder:
            command = [sys.executable, __file__, "--here", folder, "--scenario", scenario]
            command += ["--documents", str(a.documents)]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        reports[scenario] = json.loads(said.splitlines()[-1])
        print(f"{scenario:<8} {reports[scenario]}", flush=True)  # noqa: T201
    bound = 1.1 * (reports["plain"]["wall_s"] + reports["faults"]["hung_s"] / _PLACES)
    summary = {
        "bound_s": round(bound, 2),
        "within_bound": reports["faults"]["wall_s"] <= bound,
        "speedup": round(reports["latency"]["calls_a_second"] * _SLOW_S, 1),
        "conserved": all(report["conserved"] for report in reports.values()),
        "exact": all(report["exact"] for report in reports.values()),
    }
    for name, value in summary.items():
        print(f"{name:<14}{value!s:>10}")  # noqa: T201
    if a.json:
        print(json.dumps({**reports, **summary}))  # noqa: T201


if __name__ == "__main__":
    main()
