"""The few file operations that the store needs, and how a local folder does them; `remote` has those of URLs.

Locally a file appears complete or not at all, and once `put` has returned it survives a power cut (temporary name in
the same folder, write, fsync, rename, fsync of the folder). `create` names a file by a hard link and so never replaces
one; without hard links it looks first, and of two processes that write in the same moment the later file stays.
"""

import contextlib
import errno
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

import filelock

from warehouse.errors import StoreError, error_line
from warehouse.files.folders import fsync_folder, make_folder, private_mode

AnyPath = TypeVar("AnyPath", Path, PurePosixPath)
TEMPORARY = re.compile(r"\.\d+-[0-9a-f]+\.tmp(\.wal)?$")  # DuckDB keeps a log beside a database that is being written
_PRIVATE = "runs/"  # these records hold the parameters that users gave
# Errors of file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class Files(Protocol):
    """The file operations of one place. Every method raises `StoreError` if the place fails."""

    root: str  # absolute path or URL, without a trailing slash

    def put(self, path: str, data: bytes) -> None:
        """Write a file, replacing any file of that name."""

    def create(self, path: str, data: bytes) -> bool:
        """Write a file unless there is one of that name; return whether it was written."""

    def get(self, path: str) -> bytes | None:
        """Return a file's bytes; None if there is no such file."""

    def stat(self, path: str) -> tuple[int, float] | None:
        """Return a file's size in bytes and the time of its last change (seconds since 1970); None if there is none."""

    def walk(self, folder: str, suffix: str = "") -> Iterator[str]:
        """Yield the paths of all complete files below a folder, sorted."""

    def stats(self, folder: str) -> Iterator[tuple[str, tuple[int, float]]]:
        """Yield the paths of all files below a folder with what `stat` says of each, in any order."""

    def move(self, path: str, target: str) -> None:
        """Rename a file; do nothing if there is no such file."""

    def delete(self, path: str) -> None:
        """Delete a file; do nothing if there is no such file."""

    def stale_temporaries(self, older_than_s: float) -> Iterator[str]:
        """Yield the temporary files that nobody is writing and that are at least `older_than_s` seconds old."""


def temporary_beside(target: AnyPath) -> AnyPath:
    """Return a unique temporary name beside a file, for its replacement; `stale_temporaries` recognises such names."""
    return target.with_name(f"{target.name}.{os.getpid()}-{uuid.uuid4().hex}.tmp")


def _try_lock(handle: int) -> bool:
    """Lock a file until its handle is closed, or its holder dies; return False if another process holds the lock."""
    try:
        return filelock.lock_descriptor(handle, blocking=False)
    except OSError:  # a mount without locks, where the age of a file has to suffice
        return True


def put_local(target: Path, data: bytes) -> None:
    """Write a local file so that it appears complete or not at all, and survives a power cut; else raise an OSError.

    An error leaves nothing behind.
    """
    _write_local(target, data, 0o644, _replace)


def replace_file(temporary: Path, target: Path, mode: int | None = None) -> None:
    """Give a file that was written under a temporary name its own, so that it survives a power cut.

    A file of that name is replaced, and DuckDB's log of a program that wrote to it goes with it; without a mode its
    permissions stay.
    """
    handle = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(handle)
        if mode is not None:
            os.fchmod(handle, mode)
    finally:
        os.close(handle)
    os.replace(temporary, target)
    target.with_name(target.name + ".wal").unlink(missing_ok=True)
    fsync_folder(target.parent)


def remove_database(file: Path) -> None:
    """Delete a DuckDB file and its log, as far as that is possible."""
    for one in (file, file.with_name(file.name + ".wal")):
        with contextlib.suppress(OSError):
            one.unlink(missing_ok=True)


def _replace(temporary: Path, target: Path) -> bool:
    os.replace(temporary, target)
    return True


