"""Reads JSON lines, all of a file or a range of it, and cuts a stream into lines."""

import json
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.compression import TruncatedError, open_chunks

BOM = b"\xef\xbb\xbf"
_READ = 1 << 16  # bytes


@dataclass(frozen=True, slots=True)
class LineRange:
    """The lines of a file that begin at one of its bytes from `start` to before `end`."""

    start: int
    end: int
    lines_before: int  # line feeds before `start`

    def first_line(self, path: Path) -> int:
        with path.open("rb") as file:
            return self.lines_before + 1 + (_next_line(file, self.start) > self.start)

    def chunks(self, path: Path) -> Generator[bytes]:
        with path.open("rb") as file:
            end = _next_line(file, self.end)
            file.seek(_next_line(file, self.start))
            while data := file.read(min(_READ, end - file.tell())):
                yield data


def _next_line(file: BinaryIO, at: int) -> int:
    """Return where the first line begins that begins at a byte or after it; a file's length if there is none."""
    if at == 0:
        return 0
    file.seek(at - 1)
    while (data := file.readline(_READ)) and not data.endswith(b"\n"):
        pass
    return file.tell()


def json_rows(path: Path, max_line_bytes: int, part: LineRange | None = None) -> Iterator[RawRow | BadRow]:
    first = part.first_line(path) if part is not None else 1
    with closing(part.chunks(path) if part is not None else open_chunks(path)) as chunks:
        for number, line in lines_of(chunks, max_line_bytes, first):
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


def lines_of(chunks: Iterator[bytes], max_bytes: int, number: int = 1) -> Iterator[tuple[int, bytes | BadRow]]:
    """Split chunks at line feeds, holding at most one chunk and one line of `max_bytes`; lines count from `number`."""
    size = 0
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
                parts.append(part[: max(0, max_bytes + 1 - size)])
                size += len(part)
    except TruncatedError as exc:
        yield number, BadRow(number, "truncated", str(exc), printable(b"".join(parts)))
        return
    if size:
        yield number, current_line()
