"""Immutable Parquet files and one small JSON commit per shard: where truth lives.

    DATA/shards/<stage>/<tool or _>/<name>-<fingerprint[:16]>.parquet   data, written first
    DATA/commits/<stage>/<tool or _>/<shard>-<fingerprint[:16]>.json    the commit, written last
    DATA/rejects/<stage>/<tool or _>/<name>-<fingerprint[:16]>.parquet  rejected rows, listed in the commit too
    DATA/runs/<run_id>.json                                             which commits a run used
    DATA/datasets/<name>/<version>-<made>.json                          versions of C*, a record for each way of making
    DATA/quarantine/...                                                 what was found broken, kept to be looked at

A data file is never overwritten: other bytes under the same fingerprint go to a name of their own, so what a commit
or a reader refers to stays as it was. The store does not know which commits are current, and asks nobody: the
catalog and the snapshot are indexes over it.
"""

from __future__ import annotations

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
import pyarrow.parquet as pq

from warehouse.commits import Commit, CommitKey, DataFile, Dataset, Run, canonical, check_name, digest
from warehouse.errors import CorruptDataError, StoreError
from warehouse.files import Files, LocalFiles, open_files
from warehouse.schema import REJECTS, conform, stage_facts

__all__ = ["Store"]

_log = logging.getLogger(__name__)

_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")  # in the name of a folder
_NAME_CHARS = 60

# Of the JSON envelope. Runs and datasets have had fields since 2 that an earlier program does not know.
_FORMAT, _FORMATS = 2, {"commits": 1, "runs": 2, "datasets": 2}
_GONE = "is gone"  # what is wrong with a data file that a commit names
_REDO = "the build that made it, run again, sets it aside and does it anew"
_ROW_GROUP = 64 * 1024  # rows
_BROKEN = (KeyError, TypeError, ValueError, AttributeError)  # what parsing a damaged record can raise


def _parquet(table: pa.Table) -> bytes:
    """Return the table as Parquet: the same table, the same bytes (for one pyarrow version).

    Columns of floats get no statistics: these leave NaN out, and readers that trust them, as DuckDB does, miss it.
    """
    sink = pa.BufferOutputStream()
    described = [column.name for column in table.schema if not pa.types.is_floating(column.type)]
    layout: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "row_group_size": _ROW_GROUP}
    pq.write_table(table, sink, write_statistics=described, **layout)
    return bytes(sink.getvalue().to_pybytes())


