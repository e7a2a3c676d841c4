"""A small life of a warehouse, in a child that is killed, or whose disk is full, at its n-th change of the disk.

    python crashing.py kill|full store|whole FOLDER

For each n one forked child runs into step n (a write is then half done), and another does the whole again; what both
leave is compared and printed as a JSON list. `store` has no catalog, snapshot or gc.
"""

import contextlib
import errno
import itertools
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
from wh_fixtures import make_commit, make_run, table

from warehouse.catalog import Catalog
from warehouse.commits import Commit, Dataset, RowCounts, dataset_version, digest, fingerprint
from warehouse.errors import WarehouseError
from warehouse.gc import delete_garbage, find_garbage
from warehouse.queries import rows_of
from warehouse.schema import REJECTS
from warehouse.snapshot.publish import SNAPSHOT, publish
from warehouse.store import Store

LATE = 4e9  # long after all this: whatever has no commit is a dead writer's
_ROW = {"source": "f", "line": 7, "reason": "no_text", "detail": "", "raw": "{}"}
REJECTED = pa.Table.from_pylist([_ROW], schema=REJECTS)
CREATED = {"old": "2024-01-01T00:00:00+00:00", "new": "2024-02-01T00:00:00+00:00"}


def _shard(store: Store, config: str, documents: int) -> Commit:
    """One shard as `tasks.shards.run_shard.run_shard` does it; skipped if it is done."""
    parts = {"config": config}
    key = make_commit("ingest", "", "s0", parts=parts).key
    found = store.read_commit(key)
    if found is not None and not store.damage(found):
        return found
    if found is not None:
        store.quarantine(found)
    rows = [{"doc_id": f"{config}{i}", "text": "a text " * 20} for i in range(documents)]
    data = store.write("ingest", "", "s0", fingerprint(parts), table("ingest", rows))
    rejects = store.write_rejects("ingest", "", "s0", fingerprint(parts), REJECTED)
    balance = RowCounts("rows", documents + 1, documents, failed={"no_text": 1})
    commit = make_commit("ingest", "", "s0", [data, rejects], parts=parts, balances=[balance], created=CREATED[config])
    store.commit(commit)
    return commit


def life(folder: Path, whole: bool) -> None:
    """Two builds, the second in the place of the first; and what the first left is taken away."""
    store = Store(folder)
    with Catalog(folder / "catalog.duckdb", store=store) if whole else contextlib.nullcontext() as catalog:
        for config, documents in (("old", 30), ("new", 20)):
            store.write_run(make_run(config, [], started=CREATED[config], state="running"))
            commit = _shard(store, config, documents)
            if config == "new":
                files = (commit.files[0],)
                store.write_dataset(Dataset("cstar", dataset_version(files), files, {}, {}, config, "m", "c", "2024"))
            store.write_run(make_run(config, [commit.key], started=CREATED[config]))
        if catalog is not None:
            catalog.catch_up(store)
            publish(store, catalog)
            delete_garbage(store, catalog, find_garbage(store, temporary_s=0.0, now=LATE))
        else:
            store.sweep_temporary(older_than_s=0.0)


def _at_step(number: int, act: Callable[[], None]) -> Callable[[], bool]:
    """Have `act` called in the place of the n-th step; return what tells whether that many have been taken."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return count == number

    def wrap(name: str, counts: Callable[..., bool] = lambda *_, **__: True) -> None:
        real = getattr(os, name)

        def called(*args: Any, **more: Any) -> Any:
            if counts(*args, **more) and step():
                act()
            return real(*args, **more)

        setattr(os, name, called)

    for name in ("fsync", "link", "replace", "unlink"):
        wrap(name)
    wrap("mkdir", lambda path, *_, **__: not os.path.isdir(path))  # a folder that is there changes no disk
    wrap("open", lambda path, flags, *_, **__: bool(flags & os.O_EXCL))
    real_fdopen = os.fdopen

    class Half:
        """A stream that, at its step, has written half when it happens."""

        def __init__(self, stream: BinaryIO) -> None:
            self.stream = stream

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *about: object) -> None:
            self.stream.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.stream, name)

        def write(self, data: bytes) -> int:
            if not step():
                return self.stream.write(data)
            self.stream.write(data[: len(data) // 2])
            self.stream.flush()
            act()
            return 0

    os.fdopen = lambda *args, **more: Half(real_fdopen(*args, **more))  # type: ignore[assignment,arg-type]
    return lambda: count >= number


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _be_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _child(work: Callable[[], object]) -> tuple[int, str]:
    """Do something in a fork; return how it ended (0, 1, or minus a signal) and what it said."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks: nothing of ours has started a thread
        pid = os.fork()
    if pid == 0:
        os.close(reading)
        code = 1
        try:
            said = work()
            code = 0
        except WarehouseError as exc:
            said = f"{type(exc).__name__}: {exc}"
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the parent is to tell it
            said = f"unexpected {exc!r}"
        os.write(writing, json.dumps(said).encode())
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read().decode()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(said or '""')


