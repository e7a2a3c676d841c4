"""The few file operations the store needs, on a local folder or on anything `pyarrow.fs` reaches.

Local is the complete, crash-safe implementation: a file appears whole or not at all, and once `put` returns it
survives a power cut (temp name in the same folder -> write -> fsync -> rename -> fsync of the folder). Object
stores put an object in one piece already, so there `put` is a single upload.

`create` never replaces a file, whoever writes at the same time: it gives the name by a hard link, on S3 by a put on the
condition that there is no such object. Where a place can do neither (a file system without hard links, another object
store, S3 without botocore), it looks first, and of two writers within that moment the later one's file stays.
It does not know what the bytes mean. Paths are relative to the root, with forward slashes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from warehouse.errors import StoreError, told
from warehouse.folders import fsync_folder, make_folder, private_mode
from warehouse.objects import Create, creator_of

__all__ = ["Files", "LocalFiles", "RemoteFiles", "create_local", "open_files", "put_local", "temporary_beside"]

AnyPath = TypeVar("AnyPath", Path, PurePosixPath)
Written = TypeVar("Written", None, bool)
_TEMPORARY = re.compile(r"\.\d+-[0-9a-f]+\.tmp(\.wal)?$")  # DuckDB keeps a log beside a snapshot in the making
_PRIVATE = "runs/"  # what users asked for
# Object stores have no folders; making one would only leave a marker object.
_NO_FOLDERS = frozenset({"s3", "gcs", "abfs"})
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)  # of file systems without them


class Files(Protocol):
    """What the store asks of a place. Every method raises `StoreError` where the place fails."""

    root: str  # absolute path or URL, without a trailing slash

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file, replacing any of that name."""

    def create(self, path: str, data: bytes) -> bool:
        """Write a whole file unless there is one of that name; return whether it was written."""

    def get(self, path: str) -> bytes | None:
        """Return a file's bytes, None if there is none."""

    def look(self, path: str) -> tuple[int, float] | None:
        """Return a file's size in bytes and when it was last written (seconds since 1970), None if there is none."""

    def walk(self, folder: str, suffix: str = "") -> Iterator[str]:
        """Yield the paths of all finished files below a folder, sorted."""

    def move(self, path: str, target: str) -> None:
        """Rename a file; nothing happens if it is gone already."""

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if it is gone already."""

    def abandoned(self, older_than_s: float) -> Iterator[str]:
        """Yield the temporary files of at least that age in seconds which nobody is writing."""


def temporary_beside(target: AnyPath) -> AnyPath:
    """Return a name of its own beside a file, for what is to take its place; `abandoned` knows such names."""
    return target.with_name(f"{target.name}.{os.getpid()}-{uuid.uuid4().hex}.tmp")


def _try_lock(handle: int) -> bool:
    """Lock a file until its handle is closed, however its holder ends; False if another has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a mount without locks: there the age of a file must do
        return True
    return True


