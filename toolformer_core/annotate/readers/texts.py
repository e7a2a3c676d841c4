"""Reads plain text: a row is the whole file, in a column `text`.

The file loses a byte order mark and the end of its last line, and nothing else. It is not held beyond the limit of its
length.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from toolformer_core.annotate.readers.lines import BOM
from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.compression import TruncatedError, open_chunks


def text_rows(path: Path, max_bytes: int) -> Iterator[RawRow | BadRow]:
    """Yield the row of a text file; a longer one than `max_bytes` is bad, and is not held."""
    parts: list[bytes] = []
    size = 0
    with closing(open_chunks(path)) as chunks:
        try:
            for chunk in chunks:
                size += len(chunk)
                if size <= max_bytes:
                    parts.append(chunk)
        except TruncatedError as exc:
            yield BadRow(1, "truncated", str(exc), printable(b"".join(parts)))
            return
    data = b"".join(parts)
    if size > max_bytes:
        yield BadRow(1, "too_long", f"a file of {size} bytes", printable(data))
        return
    text = data.removesuffix(b"\n").removesuffix(b"\r").removeprefix(BOM)
    try:
        yield RawRow(1, {"text": text.decode("utf-8")}, text)
    except UnicodeDecodeError as exc:
        yield BadRow(1, "not_utf8", f"byte {exc.start}: {exc.reason}", printable(text))
