"""How a call stands in text: linearise, close, parse, find, interleave, strip.

    e(c)    = " [" a "(" i ")" "]"
    e(c, r) = " [" a "(" i ")" " -> " r "]"

The markers are ordinary text, so the model's vocabulary is unchanged. A call ends at the first `]` that closes it *in
text* (brackets opened inside it are closed first), never at a token id, because tokenizers merge `)]`. The arrow is
written `->`; `→` is accepted on reading. Nothing here knows tools, tokens or models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from toolformer_core.errors import CallSyntaxError
from toolformer_core.records import Call

__all__ = [
    "ARROW",
    "CLOSE",
    "OPEN",
    "FoundCall",
    "find_calls",
    "find_close",
    "interleave",
    "linearize",
    "parse",
    "strip",
]

OPEN = " ["
CLOSE = "]"
ARROW = "->"

_NAME = re.compile(r"\s*([^\W\d]\w*)\s*\(")
_INPUT_END = re.compile(r"\)\s*(?:(?:->|→)(?P<response>.*))?\Z", re.DOTALL)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’"}


def linearize(call: Call, response: str | None = None) -> str:
    """Return e(c) when the response is None, else e(c, r); an empty response keeps the arrow."""
    head = f"{OPEN}{call.tool}({call.input})"
    return head + CLOSE if response is None else f"{head} {ARROW} {response}{CLOSE}"


def find_close(text: str, start: int = 0) -> int | None:
    """Return the index of the `]` that closes a call opened just before `start`, or None."""
    depth = 1
    for match in re.compile(r"[\[\]]").finditer(text, start):
        depth += 1 if match.group() == "[" else -1
        if depth == 0:
            return match.start()
    return None


def parse(body: str) -> tuple[Call, str | None]:
    """Parse what stands between " [" and the closing "]".

    One pair of quotes around the whole input is dropped, so `QA("Who?")` and `QA(Who?)` are the same call.

    Returns:
        The call, and its response if there is an arrow.

    Raises:
        CallSyntaxError: the body is not `name(input)` or `name(input) -> response`.
    """
    name = _NAME.match(body)
    if name is None:
        raise CallSyntaxError(f"no tool name and '(' in {body[:80]!r}")
    first: tuple[str, str | None] | None = None
    for i in (m.start() for m in re.finditer(r"\)", body[name.end() :])):
        end = _INPUT_END.match(body, name.end() + i)
        if end is None:
            continue
        found = (body[name.end() : end.start()], end.group("response"))
        first = first or found
        if _balanced(found[0]):  # prefer `f(g(x) -> y)` over its first `)`
            first = found
            break
    if first is None:
        raise CallSyntaxError(f"no ')' closes the input in {body[:80]!r}")
    raw, response = first
    return Call(name.group(1), _unquote(raw.strip())), None if response is None else response.strip()


def _balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0


def _unquote(text: str) -> str:
    if len(text) >= 2 and _QUOTES.get(text[0]) == text[-1] and text[-1] not in text[1:-1]:
        return text[1:-1].strip()
    return text


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call found in running text, with its span [start, end) including the leading space if there is one."""

    call: Call
    response: str | None
    start: int
    end: int


def find_calls(text: str, names: Iterable[str] | None = None) -> Iterator[FoundCall]:
    """Yield the calls that stand in a text, left to right; with `names`, only calls of those tools.

    This reads text whose insertions were not recorded (a model's output). To recover x from x*, use `strip` with the
    recorded spans: a text may hold brackets of its own.
    """
    wanted = None if names is None else frozenset(names)
    at = 0
    while (open_ := text.find("[", at)) >= 0:
        at = open_ + 1
        close = find_close(text, at)
        if close is None:
            continue
        try:
            call, response = parse(text[at:close])
        except CallSyntaxError:
            continue
        if wanted is None or call.tool in wanted:
            start = open_ - 1 if open_ > 0 and text[open_ - 1] == " " else open_
            yield FoundCall(call, response, start, close + 1)
            at = close + 1


def interleave(text: str, pieces: Iterable[tuple[int, str]]) -> tuple[str, list[tuple[int, int]]]:
    """Insert each piece in front of the character at its position.

    Args:
        text: x.
        pieces: (position in x, text to insert), in any order; at one position the given order is kept.

    Returns:
        x* and, in the order of their place in it, the spans [start, end) of the pieces.

    Raises:
        ValueError: a position lies outside 0..len(text).
    """
    out: list[str] = []
    spans: list[tuple[int, int]] = []
    at = length = 0
    for position, piece in sorted(pieces, key=lambda p: p[0]):
        if not 0 <= position <= len(text):
            raise ValueError(f"position {position} is outside a text of {len(text)} characters")
        out += (text[at:position], piece)
        length += position - at
        spans.append((length, length + len(piece)))
        length += len(piece)
        at = position
    out.append(text[at:])
    return "".join(out), spans


def strip(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Remove the spans [start, end) from a text: `strip(*interleave(x, pieces)) == x`, whatever x holds.

    Raises:
        ValueError: spans overlap or leave the text.
    """
    out: list[str] = []
    at = 0
    for start, end in sorted(spans):
        if not at <= start <= end <= len(text):
            raise ValueError(f"span {(start, end)} overlaps another or leaves the text")
        out.append(text[at:start])
        at = end
    out.append(text[at:])
    return "".join(out)