class Store:
    """Reads and writes one data folder.

    Args:
        url: a local path, or a URL that `pyarrow.fs` understands.
        files: the file operations, if not those the URL names.
    """

    def __init__(self, url: str | Path, *, files: Files | None = None) -> None:
        self.files = files if files is not None else open_files(url)
        self._compared: dict[str, tuple[int, float]] = {}  # path -> size and time at which its digest was right
        self._sound: dict[str, str] = {}  # path -> digest of the file that was last found sound
        self._near: dict[str, tuple[int, float]] = {}  # path of a remote file -> size and time of its whole copy

    @property
    def root(self) -> str:
        """The absolute path, or the URL without its credentials."""
        return self.files.root

    @property
    def is_local(self) -> bool:
        return isinstance(self.files, LocalFiles)

    @property
    def beside(self) -> Path:
        """Where what needs a local disk lies (catalog, snapshot): the data folder.

        Of a URL it is a folder of its own below the current one, `toolformer-remote/<its path>-<digest>`. It may be
        deleted: a flow and `reconcile` make it anew.
        """
        if self.is_local:
            return Path(self.root)
        name = _UNSAFE.sub("-", self.root.partition("://")[2])[-_NAME_CHARS:].strip("-")
        return Path.cwd() / "toolformer-remote" / f"{name}-{digest(self.root.encode())[:8]}"

    def near(self, path: str) -> str:
        """Return the absolute path of a data file for who reads local files alone (DuckDB); a remote one is fetched.

        It is fetched once: a data file never changes.

        Raises:
            StoreError: it cannot be fetched, or the disk is full.
        """
        if self.is_local:
            return self.locate(path)
        copies = LocalFiles(self.beside)
        here = copies.look(path)
        if here is not None and self._near.get(path) == here:
            return f"{copies.root}/{path}"
        there = self.files.look(path)
        if there is not None and (here is None or here[0] != there[0]):
            data = self.files.get(path)
            if data is not None:
                copies.put(path, data)
        if there is not None and (whole := copies.look(path)) is not None:
            self._near[path] = whole
        return f"{copies.root}/{path}"

    def locate(self, path: str) -> str:
        """Return the absolute path or URL of a path within the store."""
        return f"{self.root}/{path}"

    # Data.

    def write(
        self, stage: str, tool: str, shard: str, fingerprint: str, table: pa.Table, name: str | None = None
    ) -> DataFile:
        """Write one data file of a shard, whole or not at all.

        Args:
            stage: a name in `schema.STAGES`; the table must have that stage's columns.
            tool: the tool's key, "" where the stage runs once for all tools.
            shard: the shard's name.
            fingerprint: hex; the file's name carries its first 16 digits.
            table: the rows.
            name: the file's name where a commit has several files; default: the shard's.

        Raises:
            SchemaError: the columns do not fit.
            StoreError: a name is unsafe, or the disk is full.
        """
        facts = stage_facts(stage)
        return self._put_table("shards", stage, tool, name or shard, fingerprint, conform(table, facts.schema))

    def write_rejects(self, stage: str, tool: str, name: str, fingerprint: str, table: pa.Table) -> DataFile:
        """Write rejected rows (columns of `schema.REJECTS`); list the file in the commit to have it in the snapshot.

        Raises:
            SchemaError: the columns do not fit.
            StoreError: a name is unsafe, or the disk is full.
        """
        return self._put_table("rejects", stage, tool, name, fingerprint, conform(table, REJECTS))

    def _put_table(self, kind: str, stage: str, tool: str, name: str, fingerprint: str, table: pa.Table) -> DataFile:
        key = CommitKey(check_name("stage", stage), tool, check_name("shard", name), fingerprint)
        check_name("tool", tool or "_")
        data = _parquet(table)
        own = digest(data)
        path = f"{kind}/{key.id}.parquet"
        if not self.files.create(path, data) and self.files.get(path) != data:
            path = f"{kind}/{key.id}-{own[:8]}.parquet"
            if self.files.get(path) != data:
                self.files.put(path, data)  # what is replaced is damaged: the name says what belongs there
        return DataFile(path, own, table.num_rows, len(data))

    def read(self, file: DataFile, columns: list[str] | None = None, verify: bool = True) -> pa.Table:
        """Return a data file's rows.

        Args:
            file: as a commit lists it.
            columns: only these, in this order; default: all.
            verify: compare the bytes with the digest first (about 1 GB/s).

        Raises:
            CorruptDataError: the file is truncated, altered or not Parquet.
            StoreError: there is no such file, or no such column.
        """
        data = self.files.get(file.path)
        if data is None:
            raise StoreError(f"{self.locate(file.path)} is gone; {_REDO}")
        if wrong := self._wrong(file, data, verify):
            raise CorruptDataError(f"{self.locate(file.path)} {wrong}; {_REDO}")
        try:
            reader = pq.ParquetFile(pa.BufferReader(data))
            unknown = [name for name in columns or () if name not in reader.schema_arrow.names]
            if unknown:
                raise StoreError(f"{self.locate(file.path)} has no column {', '.join(unknown)}")
            table = reader.read(columns=columns)
            return table.select(columns) if columns is not None else table
        except (pa.ArrowException, OSError) as exc:
            raise CorruptDataError(f"{self.locate(file.path)} cannot be read as Parquet: {exc}") from exc

    def read_dataset(self, dataset: Dataset, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a dataset version, file by file.

        Raises:
            CorruptDataError: a file of it is damaged or gone; the message names the dataset.
        """
        for file in dataset.files:
            try:
                yield self.read(file, columns)
            except StoreError as exc:
                raise CorruptDataError(f"dataset {dataset.name}@{dataset.version} is damaged: {exc}") from exc

    @staticmethod
    def _wrong(file: DataFile, data: bytes, verify: bool = True) -> str:
        """Say how a data file's bytes differ from what its commit says, "" if they do not."""
        if len(data) != file.bytes:
            return f"is truncated or altered: it has {len(data):,} bytes, and its commit says {file.bytes:,}"
        return (
            "is altered: it has not the digest that its commit says" if verify and digest(data) != file.digest else ""
        )

    def sound(self, file: DataFile, since: float, *, again: bool = True) -> bool:
        """Say whether a data file is there in its full size and has not been altered, as far as its times tell.

        Only a file that was written to after `since` (seconds since 1970) is read and its digest compared, once. One
        that this store has found sound before is looked at only if `again` says so.
        """
        if not again and self._sound.get(file.path) == file.digest:
            return True
        self._sound.pop(file.path, None)
        if sound := self._unaltered(file, since):
            self._sound[file.path] = file.digest
        return sound

    def _unaltered(self, file: DataFile, since: float) -> bool:
        found = self.files.look(file.path)
        if found is None or found[0] != file.bytes:
            return False
        if found[1] <= since or self._compared.get(file.path) == found:
            return True
        data = self.files.get(file.path)
        if data is None or self._wrong(file, data):
            return False
        self._compared[file.path] = found
        return True

    # Commits.

    def commit(self, commit: Commit) -> Commit:
        """Write a commit, unless the shard has a whole one; return the one that stands. Its data must be there already.

        Of two processes that do one shard the first to commit is right; `gc` takes away what the other one wrote.

        Raises:
            ConservationError: a balance does not close.
            StoreError: a data file is missing or short, a name is unsafe, or the disk is full.
        """
        stage_facts(commit.stage)
        commit.check()
        for file in commit.files:
            if self._size(file.path) != file.bytes:
                raise StoreError(f"{commit.id}: data comes first, but {file.path} is missing or short")
        text = self._record(path := f"commits/{commit.id}.json", commit.to_json())
        while not self.files.create(path, text):
            standing = self.recorded(commit.key)
            if standing is None:
                self.set_aside(path, "it is not this shard's commit")
            elif self.intact(standing):
                return standing
            else:
                self.quarantine(standing)
        return commit

    def find(self, stage: str, tool: str, shard: str, fingerprint: str) -> Commit | None:
        """Return the commit of a shard if it was done, else None.

        None also if a data file is missing or has another size, and if the commit itself is damaged (it is then
        moved to `quarantine/`). Digests of data are compared by `read`.
        """
        commit = self.recorded(CommitKey(stage, tool, shard, fingerprint))
        return commit if commit is not None and self.intact(commit) else None

    def recorded(self, key: CommitKey) -> Commit | None:
        """Return a shard's commit whatever has become of its data; None if there is none or it is damaged itself."""
        commit = self._load(f"commits/{key.id}.json")
        return commit if commit is not None and commit.key == key else None

    def intact(self, commit: Commit) -> bool:
        """Say whether every data file of a commit is there in its full size."""
        return all(self._size(file.path) == file.bytes for file in commit.files)

    def damage(self, commit: Commit) -> dict[str, str]:
        """Read every data file of a commit; return path -> what is wrong with it, of those that are not whole.

        Raises:
            StoreError: a file is there and cannot be read now.
        """
        out = {}
        for file in commit.files:
            data = self.files.get(file.path)
            if wrong := _GONE if data is None else self._wrong(file, data):
                out[file.path] = wrong
        return out

    def commits(self, stage: str = "", tool: str | None = None) -> Iterator[Commit]:
        """Yield every readable commit, sorted by id, or those of one stage and tool ("" for no tool); see `find`."""
        folder = "commits" + (f"/{stage}" if stage else "") + (f"/{tool or '_'}" if stage and tool is not None else "")
        return self._commits(self.files.walk(folder, ".json"))

    def commits_named(self, ids: Iterable[str]) -> Iterator[Commit]:
        """Yield the readable commits of these ids."""
        return self._commits(f"commits/{own}.json" for own in ids)

    def _commits(self, paths: Iterable[str]) -> Iterator[Commit]:
        for path in paths:
            commit = self._load(path)
            if commit is not None:
                yield commit

    def quarantine(self, commit: Commit) -> dict[str, str]:
        """Move a commit, and those of its data files that are damaged, aside; the shard is then to be done again.

        The commit goes first: without it nobody reads the data. What another process has mended since it was found
        damaged stays where it is. Return path -> what is wrong with it; nothing, if all is well by now.
        """
        damaged = self.damage(commit)
        if not damaged or self.recorded(commit.key) != commit:
            return {}
        why = "; ".join(f"{path} {wrong}" for path, wrong in damaged.items())
        self.set_aside(f"commits/{commit.id}.json", why)
        for path, wrong in damaged.items():
            if wrong != _GONE:  # there is nothing to move, unless somebody has just written it anew
                self.set_aside(path, wrong)
        return damaged

    def _load(self, path: str) -> Commit | None:
        value = self.read_json(path)
        if value is None:
            return None
        try:
            return Commit.from_json(value)
        except _BROKEN:
            self.set_aside(path, "it is not a commit")
            return None

    def set_aside(self, path: str, why: str) -> None:
        """Move what is damaged below `quarantine/`, with a note beside it; nothing there is ever overwritten."""
        if self.files.look(path) is None:
            return
        name, target = PurePosixPath(path), f"quarantine/{path}"
        tries = itertools.count(2)
        while self.files.look(target) is not None:
            target = f"quarantine/{name.with_stem(f'{name.stem}-{next(tries)}')}"
        _log.warning("%s: %s; moved to %s", self.locate(path), why, target)
        note = {"path": path, "why": why, "found": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}
        with contextlib.suppress(StoreError):  # a full disk keeps nothing that is damaged in its place
            self.files.put(f"{target}.why.json", orjson.dumps(note, option=orjson.OPT_APPEND_NEWLINE))
        self.files.move(path, target)

    def sweep_temporary(self, older_than_s: float = 3600.0) -> int:
        """Remove what killed writers left behind, if at least that old in seconds; return how many files."""
        found = list(self.files.abandoned(older_than_s))
        for path in found:
            self.files.delete(path)
        return len(found)

    def names(self, kind: str) -> set[str]:
        """Return the names of all records of a kind: ids of `commits`, ids of `runs`, keys of `datasets`."""
        return {path[len(kind) + 1 : -len(".json")] for path in self.files.walk(kind, ".json")}

    def _size(self, path: str) -> int | None:
        found = self.files.look(path)
        return found[0] if found is not None else None

    # Small records.

    def write_json(self, path: str, value: Mapping[str, Any]) -> None:
        """Write a small record in an envelope that carries its digest.

        Raises:
            StoreError: the value is not JSON, or the disk is full.
        """
        self.files.put(path, self._record(path, value))

    @staticmethod
    def _record(path: str, value: Mapping[str, Any]) -> bytes:
        try:
            body = canonical(dict(value))
            envelope = {
                "format": _FORMATS.get(path.partition("/")[0], _FORMAT),
                "digest": digest(body),
                "value": dict(value),
            }
            return orjson.dumps(
                envelope, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
            )
        except orjson.JSONEncodeError as exc:
            raise StoreError(f"{path}: not a JSON value: {exc}") from exc

    def read_json(self, path: str) -> dict[str, Any] | None:
        """Return a small record; None if there is none or it was damaged (it is then moved to `quarantine/`).

        Raises:
            StoreError: a newer version of this program wrote it.
        """
        data = self.files.get(path)
        if data is None:
            return None
        with contextlib.suppress(*_BROKEN):
            envelope = orjson.loads(data)
            if envelope["format"] > _FORMAT:
                raise StoreError(
                    f"{self.locate(path)} was written by a newer version of this program: use that one; or, if there "
                    "is none, the file was altered: remove it, run toolformer reconcile and then the same build again"
                )
            value = envelope["value"]
            if isinstance(value, dict) and digest(canonical(value)) == envelope["digest"]:
                return value
        self.set_aside(path, "it is truncated or altered: it has not the digest that it carries")
        return None

    def write_run(self, run: Run) -> None:
        """Write or replace a run's manifest."""
        self.write_json(f"runs/{check_name('run', run.run_id)}.json", run.to_json())

    def runs(self, names: Iterable[str] | None = None) -> list[Run]:
        """Return every readable run, or of these ids, oldest first."""
        found = [Run.from_json(value) for value in self._records("runs", names)]
        return sorted(found, key=lambda run: (run.started, run.run_id))

    def write_dataset(self, dataset: Dataset) -> Dataset:
        """Write the record of how a version was made, unless it is there; return the one that is there then.

        A record is never overwritten: what was made again in the same way keeps its first record.
        """
        check_name("dataset", dataset.name)
        check_name("version", dataset.id)
        record = self._record(path := f"datasets/{dataset.key}.json", dataset.to_json())
        while not self.files.create(path, record):
            if held := self.datasets([dataset.key]):  # a damaged one is set aside as it is read
                return held[0]
        return dataset

    def datasets(self, names: Iterable[str] | None = None) -> list[Dataset]:
        """Return every readable dataset record, or those of these keys, oldest first."""
        found = [Dataset.from_json(value) for value in self._records("datasets", names)]
        return sorted(found, key=lambda d: (d.created, d.name, d.id))

    def _records(self, kind: str, names: Iterable[str] | None) -> Iterator[dict[str, Any]]:
        for name in sorted(self.names(kind) if names is None else names):
            value = self.read_json(f"{kind}/{name}.json")
            if value is not None:
                yield value
