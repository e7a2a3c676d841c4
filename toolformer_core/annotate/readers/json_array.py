"""Yields the elements of a JSON array from a stream, so that an array takes only the memory of one element.

The array is split at the commas of its outermost level before anything is parsed. So a broken element does not affect
the others, unless its quotes or brackets are unbalanced: then its end is unknown, and it is the last one. This module
does not know what an element means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

WHOLE = "whole"
CUT_OFF = "cut_off"  # the text ends inside the element, or before the array's `]`
BEHIND = "behind"  # not an element, but text after the end of the array

_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\],]')


@dataclass(frozen=True, slots=True)
class Element:
    """The text of one element, without surrounding whitespace."""

    line: int  # on which it starts, from 1
    text: str  # only its start, if it is longer than allowed
    characters: int
    state: str = WHOLE


@dataclass(slots=True)
class _PartialElement:
    """What has been read of the current element."""

    line: int
    limit: int
    parts: list[str] = field(default_factory=list)
    characters: int = 0  # without leading whitespace

    def add(self, text: str) -> None:
        if not self.characters:
            blank = len(text) - len(text.lstrip())
            self.line += text.count("\n", 0, blank)
            text = text[blank:]
        if self.characters <= self.limit:
            self.parts.append(text)
        self.characters += len(text)

    def element(self, state: str = WHOLE) -> Element:
        return Element(self.line, "".join(self.parts).rstrip(), self.characters, state)


def elements(chunks: Iterable[str], limit: int, line: int = 1) -> Iterator[Element]:
    """Yield the elements of an array, in order; two adjacent commas give an element without text.

    Args:
        chunks: the text after the array's `[`, in pieces of any size.
        limit: characters; of a longer element only the start is kept.
        line: the line of the first character.
    """
    current = _PartialElement(line, limit)
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
                    yield current.element()
                line += chunk.count("\n", start, at)
                current, start, after_comma = _PartialElement(line, limit), at, True
                if mark == "]":
                    yield from _rest(current, chain((chunk[at:],), pieces))
                    return
        current.add(chunk[start:])
        line += chunk.count("\n", start)
    yield current.element(CUT_OFF)


def _rest(current: _PartialElement, chunks: Iterable[str]) -> Iterator[Element]:
    for chunk in chunks:
        current.add(chunk)
    if current.characters:
        yield current.element(BEHIND)
