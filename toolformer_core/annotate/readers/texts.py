"""Reads plain text: a row is the whole file, a paragraph or a line, in a column `text`.

    | unit      | a row is                                                              | a blank line            |
    |-----------|-----------------------------------------------------------------------|-------------------------|
    | file      | the file without a byte order mark and without the end of its last line | is part of it         |
    | paragraph | consecutive lines that are not blank                                  | ends a paragraph        |
    | line      | a line without its end                                                | is a bad row, `blank`   |

Nothing else is changed. A row is not held beyond the limit of its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from toolformer_core.annotate.readers.lines import BOM, lines_of
from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.compression import TruncatedError, open_chunks


def text_rows(path: Path, max_bytes: int, unit: str) -> Iterator[RawRow | BadRow]:
    """Yield the rows of a text file.

    Args:
        path: the file.
        max_bytes: a longer row is skipped without being held.
        unit: `file`, `paragraph` or `line`.
    """
    with closing(open_chunks(path)) as chunks:
        if unit == "file":
            yield _whole(chunks, max_bytes)
        elif unit == "line":
            for number, line in lines_of(chunks, max_bytes):
                yield line if isinstance(line, BadRow) else _line(number, line)
        else:
            yield from _paragraphs(chunks, max_bytes)


def _whole(chunks: Iterator[bytes], max_bytes: int) -> RawRow | BadRow:
    parts: list[bytes] = []
    size = 0
    try:
        for chunk in chunks:
            size += len(chunk)
            if size <= max_bytes:
                parts.append(chunk)
    except TruncatedError as exc:
        return BadRow(1, "truncated", str(exc), printable(b"".join(parts)))
    if size > max_bytes:
        return BadRow(1, "too_long", f"a file of {size} bytes", printable(b"".join(parts)))
    return _row(1, b"".join(parts).removesuffix(b"\n").removesuffix(b"\r"))


def _line(number: int, line: bytes) -> RawRow | BadRow:
    line = line.removesuffix(b"\r")
    if _is_blank(number, line):
        return BadRow(number, "blank", "the line is empty")
    return _row(number, line)


def _paragraphs(chunks: Iterator[bytes], max_bytes: int) -> Iterator[RawRow | BadRow]:
    first, size = 1, 0
    parts: list[bytes] = []

    def paragraph() -> RawRow | BadRow:
        if size > max_bytes:
            return BadRow(
                first, "too_long", f"a paragraph of more than {max_bytes} bytes", printable(b"\n".join(parts))
            )
        return _row(first, b"\n".join(parts).removesuffix(b"\r"))

    for number, line in lines_of(chunks, max_bytes):
        if isinstance(line, BadRow) and line.reason == "truncated":  # it takes with it the paragraph it stands in
            yield BadRow(first if size else number, "truncated", line.detail, printable(b"\n".join(parts)) or line.raw)
            return
        if not isinstance(line, BadRow) and _is_blank(number, line):
            if size:
                yield paragraph()
            parts, size = [], 0
            continue
        first = first if size else number
        part = line.raw.encode() if isinstance(line, BadRow) else line
        size += max_bytes + 1 if isinstance(line, BadRow) else len(line) + bool(size)
        if size <= max_bytes or not parts:
            parts.append(part)
    if size:
        yield paragraph()


def _is_blank(number: int, line: bytes) -> bool:
    return not (line.removeprefix(BOM) if number == 1 else line).strip()


def _row(number: int, data: bytes) -> RawRow | BadRow:
    data = data.removeprefix(BOM) if number == 1 else data
    try:
        return RawRow(number, {"text": data.decode("utf-8")}, data)
    except UnicodeDecodeError as exc:
        return BadRow(number, "not_utf8", f"byte {exc.start}: {exc.reason}", printable(data))
