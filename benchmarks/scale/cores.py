"""All cores of a CPU machine for annotation: one process with threads against a Dask worker of one thread a core.

    python benchmarks/scale/cores.py [--documents 240] [--repeats 3] [--json]

Builds of the embedded corpus with the embedded model, each in a new folder by the command `toolformer build`:

    threads   one process; the model's operations use all cores
    dask      as many workers as cores, of one thread each
    pinned    the same, each worker on a core of its own (TOOLFORMER_PIN_WORKERS=1)

each alone, and beside one process that computes without end. Documents per second are by the flow's own seconds, with
the start of its workers and without that of Prefect's server; CPU seconds are those of the command and all its
processes, starts included. Of the repeats, which take turns, the fastest counts. All builds must give the same dataset.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from toolformer_core.embedded import CORPUS

ROOT = Path(__file__).resolve().parents[2]
_WAYS = ("threads", "dask", "pinned")


@dataclass(frozen=True, slots=True)
class Measured:
    """One build."""

    way: str  # threads, dask, pinned
    beside: bool  # a process that computes without end
    documents_per_second: float
    cpu_seconds: float
    version: str  # the dataset's digest


def _allowed() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def build(documents: int, folder: Path, way: str, *, beside: bool) -> Measured:
    """Build so many documents, and return what it took.

    Raises:
        SystemExit: the build failed.
    """
    cores = _allowed()
    options = {
        "corpus": CORPUS,
        "data": folder,
        "limit": documents,
        "tools": "calculator,calendar",
        "shard-documents": max(1, documents // (8 * cores)),
        "top-k": 4,
        "draws": 2,
        "tau-f": "calculator=0,calendar=0",
        "runner": "threads" if way == "threads" else "dask",
        "workers": cores,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    own = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "TOOLFORMER_PIN_WORKERS": str(int(way == "pinned"))}
    command = [sys.executable, "-m", "cli.main", "build", *words, "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, cwd=folder.parent, env={**os.environ, **own}, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ended.stderr[-2000:]}")
    result = json.loads(ended.stdout)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(way, beside, round(documents / result["seconds"], 2), round(cpu, 1), result["version"])


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """Have one process compute without end while this block runs, if wanted."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _say(line: str, place: TextIO | None = None) -> None:
    (place or sys.stdout).write(f"{line}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=240)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    asked = parser.parse_args()
    best: dict[tuple[bool, str], Measured] = {}
    versions = set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(asked.repeats):
            for beside in (False, True):
                for way in _WAYS:
                    with busy(beside):
                        one = build(asked.documents, Path(folder) / f"{way}-{beside}-{number}", way, beside=beside)
                    versions.add(one.version)
                    best[beside, way] = max(best.get((beside, way), one), one, key=lambda m: m.documents_per_second)
                    _say(f"{way}{' beside another' * beside}: {asdict(one)}", sys.stderr)
    _say(f"{asked.documents} documents, {_allowed()} cores")
    _say(f"{'':<8} {'alone':>22} {'beside a busy process':>28}")
    for way in _WAYS:
        alone, shared = best[False, way], best[True, way]
        _say(
            f"{way:<8} {alone.documents_per_second:8.2f}/s {alone.cpu_seconds:7.1f} s CPU"
            f" {shared.documents_per_second:12.2f}/s {shared.cpu_seconds:7.1f} s CPU"
        )
    _say(f"the same dataset: {'yes' if len(versions) == 1 else 'NO'}")
    if asked.json:
        builds = [asdict(one) for one in best.values()]
        _say(
            json.dumps(
                {"documents": asked.documents, "cores": _allowed(), "same": len(versions) == 1, "builds": builds}
            )
        )
    if len(versions) != 1:
        sys.exit(1)


if __name__ == "__main__":
    main()
