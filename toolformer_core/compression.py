"""Reads compressed files as a stream of bytes: .gz, .zst, .bz2 and .xz, told apart by their last suffix.

A file may hold several streams one after the other. What is decompressed comes in chunks of bounded size.
"""

import zlib
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")

_READ = 1 << 16  # bytes
_ZST_READ = 1 << 12  # bytes; less than _READ because a zst block of 4 bytes may expand to 128 KiB
_GZ_WRITE = 1 << 20  # bytes; what one chunk may expand to
_XZ_MEMORY = 1 << 30  # bytes that a decoder may take; `xz -9` makes files that need 65 MiB


class TruncatedError(Exception):
    """The compressed file ends too early, or is damaged."""


def without_compression(name: str) -> str:
    """Return a file name without the suffix of its compression."""
    return next((name[: -len(suffix)] for suffix in COMPRESSIONS if name.lower().endswith(suffix)), name)


def chunks_of(file: BinaryIO, suffix: str) -> Iterator[bytes]:
    """Yield what an open file holds, decompressed by its suffix; a TruncatedError after all before the damage."""
    if suffix == ".gz":
        # 31 = 15 window bits + 16 for the gzip header
        return _inflate(file, partial(zlib.decompressobj, 31), _READ, (zlib.error,), _tail_by_tail)
    if suffix == ".zst":
        import zstandard

        opener = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        return _inflate(file, opener.decompressobj, _ZST_READ, (zstandard.ZstdError,), _at_once)
    if suffix == ".bz2":
        import bz2

        return _inflate(file, bz2.BZ2Decompressor, _READ, (OSError, ValueError), _piece_by_piece)
    if suffix == ".xz":
        import lzma

        xz = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        return _inflate(file, xz, _READ, (lzma.LZMAError,), _piece_by_piece)
    return iter(partial(file.read, _READ), b"")


def _at_once(stream: Any, data: bytes) -> Iterator[bytes]:
    yield stream.decompress(data)


def _tail_by_tail(stream: Any, data: bytes) -> Iterator[bytes]:
    full = True
    while not stream.eof and (data or full):
        out = stream.decompress(data, _GZ_WRITE)
        yield out
        data, full = stream.unconsumed_tail, len(out) == _GZ_WRITE


def _piece_by_piece(stream: Any, data: bytes) -> Iterator[bytes]:
    """Decompress with a bound on each piece: 50 bytes of bz2 may stand for megabytes."""
    yield stream.decompress(data, _READ)
    while not stream.eof and not stream.needs_input:
        yield stream.decompress(b"", _READ)


def _inflate(
    file: BinaryIO,
    opener: Callable[[], Any],
    read: int,
    damage: tuple[type[Exception], ...],
    pieces: Callable[[Any, bytes], Iterator[bytes]],
) -> Iterator[bytes]:
    """Decompress one or more consecutive streams; zero bytes after a stream are padding."""
    stream, started = opener(), False
    for data in iter(partial(file.read, read), b""):
        while data := data if started else data.lstrip(b"\0"):
            started = True
            try:
                yield from filter(None, pieces(stream, data))
            except damage as exc:
                raise TruncatedError(f"damaged: {exc}") from exc
            data = stream.unused_data if stream.eof else b""
            if stream.eof:
                stream, started = opener(), False
    if started:
        raise TruncatedError("the compressed file ends in mid-stream")


def open_chunks(path: Path) -> Generator[bytes]:
    """Yield what the file at a path holds, decompressed as its name says; see `chunks_of`."""
    with path.open("rb") as file:
        yield from chunks_of(file, path.suffix.lower())
