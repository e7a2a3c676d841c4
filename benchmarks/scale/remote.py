"""How much of a data folder on S3 the local disk holds, and how fast questions are answered from there.

    python benchmarks/scale/remote.py [--mb 100] [--json]

A local S3 server (moto, on loopback) takes shards as `benchmarks/ask.py` makes them, until there are so many megabytes;
the snapshot is published after every eighth shard as a flow's refresh does it, and once as at the end of a run. Then
the questions are asked, each in a new connection; `fetched` is what the server sent for it. The package moto is needed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from benchmarks.ask import put_commit, write_shard
from benchmarks.report import parser_of, print_json, progress, say
from warehouse.catalog import Catalog
from warehouse.commits import Run, digest
from warehouse.explain import explain
from warehouse.files.remote import RemoteFiles
from warehouse.queries import gain_histogram, samples, stats, yield_by_threshold
from warehouse.queries.guarded import run_query
from warehouse.snapshot.publish import publish
from warehouse.store import Store
from warehouse.what_if import CallFilter, what_if

__all__ = ["measure"]

_DOCUMENTS, _CHARACTERS = 512, 2000
_ANNOTATED = 26  # of them have 40 calls each: two scored calls a document, as builds of prose with three tools had
_REFRESH = 8  # shards
_TAU = dict.fromkeys(("calculator", "calendar", "mt", "qa", "wikisearch"), 0.5)


@contextmanager
def _server() -> Iterator[str]:
    """Yield the URL of a folder in a new bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        query = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
        filesystem, _ = pafs.FileSystem.from_uri(f"s3://bench?{query}&allow_bucket_creation=true")
        filesystem.create_dir("bench")
        yield f"s3://bench/c4?{query}"
    finally:
        server.stop()


def _write(store: Store, url: str, megabytes: float) -> tuple[float, int]:
    """Write shards and publish them; return the megabytes and the number of shards."""
    commits, files, shard, written = [], [], 0, 0
    with Catalog(store.local_folder / "catalog.duckdb", store=store) as catalog:
        while written < megabytes * 1e6:
            file, made = write_shard(url, shard, _DOCUMENTS, _CHARACTERS, _ANNOTATED)
            shard += 1
            files.append(file)
            commits += made
            written += file.bytes + sum(one.bytes for commit in made for one in commit.files)
            catalog.record(made)
            if shard % _REFRESH == 0:
                publish(store, catalog, store.local_folder, recheck=False)
        commits.append(put_commit(store, "ingest", "", "corpus", None, (), files=tuple(files)))
        catalog.record(commits[-1:])
        run = Run("r", "build-dataset", "2024", "2024", "completed", {}, "b", "m", tuple(one.key for one in commits))
        store.write_run(run)
        catalog.record_run(run)
        publish(store, catalog, store.local_folder)
    return written / 1e6, shard


def measure(megabytes: float) -> dict[str, Any]:
    """Return sizes, and for each question its seconds and the megabytes that were fetched."""
    fetched = [0]
    real = RemoteFiles.get_range

    def counting(self: RemoteFiles, path: str, start: int, length: int) -> bytes | None:
        data = real(self, path, start, length)
        fetched[0] += len(data or b"")
        return data

    with tempfile.TemporaryDirectory(prefix="toolformer-remote-") as folder, contextlib.chdir(folder), _server() as url:
        store = Store(url)
        written, shards = _write(store, url, megabytes)
        progress(f"{written:.1f} MB in {shards} shards written")
        here = {path.name: path.stat().st_size / 1e6 for path in Path(folder).rglob("*") if path.is_file()}
        snapshot = store.local_folder / "warehouse.duckdb"
        RemoteFiles.get_range = counting  # type: ignore[method-assign]
        before, after = CallFilter(_TAU), CallFilter({**_TAU, "qa": 1.2})
        sql = "SELECT tool, count(*), avg(gain) FROM scored GROUP BY tool"
        questions: dict[str, Callable[[], Any]] = {
            "yields": lambda: yield_by_threshold(snapshot),
            "stats": lambda: stats(snapshot),
            "histogram": lambda: gain_histogram(snapshot),
            "what-if": lambda: what_if(snapshot, before, after),
            "explain": lambda: explain(snapshot, digest(b"1/7")),
            "samples": lambda: samples(snapshot),
            "sql": lambda: _query(snapshot, sql),
        }
        answers = {}
        for name, ask in questions.items():
            fetched[0], begin = 0, time.perf_counter()
            ask()
            answers[name] = {"seconds": round(time.perf_counter() - begin, 2), "fetched_mb": round(fetched[0] / 1e6, 2)}
        RemoteFiles.get_range = real  # type: ignore[method-assign]
    local = sum(here.values())
    return {
        "remote_mb": round(written, 1),
        "shards": shards,
        "local_mb": round(local, 2),
        "share": round(local / written, 4),
        "local_files": {name: round(size, 2) for name, size in here.items()},
        "answers": answers,
    }


def _query(snapshot: Path, sql: str) -> list[Any]:
    with run_query(snapshot, sql) as rows:
        return list(rows)


def main() -> None:
    """Write, ask, and print a table."""
    parser = parser_of(__doc__)
    parser.add_argument("--mb", type=float, default=100.0, help="megabytes of data files")
    args = parser.parse_args()
    found = measure(args.mb)
    say(f"{found['remote_mb']} MB there, {found['local_mb']} MB here: {100 * found['share']:.1f} %")
    for name, answer in found["answers"].items():
        say(f"{name:10} {answer['seconds']:>7.2f} s {answer['fetched_mb']:>8.2f} MB fetched")
    if args.json:
        print_json(found)


if __name__ == "__main__":
    main()