def look(folder: Path) -> list[str]:
    """Return what is wrong with what a reader would find now."""
    store, wrong = Store(folder), []
    files = {file.path for commit in store.commits() for file in commit.files}
    for commit in store.commits():
        wrong += [f"{path} {why}" for path, why in store.damage(commit).items()]
    for dataset in store.datasets():
        wrong += [f"{file.path} is of a dataset and has no commit" for file in dataset.files if file.path not in files]
    wrong += [str(path) for path in (folder / "quarantine").rglob("*")]  # nothing was damaged
    if (folder / SNAPSHOT).exists():
        counted = "SELECT (SELECT count(*) FROM documents) AS d, (SELECT sum(rows) FROM shards WHERE current) AS s"
        (row,) = rows_of(folder / SNAPSHOT, counted)
        if (row["d"], row["s"]) != (20, 21):
            wrong.append(f"the snapshot is half written: {row}")
    return wrong


def result(folder: Path, whole: bool) -> dict[str, Any]:
    """Return what an undisturbed life and a disturbed one must agree on: all data, and what the indexes say."""
    store = Store(folder)
    paths = [path for kind in ("shards", "rejects") for path in store.files.walk(kind)]
    out: dict[str, Any] = {
        "data": {path: digest(store.files.get(path) or b"") for path in paths},
        "commits": sorted(commit.content_digest for commit in store.commits()),
        "runs": [run.to_json() for run in store.runs()],
        "datasets": [dataset.to_json() for dataset in store.datasets()],
        "temporary": list(store.files.stale_temporaries(0.0)),
    }
    if whole:
        with Catalog(folder / "catalog.duckdb") as catalog:
            facts = catalog.facts_of()
        out["facts"] = {name: sorted(str(row) for row in rows.to_pylist()) for name, rows in facts.items()}
        out["shown"] = rows_of(folder / SNAPSHOT, "SELECT stage, shard, rows, current, intact FROM shards")
    return out


def _told(work: Callable[[], object]) -> Any:
    code, said = _child(work)
    if code != 0:
        raise SystemExit(f"ended with {code}: {said}")
    return said


def disturbed(kind: str, root: Path, whole: bool) -> Iterator[dict[str, Any]]:
    """Yield of each step how the child ended and what it said, what was wrong then, and if all was well in the end."""
    act = _die if kind == "kill" else _be_full

    def calm() -> dict[str, Any]:
        life(root / "calm", whole)
        return result(root / "calm", whole)

    expected = _told(calm)
    for number in itertools.count(1):
        folder = root / f"{kind}-{number:03d}"

        def until(number: int = number, folder: Path = folder) -> bool:
            taken = _at_step(number, act)
            life(folder, whole)
            return taken()

        def again(folder: Path = folder) -> dict[str, Any]:
            wrong = look(folder)
            life(folder, whole)
            return {"wrong": wrong, "result": result(folder, whole)}

        code, said = _child(until)
        if code == 0 and not said:  # there is no such step; a life that went on in spite of it says so
            return
        after = _told(again)
        yield {"step": number, "code": code, "said": said, "wrong": after["wrong"], "same": after["result"] == expected}


if __name__ == "__main__":
    print(json.dumps(list(disturbed(sys.argv[1], Path(sys.argv[3]), whole=sys.argv[2] == "whole"))))  # noqa: T201 - a program
