"""Reads CSV and TSV: the first record names the columns, each other record is a row of texts.

Python's `csv` module takes fields apart; where a record ends is found here, with the module's own rules, so that a
record is never held beyond the limit and a broken one costs no other.

    | delimiter | in                                                                       |
    |-----------|--------------------------------------------------------------------------|
    | tab       | .tsv, and .csv whose first line holds one and no comma                   |
    | semicolon | .csv whose first line holds one, and neither a comma nor a tab           |
    | comma     | every other .csv                                                         |
    | any       | a file whose first line is `sep=` and the delimiter, as Excel writes it  |

The first 64 KiB decide for the whole file whether a carriage return alone ends its lines, and whether backslashes
escape quotes (a quoted field holds a quote after a backslash, where a doubled one should be).
"""

import csv
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path

from toolformer_core.annotate.readers.lines import BOM
from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.compression import TruncatedError, open_chunks, without_compression

_START = 1 << 16  # bytes that are searched for the delimiter, the line end and escaped quotes
_QUOTE = b'"'
_SEP = re.compile(rb'"?sep=([\t!#-~])"?[\r\n]*')
_QUOTED = re.compile(rb'"[^"]*+"?')
_ESCAPED = re.compile(rb'(\\+)"')
_IN_QUOTES = re.compile(rb'[^"]*+(?:""[^"]*+)*+')


def delimited_rows(path: Path, max_bytes: int) -> Iterator[RawRow | BadRow]:
    """Yield the records below the header, with the header's names as columns; of two equal names the last one counts.

    A record longer than `max_bytes` is skipped without being held.
    """
    # the limit on a field holds for the whole process, and is only ever raised here
    csv.field_size_limit(max(csv.field_size_limit(), max_bytes))
    with closing(open_chunks(path)) as opened:
        chunks, delimiter, line_end = _with_dialect(opened, without_compression(path.name).lower().endswith(".tsv"))
        names: list[str] | None = None
        for line, record in records_of(chunks, delimiter, max_bytes, line_end):
            if names is None:
                if isinstance(record, bytes) and (not record.strip() or _SEP.fullmatch(record)):
                    continue
                header = _fields(line, record, delimiter)
                if isinstance(header, BadRow):
                    detail = f"nothing of this file is read: the header is {header.reason}, {header.detail}"
                    yield replace(header, reason="no_header", detail=detail)
                    return
                names = [name.strip() for name in header]
            else:
                yield record if isinstance(record, BadRow) else _row(line, record, names, delimiter)


def _with_dialect(chunks: Iterator[bytes], tabs: bool) -> tuple[Iterator[bytes], bytes, bytes]:
    """Return the chunks without a byte order mark and with quotes doubled, the delimiter and the line end."""
    start = b""
    damaged: TruncatedError | None = None
    try:
        for chunk in chunks:
            start += chunk
            if len(start) >= _START:
                break
    except TruncatedError as exc:
        damaged = exc
    start = start.removeprefix(BOM)
    unquoted = _QUOTED.sub(b"", start[:_START])
    line_end = b"\r" if b"\r" in unquoted and b"\n" not in unquoted else b"\n"
    first = start.partition(line_end)[0]
    if separator := _SEP.fullmatch(first):
        delimiter = separator[1]
    elif tabs or (b"\t" in first and b"," not in first):
        delimiter = b"\t"
    else:
        delimiter = b";" if b";" in first and b"," not in first else b","

    def rest() -> Iterator[bytes]:
        if damaged is not None:
            raise damaged
        yield from chunks

    whole = chain([start], rest())
    ends = rb"\r\n" + re.escape(delimiter)  # a quote before one of these may be a field's last
    escaped = re.search(rb'(?:\A|[%b])"(?:[^"\\]++|\\[^"]|"")*+\\"[^"%b]' % (ends, ends), start[:_START])
    return _with_doubled_quotes(whole) if escaped else whole, delimiter, line_end


