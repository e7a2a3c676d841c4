"""Reads a file that holds one JSON array, element by element, so that it takes only the memory of one.

The array is split at the commas of its outermost level before anything is parsed, so a broken element does not affect
the others, unless its quotes or brackets are unbalanced: then it is the last one.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from toolformer_core.annotate.readers.lines import BOM, lines_of
from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.compression import TruncatedError, open_chunks

_FIRST_LINE = 1 << 16  # bytes
WHOLE = "whole"
CUT_OFF = "cut_off"  # the text ends inside the element, or before the array's `]`
TRAILING = "trailing"  # not an element, but text after the end of the array
_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\],]')
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
    raw, size = element.text.encode("utf-8", "surrogateescape"), element.characters

    def bad(reason: str, detail: str) -> BadRow:
        return BadRow(element.line, reason, detail, printable(raw))

    if size > max_characters:
        return bad("too_long", f"a row of {size} characters")
    if element.state == CUT_OFF:
        open_row = f"a quote or bracket of this row is not closed: {size:,} characters from here on are no rows"
        return bad("truncated", open_row if raw else "the file ends before the array does")
    if element.state == TRAILING:
        return bad("broken_json", "text after the end of the array")
    if not raw:
        return bad("broken_json", "nothing stands between two commas")
    if _UNDECODED.search(element.text):
        return bad("not_utf8", "a byte of the row is no UTF-8")
    try:
        return RawRow(element.line, json.loads(element.text), raw)
    except (ValueError, RecursionError) as exc:
        return bad("broken_json", str(exc)[:200])


@dataclass(slots=True)
class Element:
    """The text of one element, without surrounding whitespace."""

    line: int  # on which it starts, from 1
    limit: int  # characters beyond which nothing is kept
    text: str = ""  # only its start, if it is longer
    characters: int = 0  # without leading whitespace
    state: str = WHOLE

    def add(self, text: str) -> None:
        if not self.characters:
            blank = len(text) - len(text.lstrip())
            self.line += text.count("\n", 0, blank)
            text = text[blank:]
        if self.characters <= self.limit:
            self.text += text
        self.characters += len(text)

    def ended(self, state: str = WHOLE) -> Element:
        self.text, self.state = self.text.rstrip(), state
        return self


def elements(chunks: Iterable[str], limit: int, line: int = 1) -> Iterator[Element]:
    """Yield the elements of an array whose text after its `[` comes in chunks; two adjacent commas give an empty one.

    Of an element of more than `limit` characters only the start is kept. The first character stands on `line`.
    """
    current = Element(line, limit)
    depth, in_string, escaped, after_comma = 0, False, False, False
    pieces = iter(chunks)
    for chunk in pieces:
        at, start = int(escaped and bool(chunk)), 0
        escaped = escaped and not chunk
        while (match := (_IN_STRING if in_string else _OUTSIDE).search(chunk, at)) is not None:
            at, mark = match.end(), match.group()
            if mark == "\\":
                escaped = at == len(chunk)  # the escaped character starts the next chunk
                at += 1
            elif mark == '"':
                in_string = not in_string
            elif mark in "{[":
                depth += 1
            elif depth:
                depth -= mark != ","
            elif mark != "}":  # a comma or the end of the array itself
                current.add(chunk[start : match.start()])
                if mark == "," or after_comma or current.characters:
                    yield current.ended()
                line += chunk.count("\n", start, at)
                current, start, after_comma = Element(line, limit), at, True
                if mark == "]":
                    yield from _rest(current, chain((chunk[at:],), pieces))
                    return
        current.add(chunk[start:])
        line += chunk.count("\n", start)
    yield current.ended(CUT_OFF)


def _rest(current: Element, chunks: Iterable[str]) -> Iterator[Element]:
    for chunk in chunks:
        current.add(chunk)
    if current.characters:
        yield current.ended(TRAILING)
