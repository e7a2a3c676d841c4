"""Reads JSON lines, and cuts a stream into lines; of a line that is too long only the start is held."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.compression import TruncatedError, open_chunks

BOM = b"\xef\xbb\xbf"


def json_rows(path: Path, max_line_bytes: int) -> Iterator[RawRow | BadRow]:
    """Yield the rows of a file of JSON lines."""
    with closing(open_chunks(path)) as chunks:
        for number, line in lines_of(chunks, max_line_bytes):
            if isinstance(line, BadRow):
                yield line
                continue
            line = line.removeprefix(BOM).rstrip(b"\r")
            if not line.strip():
                yield BadRow(number, "blank", "the line is empty")
                continue
            try:
                yield RawRow(number, json.loads(line.decode("utf-8")), line)
            except UnicodeDecodeError as exc:
                yield BadRow(number, "not_utf8", f"byte {exc.start}: {exc.reason}", printable(line))
            except (ValueError, RecursionError) as exc:
                yield BadRow(number, "broken_json", str(exc)[:200], printable(line))


def lines_of(chunks: Iterator[bytes], max_bytes: int) -> Iterator[tuple[int, bytes | BadRow]]:
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
    except TruncatedError as exc:
        yield number, BadRow(number, "truncated", str(exc), printable(b"".join(parts)))
        return
    if size:
        yield number, current_line()