def _with_doubled_quotes(chunks: Iterator[bytes]) -> Iterator[bytes]:
    held = b""  # backslashes at the end of a chunk: the next one says whether they escape a quote
    for chunk in chunks:
        chunk = held + chunk
        held = chunk[len(chunk.rstrip(b"\\")) :][-1_024:]
        yield _ESCAPED.sub(_doubled, chunk[: len(chunk) - len(held)])
    yield held


def _doubled(match: re.Match[bytes]) -> bytes:
    pairs, odd = divmod(len(match[1]), 2)
    return b"\\" * pairs + _QUOTE * (1 + odd)


def _row(line: int, record: bytes, names: list[str], delimiter: bytes) -> RawRow | BadRow:
    fields = _fields(line, record, delimiter)
    if isinstance(fields, BadRow):
        return fields
    if len(fields) != len(names):
        return BadRow(line, "wrong_columns", f"{len(fields)} fields, the header has {len(names)}", printable(record))
    return RawRow(line, dict(zip(names, fields, strict=True)), record)


def _fields(line: int, record: bytes | BadRow, delimiter: bytes) -> list[str] | BadRow:
    if isinstance(record, BadRow):
        return record
    if not record.strip():
        return BadRow(line, "blank", "the line is empty")
    try:
        return next(csv.reader([record.decode("utf-8")], delimiter=delimiter.decode()))
    except UnicodeDecodeError as exc:
        return BadRow(line, "not_utf8", f"byte {exc.start}: {exc.reason}", printable(record))
    except csv.Error as exc:
        return BadRow(line, "broken_csv", str(exc), printable(record))


def _end(pattern: re.Pattern[bytes], chunk: bytes, at: int) -> int:
    match = pattern.match(chunk, at)
    return match.end() if match else at


def records_of(
    chunks: Iterator[bytes], delimiter: bytes, max_bytes: int, line_end: bytes = b"\n"
) -> Iterator[tuple[int, bytes | BadRow]]:
    """Split chunks at the line ends that end a record for the `csv` module; yield the line on which each starts."""
    escaped = re.escape(delimiter)
    end_of_field = re.compile(b"[" + escaped + line_end + b"]")
    plain_fields = re.compile(b'(?:(?!")[^' + escaped + line_end + b"]*+" + escaped + b")*+")
    line, size = 1, 0
    parts: list[bytes] = []
    at_start, quoted, after_quote = True, False, False  # of a field; inside quotes; after a quote inside quotes

    def add(part: bytes) -> None:
        nonlocal size
        size += len(part)
        if size <= max_bytes or not parts:
            parts.append(part[: max_bytes + 1])

    def record() -> bytes | BadRow:
        if size <= max_bytes:
            return b"".join(parts)
        return BadRow(line, "too_long", f"a record of {size} bytes", printable(b"".join(parts)))

    lines = 0  # line ends in the current record
    try:
        for chunk in chunks:
            at = start = 0
            while at < len(chunk):
                if after_quote:
                    after_quote = False
                    quoted = chunk[at : at + 1] == _QUOTE
                    at += quoted
                elif quoted:
                    at = _end(_IN_QUOTES, chunk, at)
                    if at < len(chunk):
                        at, quoted, after_quote = at + 1, False, True
                elif at_start and chunk[at : at + 1] == _QUOTE:
                    at, at_start, quoted = at + 1, False, True
                else:
                    at = _end(plain_fields, chunk, at) if at_start else at
                    if at_start and chunk[at : at + 1] in (b"", _QUOTE):
                        continue
                    match = end_of_field.search(chunk, at)
                    at, at_start = (match.end(), True) if match else (len(chunk), False)
                    if match and match[0] == line_end:
                        lines += chunk.count(line_end, start, at)
                        add(chunk[start : at - 1])
                        yield line, record()
                        line, lines, parts, size, start = line + lines, 0, [], 0, at
            lines += chunk.count(line_end, start)
            add(chunk[start:])
    except TruncatedError as exc:
        yield line, BadRow(line, "truncated", str(exc), printable(b"".join(parts)))
        return
    if quoted:
        detail = f"a quote that opens here is never closed: {size:,} bytes from here on are no rows"
        yield line, BadRow(line, "truncated", detail, printable(b"".join(parts)))
    elif size:
        yield line, record()
