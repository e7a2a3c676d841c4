"""The store's file operations on anything that `pyarrow.fs` reaches, and which operations a path or a URL needs.

Object stores write an object in one piece. On S3 `create` puts it on the condition that there is none, which botocore
can do (the extra `s3`) and Arrow cannot. Elsewhere it looks first; of two processes that write in the same moment, the
later file stays.
"""

import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from warehouse.errors import StoreError
from warehouse.files.base import TEMPORARY, Files, LocalFiles, temporary_beside

# Object stores have no folders; creating one would only leave a marker object.
_NO_FOLDERS = frozenset({"s3", "gcs", "abfs"})
_PUBLIC = ("endpoint_override", "region", "scheme")  # options of a URL that are no secrets
_TRIES = 5  # S3 answers with a conflict while another put of the same object is in progress
# Creates the object `bucket/key`: True if it was created, False if there is one, None if the server cannot do that.
CreateObject = Callable[[str, bytes], bool | None]


class RemoteFiles:
    """Anything that a `pyarrow.fs` URL names; `base` is the root's path within that file system."""

    def __init__(self, root: str, filesystem: Any, base: str, create_object: CreateObject | None = None) -> None:
        self.root = root.rstrip("/")
        self._fs = filesystem
        self._base = base.rstrip("/")
        self._create_object = create_object

    def put(self, path: str, data: bytes) -> None:
        target = self._at(path)
        with self._store_errors("write", path):
            if self._fs.type_name in _NO_FOLDERS:
                self._write(target, data)
            else:  # here others would see a half-written file
                self._fs.create_dir(str(PurePosixPath(target).parent), recursive=True)
                temporary = str(temporary_beside(PurePosixPath(target)))
                self._write(temporary, data)
                self._fs.move(temporary, target)

    def create(self, path: str, data: bytes) -> bool:
        if self._create_object is not None:
            created = self._create_object(self._at(path), data)
            if created is not None:
                return created
        if self.stat(path) is not None:
            return False
        self.put(path, data)
        return True

    def _write(self, target: str, data: bytes) -> None:
        with self._fs.open_output_stream(target) as stream:
            stream.write(data)

    def get(self, path: str) -> bytes | None:
        with (
            self._store_errors("read", path),
            suppress(FileNotFoundError),
            self._fs.open_input_stream(self._at(path)) as stream,
        ):
            return bytes(stream.read())
        return None

    def stat(self, path: str) -> tuple[int, float] | None:
        with self._store_errors("look at", path):
            info = self._fs.get_file_info(self._at(path))
        return _stat(info) if info.type == pafs.FileType.File else None

    def walk(self, folder: str, suffix: str = "") -> Iterator[str]:
        for path, _ in sorted(self.stats(folder)):
            if path.endswith(suffix) and not TEMPORARY.search(path):
                yield path

    def stats(self, folder: str) -> Iterator[tuple[str, tuple[int, float]]]:
        """See `Files`; an object store answers for a thousand files at once."""
        selector = pafs.FileSelector(self._at(folder), allow_not_found=True, recursive=True)
        with self._store_errors("list", folder):
            infos = self._fs.get_file_info(selector)
        for info in infos:
            if info.type == pafs.FileType.File:
                yield info.path[len(self._base) + 1 :], _stat(info)

    def get_range(self, path: str, start: int, length: int) -> bytes | None:
        """Return `length` bytes of a file from a position, fewer at its end; None if there is no such file."""
        with (
            self._store_errors("read", path),
            suppress(FileNotFoundError),
            self._fs.open_input_file(self._at(path)) as stream,
        ):
            return bytes(stream.read_at(length, start))
        return None

    def move(self, path: str, target: str) -> None:
        data = self.get(path)
        if data is not None:
            self.put(target, data)
            self.delete(path)

    def delete(self, path: str) -> None:
        with self._store_errors("delete", path), suppress(FileNotFoundError):
            self._fs.delete_file(self._at(path))

    def stale_temporaries(self, older_than_s: float) -> Iterator[str]:
        if self._fs.type_name in _NO_FOLDERS:
            return
        latest = time.time() - older_than_s
        yield from sorted(path for path, stat in self.stats("") if TEMPORARY.search(path) and stat[1] <= latest)

    @contextmanager
    def _store_errors(self, what: str, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as exc:
            raise StoreError(f"cannot {what} {self.root}/{path}: {exc}") from exc

    def _at(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base


def _stat(info: Any) -> tuple[int, float]:
    return int(info.size), info.mtime.timestamp() if info.mtime is not None else math.inf


def open_files(url: str | Path) -> Files:
    """Return the file operations for a local path or a URL: `file://`, `s3://`, `gs://`, ..., or any that fsspec knows.

    The query names another S3 server than Amazon's: `s3://bucket/folder?endpoint_override=host:9000&scheme=http`. A
    StoreError says that the scheme is unknown, or that its place cannot be reached.
    """
    text = str(url)
    if "://" not in text:
        return LocalFiles(text)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return LocalFiles(unquote(parts.path))
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"  # messages must not show keys of the URL
    try:
        filesystem, base = _file_system(text)
    except (OSError, ValueError, ImportError, pa.ArrowException) as exc:
        raise StoreError(f"cannot open {shown}: {type(exc).__name__}") from exc
    create_object = object_creator(text, filesystem.region) if isinstance(filesystem, pafs.S3FileSystem) else None
    return RemoteFiles(shown, filesystem, base, create_object)


def object_creator(url: str, region: str) -> CreateObject | None:
    """Return a function that creates objects below an S3 URL, with its keys; None if botocore is not installed."""
    if importlib.util.find_spec("botocore") is None:
        return None
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    options: dict[str, Any] = {}
    if server := query.get("endpoint_override"):
        options["endpoint_url"] = f"{query.get('scheme', 'https')}://{server}"
    if parts.username and parts.password:
        options |= {"aws_access_key_id": unquote(parts.username), "aws_secret_access_key": unquote(parts.password)}
    config = Config(
        s3={"addressing_style": "path"} if server else {},
        request_checksum_calculation="when_required",  # not every other server knows Amazon's newer checksums
        response_checksum_validation="when_required",
    )
    client = botocore.session.get_session().create_client("s3", region_name=region, config=config, **options)

    def create(path: str, data: bytes) -> bool | None:
        bucket, _, key = path.partition("/")
        for left in reversed(range(_TRIES)):
            try:
                client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
                return True
            except (BotoCoreError, ClientError) as exc:
                status = exc.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(exc, ClientError) else 0
                if status in (412, 501):  # there is one; the server knows no such condition
                    return False if status == 412 else None
                if status != 409 or not left:
                    raise StoreError(f"cannot write s3://{path}: {exc}") from exc
        raise AssertionError  # the last try returns or raises

    return create


def public_url(url: str) -> str:
    """Return a data folder's URL with the options that opening it again needs, and without credentials."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    query = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name in _PUBLIC], safe=":/")
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" + (f"?{query}" if query else "")


def _file_system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs
    from fsspec.registry import known_implementations

    if url.startswith("s3://"):  # Arrow has no option for it; servers that do not know `aws-chunked` refuse the default
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    try:
        filesystem, base = pafs.FileSystem.from_uri(url)
    except pa.ArrowInvalid:
        if urlsplit(url).scheme not in known_implementations:
            raise
        filesystem, base = url_to_fs(url)
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
    return filesystem, base
