"""DuckDB's access to a data folder that lies on a URL: a file system that it asks for the Parquet files it reads.

A small file is fetched in one request, of a large one the parts that a query needs. Nothing is written.
"""

import contextlib
import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, cast

import duckdb

from warehouse.files.remote import RemoteFiles
from warehouse.store import Store

CACHE_BYTES = 64 << 20  # of files that stay in memory, for each connection
_WHOLE_BYTES = 4 << 20  # files up to this size are fetched whole
_BLOCK = 1 << 20  # bytes of one request for a part of a larger file


def connect(store: Store, memory: str) -> duckdb.DuckDBPyConnection:
    """Open an empty database in memory that can read the store's files."""
    connection = duckdb.connect(config={"memory_limit": memory})
    register_files(connection, store)
    return connection


def register_files(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Let a connection read the files of a store; a local one needs nothing."""
    if isinstance(files := store.files, RemoteFiles):
        _register(connection, store.root, lambda: _file_system(lambda: files, store.root))


def register_files_of_snapshot(connection: duckdb.DuckDBPyConnection, schema: str = "facts") -> None:
    """Let a connection read the files that a snapshot refers to; nothing is opened before the first is read."""
    with contextlib.suppress(duckdb.CatalogException):  # it is no snapshot, or one of an earlier program version
        about = dict(connection.execute(f"SELECT name, value FROM {schema}.about").fetchall())
        if url := about.get("url"):
            _register(connection, about["data"], lambda: _file_system_at(url, about["data"]))


def _register(connection: duckdb.DuckDBPyConnection, root: str, make: Callable[[], Any]) -> None:
    if root.partition("://")[0] not in connection.list_filesystems():
        connection.register_filesystem(make())


@lru_cache(maxsize=4)
def _file_system_at(url: str, root: str) -> Any:
    """Return the file system of the store at a URL; connections of this process share it, and what it keeps."""
    return _file_system(lru_cache(lambda: cast(RemoteFiles, Store(url).files)), root)


class _Parts:
    """Parts of a store's files, by path and beginning; those that were read last are kept, up to `CACHE_BYTES`."""

    def __init__(self, open_files: Callable[[], RemoteFiles]) -> None:
        self._open_files, self._turn = open_files, threading.Lock()
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._bytes = 0

    def get(self, path: str, start: int, length: int) -> bytes:
        with self._turn:
            if (path, start) in self._kept:
                self._kept.move_to_end((path, start))
                return self._kept[path, start]
        part = self._open_files().get_range(path, start, length)
        if part is None or len(part) != length:
            raise FileNotFoundError(f"{path} is gone or was cut short")
        with self._turn:
            self._bytes += length - len(self._kept.pop((path, start), b""))
            self._kept[path, start] = part
            while self._bytes > CACHE_BYTES:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return part


class _RemoteFile(io.RawIOBase):
    def __init__(self, parts: _Parts, path: str, size: int) -> None:
        self._parts, self._path, self.size, self._at = parts, path, size, 0
        self._block = size if size <= _WHOLE_BYTES else _BLOCK

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        start, end = self._at, min(self.size, self._at + len(buffer))
        while self._at < end:
            first = self._at - self._at % self._block
            whole = self._parts.get(self._path, first, min(self._block, self.size - first))
            part = whole[self._at - first : end - first]
            buffer[self._at - start : self._at - start + len(part)] = part
            self._at += len(part)
        return max(end - start, 0)


def _file_system(open_files: Callable[[], RemoteFiles], root: str) -> Any:
    """Return the file system of one store, below its root alone; its files are opened when the first is read."""
    from fsspec.spec import AbstractFileSystem

    parts, sizes = _Parts(open_files), dict[str, int]()

    class StoreFileSystem(AbstractFileSystem):  # type: ignore[misc]
        protocol = root.partition("://")[0]
        cachable = False  # fsspec must not give one store's files to another

        def _path(self, url: str) -> str:
            if not url.startswith(f"{root}/") or "/../" in url:
                raise FileNotFoundError(f"{url} is not in {root}")
            return url[len(root) + 1 :]

        def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
            if mode != "rb":
                raise PermissionError(f"{path} cannot be written: data files never change")
            return _RemoteFile(parts, self._path(path), self.size(path))

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            at = self._path(path)
            if at not in sizes:
                stat = open_files().stat(at)
                if stat is None:
                    raise FileNotFoundError(f"{path} is gone")
                sizes[at] = stat[0]
            return {"name": path, "size": sizes[at], "type": "file"}

        def exists(self, path: str, **_: Any) -> bool:
            return path.startswith(f"{root}/")  # a list of files is not looked at before each is read

        isfile = exists

        def glob(self, path: str, **_: Any) -> list[str]:
            pattern = self._path(path)
            folder = pattern.split("*")[0].split("?")[0].split("[")[0].rpartition("/")[0]
            return [f"{root}/{found}" for found in open_files().walk(folder) if fnmatchcase(found, pattern)]

        def modified(self, path: str) -> datetime:
            return datetime.fromtimestamp(0, UTC)  # data files never change

    return StoreFileSystem()