def _link(temporary: Path, target: Path) -> bool:
    """Give a file its name unless another file has it; the kernel ensures that only one gets it."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        if os.stat(temporary).st_nlink == 1:  # else NFS repeated a request whose answer was lost
            os.unlink(temporary)
            return False
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        if target.exists():
            os.unlink(temporary)
            return False
        return _replace(temporary, target)
    with contextlib.suppress(OSError):  # the file has its name; a sweep removes the temporary one
        os.unlink(temporary)
    return True


def _write_local(target: Path, data: bytes, mode: int, give_name: Callable[[Path, Path], bool]) -> bool:
    temporary = temporary_beside(target)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            _try_lock(handle)  # so that no sweep takes the file for that of a dead writer
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        named = give_name(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    fsync_folder(target.parent)  # also if another process wrote the file: readers rely on it from now on
    return named


def _not_listed(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise StoreError(f"cannot list {error.filename}: {error_line(error)}") from error


class LocalFiles:
    """A folder of this machine, or of a shared file system."""

    def __init__(self, root: str | Path) -> None:
        self.root = str(Path(root).absolute())

    def put(self, path: str, data: bytes) -> None:
        self._write(path, data, _replace)

    def create(self, path: str, data: bytes) -> bool:
        return self._write(path, data, _link)

    def _write(self, path: str, data: bytes, give_name: Callable[[Path, Path], bool]) -> bool:
        target = self._at(path)
        try:
            make_folder(target.parent)
            mode = private_mode(target.parent) if path.startswith(_PRIVATE) else 0o644
            return _write_local(target, data, mode, give_name)
        except OSError as exc:
            raise StoreError(f"cannot write {target}: {error_line(exc)}") from exc

    def get(self, path: str) -> bytes | None:
        with self._store_errors("read", path), contextlib.suppress(FileNotFoundError):
            return self._at(path).read_bytes()
        return None

    def stat(self, path: str) -> tuple[int, float] | None:
        with self._store_errors("look at", path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            result = self._at(path).stat()
            return result.st_size, result.st_mtime
        return None

    def walk(self, folder: str, suffix: str = "") -> Iterator[str]:
        for path in self._walk(folder):
            if path.endswith(suffix) and not TEMPORARY.search(path):
                yield path

    def stats(self, folder: str) -> Iterator[tuple[str, tuple[int, float]]]:
        for path in self._walk(folder):
            # a file may be renamed meanwhile
            with self._store_errors("look at", path), contextlib.suppress(FileNotFoundError):
                result = os.stat(f"{self.root}/{path}")
                yield path, (result.st_size, result.st_mtime)

    def move(self, path: str, target: str) -> None:
        with self._store_errors("move", path), contextlib.suppress(FileNotFoundError):
            make_folder(self._at(target).parent)
            os.replace(self._at(path), self._at(target))
            fsync_folder(self._at(target).parent)
            fsync_folder(self._at(path).parent)

    def delete(self, path: str) -> None:
        with self._store_errors("delete", path):
            self._at(path).unlink(missing_ok=True)

    def stale_temporaries(self, older_than_s: float) -> Iterator[str]:
        latest = time.time() - older_than_s
        for path in filter(TEMPORARY.search, list(self._walk("", onerror=None))):
            with contextlib.suppress(FileNotFoundError):  # its writer has finished, or another sweep was faster
                if self._at(path).stat().st_mtime <= latest and not self._being_written(path):
                    yield path

    @contextlib.contextmanager
    def _store_errors(self, what: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise StoreError(f"cannot {what} {self._at(path)}: {error_line(exc)}") from exc

    def _being_written(self, path: str) -> bool:
        with self._at(path).open("rb") as stream:
            return not _try_lock(stream.fileno())

    def _at(self, path: str) -> Path:
        return Path(self.root, path)

    def _walk(self, folder: str, onerror: Callable[[OSError], None] | None = _not_listed) -> Iterator[str]:
        for here, folders, names in os.walk(self._at(folder), onerror=onerror):
            folders.sort()
            prefix = here[len(self.root) :].strip("/")
            for name in sorted(names):
                yield f"{prefix}/{name}" if prefix else name
