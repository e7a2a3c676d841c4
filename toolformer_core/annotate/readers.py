"""Reads raw rows from corpus files of every format and compression.

A file is read as a stream: bytes to lines or array elements, record batches to rows (`columnar`). A row that cannot be
read becomes a `BadRow` with its reason. A file that is damaged or ends too early yields one last `BadRow`; the rows
before it are valid. Nothing here knows which column holds the text, or what a document is. The libraries for zst and
columnar files are imported on use.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from toolformer_core.annotate.columnar import arrow_rows, parquet_rows
from toolformer_core.annotate.json_array import BEHIND, CUT_OFF, Element, elements
from toolformer_core.annotate.raw_rows import BadRow, RawRow, printable
from toolformer_core.errors import CorpusError

__all__ = ["SUFFIXES", "array_row", "dataset_files", "rows_of", "suffix_of"]

_LINES = (".jsonl", ".json", ".ndjson")
SUFFIXES = (*_LINES, *(s + c for s in _LINES for c in (".gz", ".zst")), ".parquet", ".arrow")
_NOT_ROWS = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"})
_READ = 1 << 16  # bytes
_ZST_READ = 1 << 12  # bytes; less than _READ because a zst block of 4 bytes may expand to 128 KiB
_BOM = b"\xef\xbb\xbf"
_UNDECODED = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of bytes that are not UTF-8


class _TruncatedError(Exception):
    """The compressed file ends too early, or is damaged."""


def suffix_of(path: Path) -> str | None:
    """Return the suffix that decides how a file is read, one of `SUFFIXES`; None if it is not a corpus file."""
    name = path.name.lower()
    if name in _NOT_ROWS or name.startswith((".", "_")):
        return None
    return next((s for s in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(s)), None)


def dataset_files(folder: Path) -> list[Path] | None:
    """Return the Arrow files of a folder that `save_to_disk` wrote for one split; None if it is no such folder.

    Raises:
        CorpusError: its `state.json` cannot be read, or lists a missing file.
    """
    state = folder / "state.json"
    if not state.is_file() or not (folder / "dataset_info.json").is_file():
        return None
    try:
        names = [entry["filename"] for entry in json.loads(state.read_text("utf-8"))["_data_files"]]
    except (ValueError, KeyError, TypeError) as exc:
        raise CorpusError(f"{state} does not list the data set's files; save the data set again") from exc
    files = [folder / name for name in names]
    for file in files:
        if not file.is_file():
            raise CorpusError(f"{state} lists {file.name}, which is missing; copy it there, or save the data set again")
    return files


def rows_of(path: Path, max_line_bytes: int, columns: frozenset[str] | None = None) -> Iterator[RawRow | BadRow]:
    """Yield the rows of one file.

    Args:
        path: a file that `suffix_of` knows.
        max_line_bytes: a longer line of JSON is skipped without being held in memory.
        columns: the columns to read of a columnar file; None for all.
    """
    suffix = suffix_of(path)
    if suffix == ".parquet":
        yield from parquet_rows(path, columns)
    elif suffix == ".arrow":
        yield from arrow_rows(path, columns)
    elif suffix is not None and suffix.startswith(".json") and not suffix.startswith(".jsonl") and _holds_array(path):
        yield from _array_rows(path, max_line_bytes)
    else:
        yield from _json_rows(path, max_line_bytes)


# --- a JSON array -----------------------------------------------------------------------------------------------------


def _holds_array(path: Path) -> bool:
    """Return whether a file is one JSON array, and not JSON lines whose first line happens to be an array."""
    with path.open("rb") as file:
        lines = (line for _, line in _lines(_chunks(file, path.suffix.lower()), _READ))
        texts = (line.raw.encode() if isinstance(line, BadRow) else line.removeprefix(_BOM) for line in lines)
        first_lines = list(islice((text for text in texts if text.strip()), 2))
    if not first_lines or not first_lines[0].lstrip().startswith(b"["):
        return False
    try:
        first = json.loads(first_lines[0])
    except (ValueError, RecursionError):
        return True  # the array continues in the next line, or is broken
    return len(first_lines) == 1 or any(isinstance(element, dict) for element in first)


def _array_rows(path: Path, max_bytes: int) -> Iterator[RawRow | BadRow]:
    line = 1
    with path.open("rb") as file:
        decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        texts = (decoder.decode(chunk) for chunk in _chunks(file, path.suffix.lower()))
        try:
            for element in elements(_after_bracket(texts), max_bytes):
                line = element.line
                yield array_row(element, max_bytes)
        except _TruncatedError as exc:
            yield BadRow(line, "truncated", f"{exc}; in or behind the row that starts here")


def _after_bracket(texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        before, bracket, after = text.partition("[")
        yield "\n" * before.count("\n")  # lines are counted from the start of the file
        if bracket:
            yield after
            break
    yield from texts


def array_row(element: Element, max_characters: int) -> RawRow | BadRow:
    """Return an element of a JSON array as a row, or as a bad row with the reason."""
    raw = element.text.encode("utf-8", "surrogateescape")
    if element.characters > max_characters:
        return BadRow(element.line, "too_long", f"a row of {element.characters} characters", printable(raw))
    if element.state == CUT_OFF:
        detail = (
            f"a quote or bracket of this row is not closed: {element.characters:,} characters from here on are no rows"
        )
        if not raw:
            detail = "the file ends before the array does"
        return BadRow(element.line, "truncated", detail, printable(raw))
    if element.state == BEHIND:
        return BadRow(element.line, "broken_json", "this stands behind the end of the array", printable(raw))
    if not raw:
        return BadRow(element.line, "broken_json", "nothing stands between two commas")
    if _UNDECODED.search(element.text):
        return BadRow(element.line, "not_utf8", "a byte of the row is no UTF-8", printable(raw))
    try:
        return RawRow(element.line, json.loads(element.text), raw)
    except (ValueError, RecursionError) as exc:
        return BadRow(element.line, "broken_json", str(exc)[:200], printable(raw))


# --- lines ------------------------------------------------------------------------------------------------------------


def _json_rows(path: Path, max_line_bytes: int) -> Iterator[RawRow | BadRow]:
    with path.open("rb") as file:
        for number, line in _lines(_chunks(file, path.suffix.lower()), max_line_bytes):
            if isinstance(line, BadRow):
                yield line
                continue
            line = line.removeprefix(_BOM).rstrip(b"\r")
            if not line.strip():
                yield BadRow(number, "blank", "the line is empty")
                continue
            try:
                yield RawRow(number, json.loads(line.decode("utf-8")), line)
            except UnicodeDecodeError as exc:
                yield BadRow(number, "not_utf8", f"byte {exc.start}: {exc.reason}", printable(line))
            except (ValueError, RecursionError) as exc:
                yield BadRow(number, "broken_json", str(exc)[:200], printable(line))


def _lines(chunks: Iterator[bytes], max_bytes: int) -> Iterator[tuple[int, bytes | BadRow]]:
    """Split chunks at line feeds, holding at most one chunk and one line of `max_bytes` in memory."""
    number, size = 1, 0
    parts: list[bytes] = []  # of the current line

    def current_line() -> bytes | BadRow:
        if size <= max_bytes:
            return b"".join(parts)
        return BadRow(number, "too_long", f"a line of {size} bytes", printable(b"".join(parts)))

    try:
        for chunk in chunks:
            first, *rest = chunk.split(b"\n")
            for i, part in enumerate((first, *rest)):
                if i:
                    yield number, current_line()
                    number, parts, size = number + 1, [], 0
                size += len(part)
                if size <= max_bytes:
                    parts.append(part)
    except _TruncatedError as exc:
        yield number, BadRow(number, "truncated", str(exc), printable(b"".join(parts)))
        return
    if size:
        yield number, current_line()


def _chunks(file: BinaryIO, suffix: str) -> Iterator[bytes]:
    if suffix == ".gz":
        # 31 = 15 window bits + 16 for the gzip header
        return _inflate(file, lambda: zlib.decompressobj(31), _READ, (zlib.error,))
    if suffix == ".zst":
        import zstandard

        opener = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        return _inflate(file, opener.decompressobj, _ZST_READ, (zstandard.ZstdError,))
    return iter(lambda: file.read(_READ), b"")


def _inflate(
    file: BinaryIO, opener: Callable[[], Any], read: int, damage: tuple[type[Exception], ...]
) -> Iterator[bytes]:
    """Decompress one or more consecutive streams; zero bytes after a stream are padding."""
    stream, started = opener(), False
    for data in iter(lambda: file.read(read), b""):
        while data:
            if not started:
                data = data.lstrip(b"\0")
                started = bool(data)
            if not data:
                break
            try:
                out = stream.decompress(data)
            except damage as exc:
                raise _TruncatedError(f"damaged: {exc}") from exc
            if out:
                yield out
            data = stream.unused_data if stream.eof else b""
            if stream.eof:
                stream, started = opener(), False
    if started:
        raise _TruncatedError("the compressed file ends in mid-stream")