def put_local(target: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a local file so that it appears whole or not at all, and stays; `mode` is what the umask is taken off.

    Raises:
        OSError: the disk is full, or the folder cannot be written; nothing is left behind.
    """
    _write_local(target, data, mode, _replace)


def create_local(target: Path, data: bytes, mode: int = 0o644) -> bool:
    """Do as `put_local` does, unless there is a file of that name; return whether this file got it.

    Raises:
        OSError: the disk is full, or the folder cannot be written; nothing is left behind.
    """
    return _write_local(target, data, mode, _link)


def _replace(temporary: Path, target: Path) -> bool:
    os.replace(temporary, target)
    return True


def _link(temporary: Path, target: Path) -> bool:
    """Give a file its name unless another one has it; the kernel sees to it that only one gets it."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        if os.stat(temporary).st_nlink == 1:  # else NFS was asked twice, as its first answer was lost
            os.unlink(temporary)
            return False
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        if target.exists():
            os.unlink(temporary)
            return False
        return _replace(temporary, target)
    with contextlib.suppress(OSError):  # the file has its name; a sweep takes the other one
        os.unlink(temporary)
    return True


def _write_local(target: Path, data: bytes, mode: int, give_name: Callable[[Path, Path], bool]) -> bool:
    temporary = temporary_beside(target)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            _try_lock(handle)  # so that no sweep takes it for a dead writer's
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        given = give_name(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    fsync_folder(target.parent)  # also of another's file: whoever reads it now relies on it
    return given


class LocalFiles:
    """A folder of this machine (or of a shared file system)."""

    def __init__(self, root: str | Path) -> None:
        self.root = str(Path(root).absolute())

    def put(self, path: str, data: bytes) -> None:
        """See `Files`."""
        self._write(path, data, put_local)

    def create(self, path: str, data: bytes) -> bool:
        """See `Files`."""
        return self._write(path, data, create_local)

    def _write(self, path: str, data: bytes, how: Callable[[Path, bytes, int], Written]) -> Written:
        target = self._at(path)
        try:
            make_folder(target.parent)
            return how(target, data, private_mode(target.parent) if path.startswith(_PRIVATE) else 0o644)
        except OSError as exc:
            raise StoreError(f"cannot write {target}: {told(exc)}") from exc

    def get(self, path: str) -> bytes | None:
        """See `Files`."""
        try:
            return self._at(path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise StoreError(f"cannot read {self._at(path)}: {exc.strerror or exc}") from exc

    def look(self, path: str) -> tuple[int, float] | None:
        """See `Files`."""
        try:
            found = self._at(path).stat()
            return found.st_size, found.st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise StoreError(f"cannot look at {self._at(path)}: {exc.strerror or exc}") from exc

    def walk(self, folder: str, suffix: str = "") -> Iterator[str]:
        """See `Files`."""
        for path in self._walk(folder):
            if path.endswith(suffix) and not _TEMPORARY.search(path):
                yield path

    def move(self, path: str, target: str) -> None:
        """See `Files`."""
        try:
            make_folder(self._at(target).parent)
            os.replace(self._at(path), self._at(target))
        except FileNotFoundError:
            return
        except OSError as exc:
            raise StoreError(f"cannot move {self._at(path)}: {told(exc)}") from exc
        fsync_folder(self._at(target).parent)
        fsync_folder(self._at(path).parent)

    def delete(self, path: str) -> None:
        """See `Files`."""
        try:
            self._at(path).unlink(missing_ok=True)
        except OSError as exc:
            raise StoreError(f"cannot delete {self._at(path)}: {told(exc)}") from exc

    def abandoned(self, older_than_s: float) -> Iterator[str]:
        """See `Files`."""
        latest = time.time() - older_than_s
        for path in list(self._walk("")):
            if not _TEMPORARY.search(path):
                continue
            with contextlib.suppress(FileNotFoundError):  # its writer finished, or another sweep was faster
                if self._at(path).stat().st_mtime <= latest and not self._being_written(path):
                    yield path

    def _being_written(self, path: str) -> bool:
        handle = os.open(self._at(path), os.O_RDONLY)
        try:
            return not _try_lock(handle)
        finally:
            os.close(handle)

    def _at(self, path: str) -> Path:
        return Path(self.root, path)

    def _walk(self, folder: str) -> Iterator[str]:
        start = os.path.join(self.root, folder) if folder else self.root
        for here, folders, names in os.walk(start):
            folders.sort()
            relative = os.path.relpath(here, self.root).replace(os.sep, "/")
            prefix = "" if relative == "." else relative + "/"
            for name in sorted(names):
                yield prefix + name


class RemoteFiles:
    """Anything a `pyarrow.fs` URL names, e.g. `s3://bucket/folder`; one put per file.

    Args:
        root: the URL, kept for messages and views.
        filesystem: a `pyarrow.fs.FileSystem`.
        base: the root's path within that file system.
        create_object: makes an object unless there is one, where the place can do that.
    """

    def __init__(self, root: str, filesystem: Any, base: str, create_object: Create | None = None) -> None:
        self.root = root.rstrip("/")
        self._fs = filesystem
        self._base = base.rstrip("/")
        self._create_object = create_object

    def put(self, path: str, data: bytes) -> None:
        """See `Files`."""
        target = self._at(path)
        try:
            if self._fs.type_name in _NO_FOLDERS:
                self._write(target, data)
            else:  # a file that is being written can be seen
                self._fs.create_dir(str(PurePosixPath(target).parent), recursive=True)
                temporary = str(temporary_beside(PurePosixPath(target)))
                self._write(temporary, data)
                self._fs.move(temporary, target)
        except (OSError, pa.ArrowException) as exc:
            raise StoreError(f"cannot write {self.root}/{path}: {exc}") from exc

    def create(self, path: str, data: bytes) -> bool:
        """See `Files`."""
        if self._create_object is not None and (made := self._create_object(self._at(path), data)) is not None:
            return made
        if self.look(path) is not None:
            return False
        self.put(path, data)
        return True

    def _write(self, target: str, data: bytes) -> None:
        with self._fs.open_output_stream(target) as stream:
            stream.write(data)

    def get(self, path: str) -> bytes | None:
        """See `Files`."""
        try:
            with self._fs.open_input_stream(self._at(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as exc:
            raise StoreError(f"cannot read {self.root}/{path}: {exc}") from exc

    def look(self, path: str) -> tuple[int, float] | None:
        """See `Files`."""
        try:
            info = self._fs.get_file_info(self._at(path))
        except (OSError, pa.ArrowException) as exc:
            raise StoreError(f"cannot look at {self.root}/{path}: {exc}") from exc
        if info.type != pafs.FileType.File:
            return None
        return int(info.size), info.mtime.timestamp() if info.mtime is not None else math.inf

    def walk(self, folder: str, suffix: str = "") -> Iterator[str]:
        """See `Files`."""
        for path in self._walk(folder):
            if path.endswith(suffix) and not _TEMPORARY.search(path):
                yield path

    def _walk(self, folder: str) -> Iterator[str]:
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True, recursive=True)
        try:
            infos = self._fs.get_file_info(selector)
        except (OSError, pa.ArrowException) as exc:
            raise StoreError(f"cannot list {self.root}/{folder}: {exc}") from exc
        for path in sorted(info.path for info in infos if info.type == pafs.FileType.File):
            yield path[len(self._base) + 1 :]

    def move(self, path: str, target: str) -> None:
        """See `Files`."""
        data = self.get(path)
        if data is not None:
            self.put(target, data)
            self.delete(path)

    def delete(self, path: str) -> None:
        """See `Files`."""
        try:
            self._fs.delete_file(self._at(path))
        except FileNotFoundError:
            return
        except (OSError, pa.ArrowException) as exc:
            raise StoreError(f"cannot delete {self.root}/{path}: {told(exc)}") from exc

    def abandoned(self, older_than_s: float) -> Iterator[str]:
        """See `Files`; in an object store a put leaves none."""
        if self._fs.type_name in _NO_FOLDERS:
            return
        latest = time.time() - older_than_s
        for path in self._walk(""):
            if _TEMPORARY.search(path) and (found := self.look(path)) is not None and found[1] <= latest:
                yield path

    def _at(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base


def open_files(url: str | Path) -> Files:
    """Return the files below a local path or a URL: `file://`, `s3://`, `gs://`, ..., or any that fsspec knows.

    An S3 server of one's own is named in the query: `s3://bucket/folder?endpoint_override=host:9000&scheme=http`.
    Credentials are taken as Arrow takes them, e.g. from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.

    Raises:
        StoreError: the URL's scheme is unknown, or its place cannot be reached.
    """
    text = str(url)
    if "://" not in text:
        return LocalFiles(text)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return LocalFiles(unquote(parts.path))
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"  # keys in the URL must not reach a message
    try:
        filesystem, base = _file_system(text)
    except (OSError, ValueError, ImportError, pa.ArrowException) as exc:
        raise StoreError(f"cannot open {shown}: {type(exc).__name__}") from exc
    creator = creator_of(text, filesystem.region) if isinstance(filesystem, pafs.S3FileSystem) else None
    return RemoteFiles(shown, filesystem, base, creator)


def _file_system(url: str) -> tuple[Any, str]:
    """Return Arrow's file system for a URL, or fsspec's where Arrow has none, and the path within it."""
    from fsspec.core import url_to_fs
    from fsspec.registry import known_implementations

    try:
        filesystem, base = pafs.FileSystem.from_uri(url)
    except pa.ArrowInvalid:
        if urlsplit(url).scheme not in known_implementations:
            raise
        filesystem, base = url_to_fs(url)
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
    return filesystem, base
