"""The elements of a JSON array, one after another, out of a stream: an array takes the memory of one element.

The array is cut at the commas of its outermost level, before anything is parsed. So a broken element costs itself
alone, unless its quotes or brackets do not pair up: then nobody knows where it ends, and it is the last. What an
element means is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

__all__ = ["BEHIND", "CUT_OFF", "WHOLE", "Element", "elements"]

WHOLE = "whole"
CUT_OFF = "cut_off"  # the text ends inside the element, or in front of the array's `]`
BEHIND = "behind"  # no element: text that stands behind the array

_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\],]')


@dataclass(frozen=True, slots=True)
class Element:
    """The text of one element, blanks around it cut off."""

    line: int  # on which it starts, from 1
    text: str  # its start alone, if it is longer than allowed
    characters: int
    state: str = WHOLE


@dataclass(slots=True)
class _Held:
    """What is read of the element that is under way."""

    line: int
    limit: int
    parts: list[str] = field(default_factory=list)
    characters: int = 0  # without the blanks in front

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
    """Yield the elements of an array, in order; between two commas with nothing between them, one of no text.

    Args:
        chunks: the document's text, in pieces of any size, from behind the array's `[`.
        limit: characters; of a longer element only the start is held.
        line: of the first character.
    """
    held = _Held(line, limit)
    depth, in_string, escaped, begun = 0, False, False, False
    pieces = iter(chunks)
    for chunk in pieces:
        at, start = int(escaped and bool(chunk)), 0
        escaped = escaped and not chunk
        while (match := (_IN_STRING if in_string else _OUTSIDE).search(chunk, at)) is not None:
            at, mark = match.end(), match.group()
            if mark == "\\":
                escaped = at == len(chunk)  # what it escapes begins the next chunk
                at += 1
            elif mark == '"':
                in_string = not in_string
            elif mark in "{[":
                depth += 1
            elif depth:
                depth -= mark != ","
            elif mark != "}":  # a comma or the end of the array itself
                held.add(chunk[start : match.start()])
                if mark == "," or begun or held.characters:
                    yield held.element()
                line += chunk.count("\n", start, at)
                held, start, begun = _Held(line, limit), at, True
                if mark == "]":
                    yield from _behind(held, chain((chunk[at:],), pieces))
                    return
        held.add(chunk[start:])
        line += chunk.count("\n", start)
    yield held.element(CUT_OFF)


def _behind(held: _Held, chunks: Iterable[str]) -> Iterator[Element]:
    for chunk in chunks:
        held.add(chunk)
    if held.characters:
        yield held.element(BEHIND)
