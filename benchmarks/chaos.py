"""Kill a build with SIGKILL at random moments, start it again, and compare with a build that was left alone.

    python benchmarks/chaos.py --kills 10 [--json]

Every round starts `toolformer build` in a process of its own and kills it (and the server it started, which a power cut
would take too) a random moment after it has committed a random number of further shards, from none to six; a build that
is done before its moment is thrown away and begun anew. The last start is left alone. Then the two datasets must be the
same files, byte for byte, and every row of every stage accounted for.
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
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from toolformer_core.smallworld.embedded import CORPUS
from warehouse.queries import stats
from warehouse.store import Store

__all__ = ["Report", "run"]


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    kills: int  # builds that were killed while they ran
    finished_early: int  # builds that were done before their moment came
    examples: int
    identical: bool  # same dataset version, same files, same bytes
    conserved: bool
    shards_counted_twice: int
    undisturbed_s: float
    disturbed_s: float


def _command(data: Path, documents: int) -> list[str]:
    options = {
        "--corpus": str(CORPUS),
        "--data": str(data),
        "--limit": str(documents),
        "--tools": "calculator,calendar",
        "--shard-documents": "4",
        "--top-k": "4",
        "--draws": "2",
        "--tau-f": "calculator=0.1,calendar=0.1",
    }
    return [sys.executable, "-m", "flows.cli", "build", *(x for pair in options.items() for x in pair)]


def _kill(process: subprocess.Popen[bytes]) -> None:
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for member in reversed(family):
        member.send_signal(signal.SIGKILL)
    process.wait()
    psutil.wait_procs(family, timeout=10)


def _commits(data: Path) -> list[Path]:
    return list((data / "commits").rglob("*.json"))


def _cstar(data: Path) -> dict[str, bytes]:
    store = Store(data)
    dataset = store.datasets()[-1]
    return {file.path: Path(store.locate(file.path)).read_bytes() for file in dataset.files}


def run(folder: Path, *, kills: int, documents: int = 24, seed: int = 0) -> Report:
    """Run the comparison in an empty folder.

    Raises:
        subprocess.CalledProcessError: a build that was left alone failed.
    """
    r = random.Random(seed)
    calm, wild = folder / "calm", folder / "wild"
    begin = time.monotonic()
    subprocess.run(_command(calm, documents), check=True, capture_output=True)
    undisturbed = time.monotonic() - begin
    begin = time.monotonic()
    killed = early = 0
    while killed < kills and early < kills:
        goal = len(_commits(wild)) + r.randint(0, 6)
        process = subprocess.Popen(_command(wild, documents), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(_commits(wild)) < goal:
            time.sleep(0.02)
        try:
            process.wait(r.uniform(0.0, 0.6))
            early += 1
            shutil.rmtree(wild)  # nothing would be left to interrupt: begin anew
        except subprocess.TimeoutExpired:
            _kill(process)
            killed += 1
    subprocess.run(_command(wild, documents), check=True, capture_output=True)
    disturbed = time.monotonic() - begin
    one, other = _cstar(calm), _cstar(wild)
    keys = Store(wild).runs()[-1].commits
    return Report(
        kills=killed,
        finished_early=early,
        examples=sum(file.rows for file in Store(wild).datasets()[-1].files),
        identical=one == other,
        conserved=stats(wild / "warehouse.duckdb").conserved,
        shards_counted_twice=len(keys) - len({(k.stage, k.tool, k.shard) for k in keys}),
        undisturbed_s=round(undisturbed, 1),
        disturbed_s=round(disturbed, 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--documents", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), kills=a.kills, documents=a.documents, seed=a.seed)
    for name, value in asdict(report).items():
        print(f"{name:<22} {value}")  # noqa: T201
    if a.json:
        print(json.dumps(asdict(report)))  # noqa: T201
    if not (report.identical and report.conserved and report.shards_counted_twice == 0):
        sys.exit(1)


if __name__ == "__main__":
    main()
