"""Immutable Parquet files and one small JSON commit per shard: where truth lives (the README shows the folder).

A data file is never overwritten: other bytes under the same fingerprint get a name of their own. `find` and `intact`
look at files' sizes, `is_unaltered` at their times as well, and `damage` and `read` compare all bytes with the digest.
"""

import contextlib
import datetime as dt
import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
import pyarrow as pa

from warehouse.commits import Commit, CommitKey, DataFile, Dataset, Run, check_name, digest
from warehouse.errors import CorruptDataError, StoreError
from warehouse.files.base import Files, LocalFiles
from warehouse.files.encoding import INVALID, check_data, decode_parquet, decode_record, encode_parquet, encode_record
from warehouse.files.remote import open_files, public_url
from warehouse.schema import REJECTS, STAGES, conform

_log = logging.getLogger(__name__)

_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")  # in the name of a folder
_NAME_CHARS = 60
_GONE = "is gone"  # said of a data file that a commit lists
_REMEDY = "run the same build again: it sets the file aside and computes the shard again"


class Store:
    """Reads and writes one data folder, with the file operations that are given or those for its URL."""

    def __init__(self, url: str | Path, *, files: Files | None = None) -> None:
        self.files = files if files is not None else open_files(url)
        self.url = public_url(str(url))  # opens the folder again, given the same credentials in the environment
        self._compared: dict[str, tuple[int, float]] = {}  # path -> size and time at which its digest was right

    @property
    def root(self) -> str:
        """The absolute path, or the URL without its credentials."""
        return self.files.root

    @property
    def is_local(self) -> bool:
        return isinstance(self.files, LocalFiles)

    @property
    def local_folder(self) -> Path:
        """The folder for what needs a local disk (catalog, snapshot): the data folder itself.

        For a URL it is `toolformer-remote/<its path>-<digest>` below the current folder, which may be deleted.
        """
        if self.is_local:
            return Path(self.root)
        name = _UNSAFE.sub("-", self.root.partition("://")[2])[-_NAME_CHARS:].strip("-")
        return Path.cwd() / "toolformer-remote" / f"{name}-{digest(self.root.encode())[:8]}"

    def locate(self, path: str) -> str:
        """Return the absolute path or URL of a path within the store."""
        return f"{self.root}/{path}"

    # Data.

    def write(
        self, stage: str, tool: str, shard: str, fingerprint: str, table: pa.Table, name: str | None = None
    ) -> DataFile:
        """Write one data file of a shard, completely or not at all, or raise a `StoreError`.

        `tool` is "" if the stage runs once for all; the file's `name`, if a commit has several, is else the shard's.
        """
        schema = STAGES[stage].schema if stage in STAGES else table.schema
        return self._put_table("shards", stage, tool, name or shard, fingerprint, conform(table, schema))

    def write_rejects(self, stage: str, tool: str, name: str, fingerprint: str, table: pa.Table) -> DataFile:
        """Write rejected rows (`schema.REJECTS`) as `write` does; a snapshot shows them if a commit lists the file."""
        return self._put_table("rejects", stage, tool, name, fingerprint, conform(table, REJECTS))

    def _put_table(self, kind: str, stage: str, tool: str, name: str, fingerprint: str, table: pa.Table) -> DataFile:
        key = CommitKey(check_name("stage", stage), tool, check_name("shard", name), fingerprint)
        check_name("tool", tool or "_")
        data = encode_parquet(table)
        data_digest = digest(data)
        path = f"{kind}/{key.id}.parquet"
        if not self.files.create(path, data) and self.files.get(path) != data:
            path = f"{kind}/{key.id}-{data_digest[:8]}.parquet"
            if self.files.get(path) != data:
                self.files.put(path, data)  # a file that this replaces is damaged: its name says what belongs there
        return DataFile(path, data_digest, table.num_rows, len(data))

    def read(self, file: DataFile, columns: list[str] | None = None) -> pa.Table:
        """Return a data file's rows, in all or these columns, after its bytes are compared with the digest (1 GB/s).

        A `CorruptDataError` says that it is truncated, altered or not Parquet, a `StoreError` that it or a column is
        not there.
        """
        data = self.files.get(file.path)
        if data is None:
            raise StoreError(f"{self.locate(file.path)} is gone; {_REMEDY}")
        if damage := check_data(file, data):
            raise CorruptDataError(f"{self.locate(file.path)} {damage}; {_REMEDY}")
        return decode_parquet(data, columns, self.locate(file.path))

    def read_dataset(self, dataset: Dataset, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a version, file by file; `CorruptDataError` names the dataset if one is damaged or gone."""
        for file in dataset.files:
            try:
                yield self.read(file, columns)
            except StoreError as exc:
                raise CorruptDataError(f"dataset {dataset.name}@{dataset.version} is damaged: {exc}") from exc

    def is_unaltered(self, file: DataFile, since: float) -> bool:
        """Return whether a data file has its full size and, judging by its times, has not been altered.

        A file that was changed later than `since` (seconds since 1970) is read, once, to compare its digest.
        """
        stat = self.files.stat(file.path)
        if stat is None or stat[0] != file.bytes:
            return False
        if stat[1] > since and self._compared.get(file.path) != stat:
            data = self.files.get(file.path)
            if data is None or check_data(file, data):
                return False
            self._compared[file.path] = stat
        return True

    # Commits.

    def commit(self, commit: Commit) -> Commit:
        """Write a commit, unless the shard has an intact one; return the one that stands. The data must be there.

        If two processes compute one shard, the first commit stands; `gc` deletes what the other process wrote. Raises
        `ConservationError` if a balance does not close, and `StoreError`.
        """
        commit.check()
        for file in commit.files:
            if self._size(file.path) != file.bytes:
                raise StoreError(f"{commit.id}: data comes first, but {file.path} is missing or short")
        path = f"commits/{commit.id}.json"
        text = encode_record(path, commit.to_json())
        while not self.files.create(path, text):
            standing = self.read_commit(commit.key)
            if standing is None:
                self.set_aside(path, "it is not this shard's commit")
            elif self.intact(standing):
                return standing
            else:
                self.quarantine(standing)
        return commit

    def find(self, stage: str, tool: str, shard: str, fingerprint: str) -> Commit | None:
        """Return the commit of a shard; None unless it is readable, and its data files there in their full size."""
        commit = self.read_commit(CommitKey(stage, tool, shard, fingerprint))
        return commit if commit is not None and self.intact(commit) else None

    def read_commit(self, key: CommitKey) -> Commit | None:
        """Return a shard's commit, whatever the state of its data; None if there is none or it is damaged itself."""
        commit = self._load(f"commits/{key.id}.json")
        return commit if commit is not None and commit.key == key else None

    def intact(self, commit: Commit) -> bool:
        """Return whether every data file of a commit is there in its full size."""
        return all(self._size(file.path) == file.bytes for file in commit.files)

    def damage(self, commit: Commit) -> dict[str, str]:
        """Read every data file of a commit; return the damaged ones: path -> what is wrong with it."""
        data = ((file, self.files.get(file.path)) for file in commit.files)
        problems = ((file.path, _GONE if found is None else check_data(file, found)) for file, found in data)
        return {path: problem for path, problem in problems if problem}

    def commits(self, stage: str = "") -> Iterator[Commit]:
        """Yield the readable commits by id: all, or those of a stage; see `find`."""
        folder = f"commits/{stage}" if stage else "commits"
        return filter(None, map(self._load, self.files.walk(folder, ".json")))

    def commits_by_id(self, ids: Iterable[str]) -> Iterator[Commit]:
        return filter(None, (self._load(f"commits/{commit_id}.json") for commit_id in ids))

    def _load(self, path: str) -> Commit | None:
        value = self.read_json(path)
        try:
            return None if value is None else Commit.from_json(value)
        except INVALID:
            self.set_aside(path, "it is not a commit")
            return None

    def quarantine(self, commit: Commit) -> dict[str, str]:
        """Move a commit and its damaged data files aside, to be computed again; return path -> what is wrong with it.

        The commit goes first: without it nobody reads the data. What another process has repaired meanwhile stays.
        """
        damaged = self.damage(commit)
        if not damaged or self.read_commit(commit.key) != commit:
            return {}
        reason = "; ".join(f"{path} {problem}" for path, problem in damaged.items())
        self.set_aside(f"commits/{commit.id}.json", reason)
        for path, problem in damaged.items():
            if problem != _GONE:  # there is nothing to move, unless another process has just written the file again
                self.set_aside(path, problem)
        return damaged

    def set_aside(self, path: str, reason: str) -> None:
        """Move a damaged file below `quarantine/`, with a note beside it; nothing there is ever overwritten."""
        if self.files.stat(path) is None:
            return
        name, target = PurePosixPath(path), f"quarantine/{path}"
        numbers = itertools.count(2)
        while self.files.stat(target) is not None:
            target = f"quarantine/{name.with_stem(f'{name.stem}-{next(numbers)}')}"
        _log.warning("%s: %s; moved to %s", self.locate(path), reason, target)
        note = {"path": path, "why": reason, "found": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}
        with contextlib.suppress(StoreError):  # the file has to go even if a full disk has no room for the note
            self.files.put(f"{target}.why.json", orjson.dumps(note, option=orjson.OPT_APPEND_NEWLINE))
        self.files.move(path, target)

    def sweep_temporary(self, older_than_s: float = 3600.0) -> int:
        """Delete what killed writers left behind, if at least `older_than_s` old; return the number of files."""
        stale = list(self.files.stale_temporaries(older_than_s))
        for path in stale:
            self.files.delete(path)
        return len(stale)

    def names(self, kind: str) -> set[str]:
        """Return the names of all records of a kind: ids of `commits`, ids of `runs`, keys of `datasets`."""
        return {path[len(kind) + 1 : -len(".json")] for path in self.files.walk(kind, ".json")}

    def _size(self, path: str) -> int | None:
        stat = self.files.stat(path)
        return stat[0] if stat is not None else None

    # Small records.

    def write_json(self, path: str, value: Mapping[str, Any]) -> None:
        """Write a small record with its digest; raise `StoreError` if it is not JSON, or the disk is full."""
        self.files.put(path, encode_record(path, value))

    def read_json(self, path: str) -> dict[str, Any] | None:
        """Return a small record; None if there is none or it was damaged (it is then moved to `quarantine/`)."""
        data = self.files.get(path)
        value = None if data is None else decode_record(data)
        if data is not None and value is None:
            self.set_aside(path, "it is truncated or altered: its digest is not the one that it contains")
        return value

    def write_run(self, run: Run) -> None:
        self.write_json(f"runs/{check_name('run', run.run_id)}.json", run.to_json())

    def runs(self, names: Iterable[str] | None = None) -> list[Run]:
        """Return every readable run, or those with these ids, oldest first."""
        runs = [Run.from_json(value) for value in self.records("runs", names)]
        return sorted(runs, key=lambda run: (run.number, run.started, run.run_id))

    def write_dataset(self, dataset: Dataset) -> Dataset:
        """Write the record of how a version was made; if there is one, it stays. Return the one that stands."""
        check_name("dataset", dataset.name)
        check_name("version", dataset.id)
        path = f"datasets/{dataset.key}.json"
        record = encode_record(path, dataset.to_json())
        while not self.files.create(path, record):
            if standing := self.datasets([dataset.key]):  # reading sets a damaged one aside
                return standing[0]
        return dataset

    def datasets(self, names: Iterable[str] | None = None) -> list[Dataset]:
        """Return every readable dataset record, or those with these keys, oldest first."""
        datasets = [Dataset.from_json(value) for value in self.records("datasets", names)]
        return sorted(datasets, key=lambda dataset: (dataset.number, dataset.created, dataset.name, dataset.id))

    def records(self, kind: str, names: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
        """Yield every readable record of a kind, or those with these names, by name."""
        for name in sorted(self.names(kind) if names is None else names):
            if (value := self.read_json(f"{kind}/{name}.json")) is not None:
                yield value
