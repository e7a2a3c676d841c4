"""What a publish costs after a few new commits on top of many.

    python benchmarks/scale/publish.py [--commits 1_000 10_000] [--changed 256] [--repeats 3] [--json]

For each number of commits a data folder is written by the store, with rows as `benchmarks/ask.py` makes them but few in
each shard. A run has used all commits and goes on: `--changed` more are recorded in the catalog, and the snapshot is
published as a flow's refresh does it. Then it is published as at the end of a run, where all files are looked at, and
anew, as `toolformer reconcile` does it; both must show the same rows. `growth` is the cost at the last number of
commits over that at the first. Files are not flushed to disk while the data folder is written, only when publishing.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.ask import put_commit, write_shard
from benchmarks.report import parser_of, print_json, progress, say
from warehouse.catalog import Catalog
from warehouse.commits import Commit, DataFile, Run
from warehouse.snapshot.publish import publish
from warehouse.store import Store

__all__ = ["measure"]

_DOCUMENTS = 2  # per shard


@contextmanager
def _without_fsync() -> Iterator[None]:
    """Leave out fsync while the data folder is written, which would take most of the time."""
    real = os.fsync
    os.fsync = lambda _: None
    try:
        yield
    finally:
        os.fsync = real


def _grow(store: Store, catalog: Catalog, keys: list[Any], commits: int, first_shard: int) -> int:
    """Write so many more commits and record them with the run, which goes on; return the number of the next shard."""
    new, files = list[Commit](), list[DataFile]()
    shard = first_shard
    with _without_fsync():
        while len(new) < commits:
            file, made = write_shard(store.root, shard, _DOCUMENTS)
            files.append(file)
            new += made
            shard += 1
        new.append(put_commit(store, "ingest", "", f"corpus-{shard}", None, (), files=tuple(files)))
    catalog.record(new)
    keys += [commit.key for commit in new]
    started = datetime(2024, 1, 1, tzinfo=UTC).isoformat()
    catalog.record_run(Run("r", "build-dataset", started, None, "running", {}, "bench.jsonl", "none", tuple(keys)))
    return shard


def _timed(action: Callable[[], Path]) -> dict[str, float]:
    begin, cpu = time.perf_counter(), time.process_time()
    snapshot = action()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"seconds": round(seconds, 3), "cpu_s": round(cpu, 3), "mb": round(snapshot.stat().st_size / 1e6, 2)}


def _contents(snapshot: Path) -> dict[str, Any]:
    """Return for each table its rows' number and digest; slots and homes are numbered as they came."""
    numbered = {
        "slots": "SELECT commit_id, tool, shard FROM facts.slots",
        "gains": "SELECT commit_id, g.* EXCLUDE (slot) FROM facts.gains AS g JOIN facts.slots USING (slot)",
        "gain_bins": "SELECT commit_id, b.* EXCLUDE (slot) FROM facts.gain_bins AS b JOIN facts.slots USING (slot)",
        "homes": "SELECT path, digest, shard FROM facts.homes",
        "places": "SELECT doc_id, path FROM facts.places JOIN facts.homes USING (home)",
    }
    with duckdb.connect(str(snapshot), read_only=True) as connection:
        names = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'facts' AND table_name <> 'about' ORDER BY ALL"
        ).fetchall()
        return {
            name: connection.execute(
                f"SELECT count(*), bit_xor(hash(t)) FROM ({numbered.get(name, f'FROM facts.{name}')}) AS t"
            ).fetchall()
            for (name,) in names
        }


def measure(commits: int, changed: int, repeats: int) -> dict[str, Any]:
    """Return what publishing costs on top of so many commits."""
    with tempfile.TemporaryDirectory(prefix="toolformer-publish-") as folder:
        data, other = Path(folder, "data"), Path(folder, "anew")
        store, keys = Store(data), list[Any]()
        with Catalog(data / "catalog.duckdb") as catalog:
            begin = time.perf_counter()
            shard = _grow(store, catalog, keys, commits, 0)
            progress(f"{len(keys):,} commits written in {time.perf_counter() - begin:.0f} s")
            publish(store, catalog, data, recheck=False)
            refreshes = []
            for _ in range(repeats):
                shard = _grow(store, catalog, keys, changed, shard)
                refreshes.append(_timed(lambda: publish(store, catalog, data, recheck=False)))
            nothing = _timed(lambda: publish(store, catalog, data, recheck=False))
            end = _timed(lambda: publish(store, catalog, data))
            anew = _timed(lambda: publish(store, catalog, other, anew=True))
            same = _contents(data / "warehouse.duckdb") == _contents(other / "warehouse.duckdb")
    refresh = {name: statistics.median(one[name] for one in refreshes) for name in refreshes[0]}
    return {
        "commits": len(keys),
        "shards": shard,
        "changed": changed,
        "refresh": refresh,
        "nothing_changed": nothing,
        "end_of_run": end,
        "anew": anew,
        "same_contents": same,
    }


def main() -> None:
    """Measure each number of commits, and print a table."""
    parser = parser_of(__doc__)
    parser.add_argument("--commits", type=int, nargs="+", default=[1_000, 10_000], help="commits that are there")
    parser.add_argument("--changed", type=int, default=256, help="commits that a refresh adds")
    parser.add_argument("--repeats", type=int, default=3, help="refreshes, of which the median counts")
    args = parser.parse_args()
    found = [measure(n, args.changed, args.repeats) for n in args.commits]
    say(f"{'commits':>9} {'':16} {'seconds':>9} {'CPU s':>8} {'MB':>8}")
    for one in found:
        for name in ("refresh", "nothing_changed", "end_of_run", "anew"):
            cost = one[name]
            label = f"{one['changed']} more" if name == "refresh" else name.replace("_", " ")
            say(f"{one['commits']:>9,} {label:16} {cost['seconds']:>9.3f} {cost['cpu_s']:>8.3f} {cost['mb']:>8.2f}")
        say(f"{'':9} the same rows as anew: {'yes' if one['same_contents'] else 'NO'}")
    growth = {
        name: {unit: round(found[-1][name][unit] / found[0][name][unit], 2) for unit in found[0][name]}
        for name in ("refresh", "nothing_changed", "end_of_run", "anew")
    }
    say(f"growth of a refresh: {growth['refresh']}")
    if args.json:
        print_json({"sizes": found, "growth": growth, "load": round(os.getloadavg()[0], 1)})
    if not all(one["same_contents"] for one in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
