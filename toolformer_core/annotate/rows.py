"""Raw rows out of corpus files, whatever their format and compression, for `ingest` alone.

A file is read as a stream: bytes to lines, or record batches to rows. What cannot be read is a `BadRow` with its
reason; a file that breaks off yields one last `BadRow` and ends, as everything in front of it is sound. Nothing here
knows which column is the text, or what a document is. The readers of zst and columnar files are imported on use.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from toolformer_core.annotate.json_array import BEHIND, CUT_OFF, Element, elements
from toolformer_core.errors import CorpusError

__all__ = ["SUFFIXES", "BadRow", "Row", "array_row", "dataset_files", "kind_of", "rows_of"]

_LINES = (".jsonl", ".json", ".ndjson")
SUFFIXES = (*_LINES, *(s + c for s in _LINES for c in (".gz", ".zst")), ".parquet", ".arrow")
_NOT_ROWS = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"})
_BATCH = 256  # rows
_READ = 1 << 16  # bytes
_ZST_READ = 1 << 12  # bytes: one zst block of 4 bytes may hold 128 KiB, so little is taken at a time
_BOM = b"\xef\xbb\xbf"
_RAW_CHARS = 2_000
_UNDECODED = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of bytes that are no UTF-8
_NO_VALUE = (ValueError, OverflowError, KeyError)  # bytes that are no text, dates out of range, unknown time zones


@dataclass(frozen=True, slots=True)
class Row:
    """A row that could be read: a JSON value, or a dict by column."""

    line: int  # from 1
    value: Any
    source_bytes: bytes | None = None  # the line as it stood in the file; None for columnar files
    columns: tuple[str, ...] = ()  # all that a columnar file has, read or not

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the row, or of the file it comes from."""
        return self.columns or (tuple(map(str, self.value)) if isinstance(self.value, dict) else ())

    @property
    def raw(self) -> str:
        """The start of the row, printable and at most 2,000 characters."""
        if self.source_bytes is not None:
            return printable(self.source_bytes)
        return json.dumps(self.value, default=str)[:_RAW_CHARS]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read."""

    line: int
    reason: str  # blank | broken_json | not_utf8 | too_long | truncated
    detail: str
    raw: str = ""


class _BrokenOffError(Exception):
    """The compressed file ends in mid-stream, or is damaged."""


def printable(data: bytes) -> str:
    """Return the start of a line, undecodable bytes escaped."""
    return data[: 4 * _RAW_CHARS].decode("utf-8", "backslashreplace")[:_RAW_CHARS]


def kind_of(path: Path) -> str | None:
    """Return the suffix by which a file is read, one of `SUFFIXES`, or None if it is no corpus file."""
    name = path.name.lower()
    if name in _NOT_ROWS or name.startswith((".", "_")):
        return None
    return next((s for s in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(s)), None)


def dataset_files(folder: Path) -> list[Path] | None:
    """Return the Arrow files of a folder that `save_to_disk` wrote for one split, or None if it is none.

    Raises:
        CorpusError: its `state.json` cannot be read, or lists a file that is not there.
    """
    state = folder / "state.json"
    if not state.is_file() or not (folder / "dataset_info.json").is_file():
        return None
    try:
        names = [entry["filename"] for entry in json.loads(state.read_text("utf-8"))["_data_files"]]
    except (ValueError, KeyError, TypeError) as exc:
        raise CorpusError(f"{state} does not list the data set's files") from exc
    files = [folder / name for name in names]
    for file in files:
        if not file.is_file():
            raise CorpusError(f"{state} lists {file.name}, which is not there")
    return files


def rows_of(path: Path, max_line_bytes: int, columns: frozenset[str] | None = None) -> Iterator[Row | BadRow]:
    """Yield the rows of one file.

    Args:
        path: a file that `kind_of` knows.
        max_line_bytes: a longer line of JSON is skipped without being held.
        columns: of a columnar file, only these are read; None for all.
    """
    kind = kind_of(path)
    if kind == ".parquet":
        yield from _parquet_rows(path, columns)
    elif kind == ".arrow":
        yield from _arrow_rows(path, columns)
    elif kind is not None and kind.startswith(".json") and not kind.startswith(".jsonl") and _holds_array(path):
        yield from _array_rows(path, max_line_bytes)
    else:
        yield from _json_rows(path, max_line_bytes)


# --- a JSON array -----------------------------------------------------------------------------------------------------


def _holds_array(path: Path) -> bool:
    """True if a file is one JSON array. JSON lines may begin with a line that is an array of no rows, and go on."""
    with path.open("rb") as file:
        lines = (line for _, line in _lines(_chunks(file, path.suffix.lower()), _READ))
        texts = (line.raw.encode() if isinstance(line, BadRow) else line.removeprefix(_BOM) for line in lines)
        found = list(islice((text for text in texts if text.strip()), 2))
    if not found or not found[0].lstrip().startswith(b"["):
        return False
    try:
        first = json.loads(found[0])
    except (ValueError, RecursionError):
        return True  # the array goes on in the next line, or is broken
    return len(found) == 1 or any(isinstance(one, dict) for one in first)


def _array_rows(path: Path, max_bytes: int) -> Iterator[Row | BadRow]:
    line = 1
    with path.open("rb") as file:
        decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        texts = (decoder.decode(chunk) for chunk in _chunks(file, path.suffix.lower()))
        try:
            for element in elements(_behind_bracket(texts), max_bytes):
                line = element.line
                yield array_row(element, max_bytes)
        except _BrokenOffError as exc:
            yield BadRow(line, "truncated", f"{exc}; in or behind the row that starts here")


def _behind_bracket(texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        before, bracket, behind = text.partition("[")
        yield "\n" * before.count("\n")  # lines are counted from the file's start
        if bracket:
            yield behind
            break
    yield from texts


def array_row(element: Element, max_characters: int) -> Row | BadRow:
    """Return the row that an element of a JSON array is, or why it is none."""
    raw = element.text.encode("utf-8", "surrogateescape")
    if element.characters > max_characters:
        return BadRow(element.line, "too_long", f"a row of {element.characters} characters", printable(raw))
    if element.state == CUT_OFF:
        why = (
            f"a quote or bracket of this row is not closed: {element.characters:,} characters from here on are no rows"
        )
        if not raw:
            why = "the file ends before the array does"
        return BadRow(element.line, "truncated", why, printable(raw))
    if element.state == BEHIND:
        return BadRow(element.line, "broken_json", "this stands behind the end of the array", printable(raw))
    if not raw:
        return BadRow(element.line, "broken_json", "nothing stands between two commas")
    if _UNDECODED.search(element.text):
        return BadRow(element.line, "not_utf8", "a byte of the row is no UTF-8", printable(raw))
    try:
        return Row(element.line, json.loads(element.text), raw)
    except (ValueError, RecursionError) as exc:
        return BadRow(element.line, "broken_json", str(exc)[:200], printable(raw))


# --- lines ------------------------------------------------------------------------------------------------------------


def _json_rows(path: Path, max_line_bytes: int) -> Iterator[Row | BadRow]:
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
                yield Row(number, json.loads(line.decode("utf-8")), line)
            except UnicodeDecodeError as exc:
                yield BadRow(number, "not_utf8", f"byte {exc.start}: {exc.reason}", printable(line))
            except (ValueError, RecursionError) as exc:
                yield BadRow(number, "broken_json", str(exc)[:200], printable(line))


def _lines(chunks: Iterator[bytes], max_bytes: int) -> Iterator[tuple[int, bytes | BadRow]]:
    """Split chunks at line feeds, holding at most one chunk and one line of `max_bytes`."""
    number, size = 1, 0
    held: list[bytes] = []

    def taken() -> bytes | BadRow:
        if size <= max_bytes:
            return b"".join(held)
        return BadRow(number, "too_long", f"a line of {size} bytes", printable(b"".join(held)))

    try:
        for chunk in chunks:
            first, *rest = chunk.split(b"\n")
            for i, part in enumerate((first, *rest)):
                if i:
                    yield number, taken()
                    number, held, size = number + 1, [], 0
                size += len(part)
                if size <= max_bytes:
                    held.append(part)
    except _BrokenOffError as exc:
        yield number, BadRow(number, "truncated", str(exc), printable(b"".join(held)))
        return
    if size:
        yield number, taken()


def _chunks(file: BinaryIO, suffix: str) -> Iterator[bytes]:
    if suffix == ".gz":
        # 15 window bits, and 16 for the gzip header
        return _inflate(file, lambda: zlib.decompressobj(31), _READ, (zlib.error,))
    if suffix == ".zst":
        import zstandard

        opener = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        return _inflate(file, opener.decompressobj, _ZST_READ, (zstandard.ZstdError,))
    return iter(lambda: file.read(_READ), b"")


def _inflate(
    file: BinaryIO, opener: Callable[[], Any], read: int, damage: tuple[type[Exception], ...]
) -> Iterator[bytes]:
    """Decompress one or more streams that follow each other; zero bytes behind one are padding."""
    stream, begun = opener(), False
    for data in iter(lambda: file.read(read), b""):
        while data:
            if not begun:
                data = data.lstrip(b"\0")
                begun = bool(data)
            if not data:
                break
            try:
                out = stream.decompress(data)
            except damage as exc:
                raise _BrokenOffError(f"damaged: {exc}") from exc
            if out:
                yield out
            data = stream.unused_data if stream.eof else b""
            if stream.eof:
                stream, begun = opener(), False
    if begun:
        raise _BrokenOffError("the compressed file ends in mid-stream")


# --- columns ----------------------------------------------------------------------------------------------------------


def _parquet_rows(path: Path, columns: frozenset[str] | None) -> Iterator[Row | BadRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    done = 0
    try:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            every = tuple(file.schema_arrow.names)
            names = [n for n in every if columns is None or n in columns]
            for batch in file.iter_batches(batch_size=_BATCH, columns=names):
                _check(batch)
                yield from _batch_rows(batch, done, every)
                done += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:  # the last: a column's name is damaged
        yield BadRow(done + 1, "truncated", str(exc)[:200])


def _arrow_rows(path: Path, columns: frozenset[str] | None) -> Iterator[Row | BadRow]:
    import pyarrow as pa

    done = 0
    try:
        with pa.memory_map(os.fsencode(path)) as file:
            try:
                batches = pa.ipc.open_stream(file)
            except pa.ArrowInvalid:  # the file format, with its footer, rather than the stream
                reader = pa.ipc.open_file(file)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            for batch in batches:
                # by number: a name may stand twice in a schema, and the last one counts, as in Parquet and JSON
                chosen = [i for i, n in enumerate(batch.schema.names) if columns is None or n in columns]
                wanted = batch.select(chosen)
                _check(wanted)
                for at in range(0, batch.num_rows, _BATCH):
                    yield from _batch_rows(wanted.slice(at, _BATCH), done + at, tuple(batch.schema.names))
                done += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:  # the last: a column's name is damaged
        yield BadRow(done + 1, "truncated", str(exc)[:200])


def _check(batch: Any) -> None:
    """Look at a batch's memory before any value is taken out of it: an offset out of bounds would end the process.

    Texts are looked at as bytes, since one that is no UTF-8 costs a row and not the file.

    Raises:
        pyarrow.ArrowInvalid: a length, an offset or an index leads out of the batch's memory.
    """
    for column in batch.columns:
        _bytes_of(column).validate(full=True)


def _bytes_of(column: Any) -> Any:
    """Return a column with binary in the place of every string, over the same memory.

    As it is where Arrow cannot view it so, as with an extension type inside a list.
    """
    import pyarrow as pa

    if isinstance(column, pa.ExtensionArray):  # which cannot be viewed; what it stores can
        column = column.storage
    if isinstance(column, pa.DictionaryArray):
        column.indices.validate(full=True)
        return pa.DictionaryArray.from_arrays(column.indices, _bytes_of(column.dictionary), safe=True)
    kind = _as_bytes(column.type)
    if kind == column.type:
        return column
    try:
        return column.view(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column


def _as_bytes(kind: Any) -> Any:
    """Return the type with binary in the place of every string, and of an extension type what it stores."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _as_bytes(kind.storage_type)
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_string_view(kind):
        return pa.binary_view()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_as_bytes(kind.key_type), _as_bytes(kind.item_type), kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_bytes(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_as_bytes(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_as_bytes(kind.value_type)), kind.list_size)
    return kind


def _batch_rows(batch: Any, done: int, columns: tuple[str, ...]) -> Iterator[Row | BadRow]:
    try:
        rows = batch.to_pylist()
    except _NO_VALUE:  # find out which of the rows
        for i in range(batch.num_rows):
            try:
                value = {name: _value(batch.column(c)[i]) for c, name in enumerate(batch.schema.names)}
                yield Row(done + i + 1, value, columns=columns)
            except UnicodeDecodeError as exc:
                yield BadRow(done + i + 1, "not_utf8", f"byte {exc.start}: {exc.reason}", printable(exc.object))
        return
    for i, row in enumerate(rows):
        yield Row(done + i + 1, row, columns=columns)


def _value(scalar: Any) -> Any:
    """The value of a cell; None if Python has none for it, like the year 200,000."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        raise
    except _NO_VALUE:
        return None
