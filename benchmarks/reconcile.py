"""How long a data folder of many commits takes to reconcile, to be opened again, to be looked over by `gc` and `audit`.

    python benchmarks/reconcile.py [--commits 5000] [--json]

The folder is made up: one run of a thousand documents a shard has as many commits as asked for, shaped like those of a
build with five tools (each lists its parts, its inputs, two balances and a data file), and small data files, as what is
measured is the work with commits. Figures are seconds of wall clock, and of this process's CPUs (which a busy machine
does not stretch); the folder's files have just been written, so they are read from memory.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from warehouse.audit import audit
from warehouse.catalog import Catalog
from warehouse.commits import Commit, CommitKey, Dataset, RowCounts, Run, dataset_version, digest, fingerprint
from warehouse.files.base import LocalFiles
from warehouse.gc import find_garbage
from warehouse.schema import empty_table
from warehouse.snapshot.publish import publish
from warehouse.store import Store

__all__ = ["Report", "measure"]

_TOOLS = ("calculator", "calendar", "mt", "qa", "wikisearch")
_STAGES = ("prefilter", "sample", "execute", "score")


@dataclass(frozen=True, slots=True)
class Seconds:
    """What one thing took."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Report:
    """What everything took on one folder."""

    commits: int
    catalog: Seconds  # rebuilt from the commits alone
    snapshot: Seconds  # published anew
    refresh: Seconds  # ... while a run goes on, by a store that has found the files sound before
    looks: int  # at files, for the former
    looks_of_refresh: int
    reconcile: Seconds  # `toolformer reconcile`: both
    reopen: Seconds  # a flow's start on a catalog that is in step
    gc: Seconds  # what nothing refers to
    audit: Seconds  # every byte read and compared
    peak_mb: int  # resident memory


def _write(store: Store, commits: int) -> None:
    keys: list[CommitKey] = []
    created = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    per_shard = len(_TOOLS) * len(_STAGES)
    last: Commit | None = None
    for number in range(commits):
        shard, rest = divmod(number, per_shard)
        tool, stage = _TOOLS[rest // len(_STAGES)], _STAGES[rest % len(_STAGES)]
        name = f"part-{shard:05d}"
        own = digest(name.encode())
        parts = {"code": f"{stage}/1", "config": "c" * 32, "inputs": own, "model": "m" * 32, "prompt": "p" * 32}
        file = store.write(stage, tool, name, fingerprint(parts), empty_table(stage))
        balances = tuple(
            RowCounts(unit, 1000, 400, {"below": 300, "no_position": 200}, {"timeout": 60, "error": 40})
            for unit in ("documents", "draws")
        )
        last = Commit(
            stage=stage,
            stage_version="1",
            tool=tool,
            shard=name,
            fingerprint=fingerprint(parts),
            parts=parts,
            config={"tau_s": 0.05, "top_k": 5, "draws": 5, "temperature": 1.0, "seed": 0, "max_call_tokens": 64},
            files=(file,),
            inputs=(own, digest(own.encode())),
            balances=balances,
            seconds=12.5,
            counters={"lm_tokens": 100_000, "cache_hits": 12},
            host="host",
            versions=dict.fromkeys(("python", "torch", "transformers", "pyarrow", "duckdb", "prefect"), "1.2.3"),
            created=created,
            run_id="r1",
        )
        store.commit(last)
        keys.append(last.key)
    store.write_run(Run("r1", "build-dataset", created, created, "completed", {}, "corpus", "model", tuple(keys)))
    if last is not None:
        version = dataset_version(last.files)
        store.write_dataset(Dataset("cstar", version, last.files, {}, {}, "r1", "model", "corpus", created))


class _Counted(LocalFiles):
    """A folder that counts the files whose size is looked up."""

    looks = 0

    def stat(self, path: str) -> tuple[int, float] | None:
        self.looks += 1
        return super().stat(path)


def _timed(work: Callable[[], object]) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Seconds(round(time.perf_counter() - wall, 2), round(time.process_time() - cpu, 2))


def _no_flush(fd: object) -> None:
    pass


def measure(folder: Path, commits: int) -> Report:
    """Make the folder and measure."""
    flush, os.fsync = os.fsync, _no_flush  # a made-up folder need not outlive a power cut
    try:
        _write(Store(folder), commits)
    finally:
        os.fsync = flush
    path = folder / "catalog.duckdb"

    def reopen() -> None:
        with Catalog(path, store=Store(folder)):
            pass

    def reconcile() -> None:
        store = Store(folder)
        with Catalog(path, store=store, rebuild=True) as catalog:
            publish(store, catalog)

    whole = _timed(reconcile)
    with Catalog(path) as catalog:
        rebuilt = _timed(lambda: catalog.reconcile(Store(folder)))
        files = _Counted(folder)
        store = Store(folder, files=files)
        published, looks = _timed(lambda: publish(store, catalog)), files.looks
        refreshed = _timed(lambda: publish(store, catalog, recheck=False))
    return Report(
        commits=commits,
        catalog=rebuilt,
        snapshot=published,
        refresh=refreshed,
        looks=looks,
        looks_of_refresh=files.looks - looks,
        reconcile=whole,
        reopen=_timed(reopen),
        gc=_timed(lambda: find_garbage(Store(folder))),
        audit=_timed(lambda: audit(Store(folder))),
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=5000)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = measure(Path(folder), a.commits)
    for name, value in asdict(report).items():
        shown = f"{value['wall']:6.2f} s, {value['cpu']:6.2f} s of CPU" if isinstance(value, dict) else value
        print(f"{name:<16} {shown}")  # noqa: T201
    if a.json:
        print(json.dumps(asdict(report)))  # noqa: T201


if __name__ == "__main__":
    main()
