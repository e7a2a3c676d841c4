"""All cores of a CPU machine for annotation: one process with threads against a Dask worker of one thread a core.

    python benchmarks/scale/cores.py [--documents 240] [--repeats 3] [--cores 1] [--json]

Builds of the embedded corpus with the embedded model, each in a new folder by the command `toolformer build`:

    threads   one process; the model's operations use all cores
    dask      as many workers as cores, of one thread each
    pinned    the same, each worker on a core of its own (TOOLFORMER_PIN_WORKERS=1)

each alone, and beside one process that computes without end. Documents per second are by the flow's own seconds, with
the start of its workers and without that of Prefect's server; CPU seconds are those of the command and all its
processes, starts included. Of the repeats, which take turns, the fastest counts. All builds must give the same texts of
C*, at the paper's thresholds; gains may be rounded differently where another number of threads sums a product.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.report import busy_processes, parser_of, print_json, progress, say
from toolformer_core.embedded import CORPUS
from toolformer_core.records import digest_of
from warehouse.store import Store

ROOT = Path(__file__).resolve().parents[2]
_WAYS = ("threads", "dask", "pinned")


@dataclass(frozen=True, slots=True)
class Measured:
    """One build."""

    way: str  # threads, dask, pinned
    beside: bool  # a process that computes without end
    documents_per_second: float
    cpu_seconds: float
    texts: str  # digest of those of C*


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
    return Measured(way, beside, round(documents / result["seconds"], 2), round(cpu, 1), _texts(folder))


def _texts(folder: Path) -> str:
    """Return a digest of the texts of the newest dataset, in any order."""
    store = Store(folder)
    tables = store.read_dataset(store.datasets()[-1], ["text"])
    return digest_of(*sorted(text for table in tables for text in table["text"].to_pylist()))[:16]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--documents", type=int, default=240)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, help="that all of this may use (default: all; with one only threads run)")
    args = parser.parse_args()
    if args.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])  # also of the processes started here
    ways = _WAYS if _allowed() > 1 else _WAYS[:1]
    best: dict[tuple[bool, str], Measured] = {}
    texts = set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.repeats):
            for beside in (False, True):
                for way in ways:
                    with busy_processes(int(beside)):
                        one = build(args.documents, Path(folder) / f"{way}-{beside}-{number}", way, beside=beside)
                    texts.add(one.texts)
                    best[beside, way] = max(best.get((beside, way), one), one, key=lambda m: m.documents_per_second)
                    progress(f"{way}{' beside another' * beside}: {asdict(one)}")
    say(f"{args.documents} documents, {_allowed()} cores")
    say(f"{'':<8} {'alone':>22} {'beside a busy process':>28}")
    for way in ways:
        alone, shared = best[False, way], best[True, way]
        say(
            f"{way:<8} {alone.documents_per_second:8.2f}/s {alone.cpu_seconds:7.1f} s CPU"
            f" {shared.documents_per_second:12.2f}/s {shared.cpu_seconds:7.1f} s CPU"
        )
    say(f"the same texts: {'yes' if len(texts) == 1 else 'NO'}")
    if args.json:
        builds = [asdict(one) for one in best.values()]
        same = len(texts) == 1
        print_json({"documents": args.documents, "cores": _allowed(), "same": same, "builds": builds})
    if len(texts) != 1:
        sys.exit(1)


if __name__ == "__main__":
    main()
