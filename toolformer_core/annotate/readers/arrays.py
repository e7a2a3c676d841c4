"""Reads a file that holds one JSON array, element by element; `json_array` finds where an element ends."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from toolformer_core.annotate.readers.json_array import BEHIND, CUT_OFF, Element, elements
from toolformer_core.annotate.readers.lines import BOM, lines_of
from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.compression import TruncatedError, open_chunks

_FIRST_LINE = 1 << 16  # bytes
_UNDECODED = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of bytes that are not UTF-8


def holds_array(path: Path) -> bool:
    """Return whether a file is one JSON array, and not JSON lines whose first line happens to be an array."""
    with closing(open_chunks(path)) as chunks:
        lines = (line for _, line in lines_of(chunks, _FIRST_LINE))
        texts = (line.raw.encode() if isinstance(line, BadRow) else line.removeprefix(BOM) for line in lines)
        first_lines = list(islice((text for text in texts if text.strip()), 2))
    if not first_lines or not first_lines[0].lstrip().startswith(b"["):
        return False
    try:
        first = json.loads(first_lines[0])
    except (ValueError, RecursionError):
        return True  # the array continues in the next line, or is broken
    return len(first_lines) == 1 or any(isinstance(element, dict) for element in first)


def array_rows(path: Path, max_bytes: int) -> Iterator[RawRow | BadRow]:
    """Yield the elements of the array; one longer than `max_bytes` characters is not held."""
    line = 1
    with closing(open_chunks(path)) as chunks:
        decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        texts = (decoder.decode(chunk) for chunk in chunks)
        try:
            for element in elements(_after_bracket(texts), max_bytes):
                line = element.line
                yield array_row(element, max_bytes)
        except TruncatedError as exc:
            yield BadRow(line, "truncated", f"{exc}; in or after the row that starts here")


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
        return BadRow(element.line, "broken_json", "text after the end of the array", printable(raw))
    if not raw:
        return BadRow(element.line, "broken_json", "nothing stands between two commas")
    if _UNDECODED.search(element.text):
        return BadRow(element.line, "not_utf8", "a byte of the row is no UTF-8", printable(raw))
    try:
        return RawRow(element.line, json.loads(element.text), raw)
    except (ValueError, RecursionError) as exc:
        return BadRow(element.line, "broken_json", str(exc)[:200], printable(raw))
