"""Kill a build with SIGKILL at random moments, start it again, and compare with a build that was left alone.

    python benchmarks/chaos.py --kills 10 [--runner dask] [--server URL] [--json]

Every round starts `toolformer build` in a process of its own and kills a random moment after it has committed a random
number of further shards, from none to six. What is killed is, in a random order, each as often: everything (the flow,
its workers and the server it started, which a power cut would take too), the flow alone, or, where Dask runs it, one of
its workers, after which the build is to go on by itself. A build that is done before its moment is thrown away and
begun anew. The last start is left alone. With --server all builds use that Prefect server, which saves most of their
start and is not killed. Then the two datasets must be the same files, byte for byte, every row of every stage accounted
for, no shard counted twice, and no file damaged.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tasks.settings import environment
from toolformer_core.smallworld.embedded import CORPUS
from warehouse.audit import audit
from warehouse.queries import stats
from warehouse.store import Store

__all__ = ["Report", "run"]

_PATIENCE_S = 1200.0  # a build that takes longer hangs
_STARTING_S = "600"  # a Prefect server's start; a busy machine is no failure


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    kills: int  # while a build ran
    of_all: int  # of them: the flow, its workers and its server
    of_flow: int  # ... the flow alone
    of_worker: int  # ... one Dask worker
    builds_failed: int  # builds that ended with an error after a worker's death, and went on when started again
    finished_early: int  # builds that were done before their moment came
    examples: int
    identical: bool  # same dataset version, same files, same bytes
    conserved: bool
    shards_counted_twice: int
    damaged: int  # files that are not what they were
    undisturbed_s: float
    disturbed_s: float


def _command(data: Path, documents: int, runner: str) -> list[str]:
    options = {
        "--corpus": str(CORPUS),
        "--data": str(data),
        "--limit": str(documents),
        "--tools": "calculator,calendar",
        "--shard-documents": "4",
        "--top-k": "4",
        "--draws": "2",
        "--tau-f": "calculator=0.1,calendar=0.1",
        "--runner": runner,
        "--workers": "2",
    }
    return [sys.executable, "-m", "flows.cli", "build", *(x for pair in options.items() for x in pair)]


def _place(server: str | None) -> dict[str, str]:
    """Return a build's environment."""
    named = {"PREFECT_API_URL": server} if server else {}
    return environment() | {"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": _STARTING_S} | named


def _start(command: list[str], place: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _alone(command: list[str], place: dict[str, str]) -> None:
    done = subprocess.run(command, env=place, capture_output=True, text=True, timeout=_PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(f"a build that was left alone ended with {done.returncode}:\n{done.stderr[-4000:]}")


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _kill(victims: list[psutil.Process]) -> None:
    for victim in reversed(victims):
        try:
            victim.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(victims, timeout=10)


def _commits(data: Path) -> list[Path]:
    return list((data / "commits").rglob("*.json"))


def _cstar(data: Path) -> dict[str, bytes]:
    store = Store(data)
    dataset = store.datasets()[-1]
    return {file.path: Path(store.locate(file.path)).read_bytes() for file in dataset.files}


def run(
    folder: Path,
    *,
    kills: int,
    documents: int = 24,
    seed: int = 0,
    runner: str = "threads",
    server: str | None = None,
    victims: Sequence[str] = (),
) -> Report:
    """Run the comparison in an empty folder.

    Args:
        kills: how often something is killed while a build runs.
        runner: of the builds that are killed, `threads` or `dask`.
        server: the URL of a Prefect server for all builds; None: each starts its own.
        victims: what is killed: `all`, `flow`, `worker`; default: all kinds there are.

    Raises:
        RuntimeError: a build that was left alone failed.
        subprocess.TimeoutExpired: a build hangs.
    """
    r = random.Random(seed)
    calm, wild = folder / "calm", folder / "wild"
    place, command = _place(server), _command(wild, documents, runner)
    begin = time.monotonic()
    _alone(_command(calm, documents, "threads"), place)
    undisturbed = time.monotonic() - begin
    begin = time.monotonic()
    counts: Counter[str] = Counter()
    process = _start(command, place)
    seen: list[psutil.Process] = []
    victims = victims or ("all", "flow", *(("worker",) if runner == "dask" else ()))
    next_ones: list[str] = []
    try:
        while counts["kills"] < kills and counts["early"] < kills:
            _until(process, wild, len(_commits(wild)) + r.randint(0, 6))
            try:
                process.wait(r.uniform(0.0, 0.6))
            except subprocess.TimeoutExpired:
                family = _family(process)
                seen += family
                workers = [p for p in family if _is_worker(p)]
                next_ones = next_ones or r.sample(victims, len(victims))
                if next_ones[-1] == "worker" and not workers:
                    continue  # they are starting
                what = next_ones.pop()
                _kill({"all": family, "flow": family[:1], "worker": [r.choice(workers or family)]}[what])
                counts["kills"] += 1
                counts[what] += 1
                at = f"{len(_commits(wild))} commits, {time.monotonic() - begin:.0f} s"
                print(f"kill {counts['kills']} of {kills}: {what}, {at}", file=sys.stderr, flush=True)  # noqa: T201
                if what == "worker":
                    continue
                process.wait()
            else:
                counts["early" if process.returncode == 0 else "failed"] += 1
                if process.returncode == 0:
                    shutil.rmtree(wild)  # nothing would be left to interrupt: begin anew
            process = _start(command, place)
        process.wait(_PATIENCE_S)
        _alone(command, place)
    finally:
        _kill([p for p in (*seen, *_family(process)) if p.is_running()])
    disturbed = time.monotonic() - begin
    one, other = _cstar(calm), _cstar(wild)
    keys = Store(wild).runs()[-1].commits
    return Report(
        kills=counts["kills"],
        of_all=counts["all"],
        of_flow=counts["flow"],
        of_worker=counts["worker"],
        builds_failed=counts["failed"],
        finished_early=counts["early"],
        examples=sum(file.rows for file in Store(wild).datasets()[-1].files),
        identical=one == other,
        conserved=stats(wild / "warehouse.duckdb").conserved,
        shards_counted_twice=len(keys) - len({(k.stage, k.tool, k.shard) for k in keys}),
        damaged=len(audit(Store(wild))) + len(list(Store(wild).files.walk("quarantine"))),
        undisturbed_s=round(undisturbed, 1),
        disturbed_s=round(disturbed, 1),
    )


def _until(process: subprocess.Popen[bytes], data: Path, goal: int) -> None:
    """Wait until there are so many commits, or the build has ended."""
    until = time.monotonic() + _PATIENCE_S
    while process.poll() is None and len(_commits(data)) < goal:
        if time.monotonic() > until:
            raise subprocess.TimeoutExpired(process.args, _PATIENCE_S)
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--documents", type=int, default=24)
    parser.add_argument("--runner", choices=("threads", "dask"), default="threads")
    parser.add_argument("--server", help="URL of a Prefect server, e.g. http://127.0.0.1:4200/api")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), kills=a.kills, documents=a.documents, seed=a.seed, runner=a.runner, server=a.server)
    for name, value in asdict(report).items():
        print(f"{name:<22} {value}")  # noqa: T201
    if a.json:
        print(json.dumps(asdict(report)))  # noqa: T201
    if not (report.identical and report.conserved and report.shards_counted_twice + report.damaged == 0):
        sys.exit(1)


if __name__ == "__main__":
    main()
