"""Makers of small, hand-countable warehouses, shared by the tests of this folder."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from warehouse.catalog import Catalog
from warehouse.commits import Commit, CommitKey, DataFile, Dataset, RowCounts, Run, dataset_version, fingerprint
from warehouse.files.base import LocalFiles
from warehouse.records import Training
from warehouse.schema import stage_facts
from warehouse.snapshot.publish import publish
from warehouse.store import Store

CREATED = "2024-05-01T12:00:00+00:00"


class CountingFiles(LocalFiles):
    """A folder that counts how often it is asked, and how many names it lists."""

    def __init__(self, root: str | Path) -> None:
        super().__init__(root)
        self.looks: list[str] = []
        self.reads: list[str] = []
        self.listed = 0

    def stat(self, path: str) -> tuple[int, float] | None:
        self.looks.append(path)
        return super().stat(path)

    def get(self, path: str) -> bytes | None:
        self.reads.append(path)
        return super().get(path)

    def walk(self, folder: str, suffix: str = "") -> Iterator[str]:
        for path in super().walk(folder, suffix):
            self.listed += 1
            yield path


def table(stage: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of a stage; columns that are not given take a plain value of their type, or null where that is allowed."""
    schema = stage_facts(stage).schema
    plain: dict[Any, Any] = {pa.string(): "", pa.int64(): 0, pa.float64(): 0.0, pa.bool_(): False}
    absent = {f.name: None if f.nullable else plain.get(f.type, []) for f in schema}
    full = [{f.name: row.get(f.name, absent[f.name]) for f in schema} for row in rows]
    return pa.Table.from_pylist(full, schema=schema)


def scored(doc_id: str, tool: str, position: int, gain: float, **more: Any) -> dict[str, Any]:
    """One scored call whose losses give the gain: L- = min(3 + gain, 4 + gain) = 3 + gain, L+ = 3."""
    losses = {"loss_plain": 4.0 + gain, "loss_call": 3.0 + gain, "loss_response": 3.0}
    row = {"doc_id": doc_id, "tool": tool, "position": position, "gain": gain, "input": "1 + 1", "response": "2"}
    return {**row, **losses, "log_p": -1.0, "count": 1, "seen_before": False, "seen_after": False, **more}


def make_commit(
    stage: str,
    tool: str,
    shard: str,
    files: Iterable[DataFile] = (),
    *,
    parts: Mapping[str, str] | None = None,
    balances: Iterable[RowCounts] | None = None,
    **more: Any,
) -> Commit:
    files = tuple(files)
    parts = dict(parts or {"config": "c1", "code": stage})
    rows = sum(file.rows for file in files)
    given: dict[str, Any] = {
        "stage": stage,
        "stage_version": "1",
        "tool": tool,
        "shard": shard,
        "fingerprint": fingerprint(parts),
        "parts": parts,
        "config": {"tau_s": 0.05},
        "files": files,
        "inputs": (),
        "balances": tuple(balances) if balances is not None else (RowCounts("rows", rows, rows),),
        "seconds": 1.5,
        "counters": {"lm_tokens": 100},
        "host": "h",
        "versions": {"pyarrow": "25"},
        "created": CREATED,
        "run_id": "r1",
    }
    return Commit(**(given | more))


def put(store: Store, stage: str, tool: str, shard: str, rows: list[dict[str, Any]], **more: Any) -> Commit:
    parts = dict(more.pop("parts", None) or {"config": "c1", "code": stage})
    file = store.write(stage, tool, shard, fingerprint(parts), table(stage, rows))
    commit = make_commit(stage, tool, shard, [file], parts=parts, **more)
    store.commit(commit)
    return commit


def put_dataset(store: Store, name: str, commits: Iterable[Commit], run_id: str = "r1", **more: Any) -> Dataset:
    """Write the record of a version with the files of some commits."""
    files = tuple(file for commit in commits for file in commit.files)
    given: dict[str, Any] = {"version": dataset_version(files), "files": files, "counts": {}, "thresholds": {}}
    told = {"run_id": run_id, "model": "m", "corpus": "c", "created": CREATED}
    return store.write_dataset(Dataset(name, **(given | told | more)))


def snapshot_of(store: Store, **options: bool) -> Path:
    """Publish what the store holds, by a catalog that is made from it."""
    with tempfile.TemporaryDirectory() as folder, Catalog(Path(folder, "catalog.duckdb"), store=store) as catalog:
        return publish(store, catalog, **options)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def alter(path: Path) -> None:
    """Change one bit; the size stays."""
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])


def environment() -> dict[str, str]:
    """The environment of another process that imports this module and the repository's."""
    tests = Path(__file__).resolve().parent
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tests, tests.parent)))}


@contextmanager
def program(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs some Python, from its first line of output on; in the end it is killed."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), **pipes) as process:
        try:
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


@contextmanager
def disk_of(size: str, place: Path) -> Iterator[Path]:
    """A disk of this size, where this user may have one."""
    folder = place / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a file system in memory")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_run(run_id: str, keys: Iterable[CommitKey], started: str = CREATED, **more: Any) -> Run:
    given: dict[str, Any] = {"flow": "build_dataset", "finished": None, "state": "completed", "parameters": {"n": 1}}
    return Run(run_id=run_id, started=started, commits=tuple(keys), **(given | {"corpus": "c", "model": "m"} | more))


def a_training(job: str, **more: Any) -> Training:
    """The record of a finished training on cstar@v1."""
    told: dict[str, Any] = {
        "run_id": "0a1b",
        "arm": "toolformer",
        "dataset": "cstar",
        "version": "v1",
        "model": "embedded",
        "model_digest": "d0",
        "recipe": {"steps": 8},
        "steps": 8,
        "train_loss": 1.5,
        "dev_loss": 2.0,
        "dev_perplexity": 7.4,
        "base_perplexity": 9.0,
        "best_step": 4,
        "best_perplexity": 7.0,
        "checkpoint": f"finetunes/{job}/model",
        "seconds": 12.5,
        "finished": CREATED,
    }
    return Training(job=job, **(told | more))
