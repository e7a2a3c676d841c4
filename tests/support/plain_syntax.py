"""The parser of calls once more, in the plainest form: character by character, without a thought of speed.

It follows the words of `toolformer_core.syntax`, and the fuzzing of that module compares the two. Texts must be short,
because some of this takes quadratic time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolformer_core.records import Call
from toolformer_core.syntax import MAX_CALL_CHARS, FoundCall

__all__ = ["plain_calls", "plain_close", "plain_parse"]

_QUOTES = ('""', "''", "“”", "‘’")


def plain_close(text: str, start: int) -> int | None:
    """Return the index of the `]` that closes a call opened just before `start`, or None."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "[") - (text[at] == "]")
        if depth == 0:
            return at
    return None


def plain_parse(body: str) -> tuple[Call, str | None] | None:
    """Return the call in the text between " [" and "]" and its response, or None if it is no call."""
    name, bracket, rest = body.partition("(")
    name = name.strip()
    if not bracket or not _is_name(name):
        return None
    ends = [at for at, char in enumerate(rest) if char == ")" and _ends_input(rest[at + 1 :])]
    if not ends:
        return None
    at = next((at for at in ends if _is_balanced(rest[:at])), ends[0])
    after = rest[at + 1 :].lstrip()
    arrow = next((arrow for arrow in ("->", "→") if after.startswith(arrow)), "")
    return Call(name, _without_quotes(rest[:at].strip())), after.removeprefix(arrow).strip() if arrow else None


def plain_calls(text: str, names: Sequence[str] | None = None) -> Iterator[FoundCall]:
    """Yield the calls in a text, left to right, by trying to parse behind every `[`."""
    at = 0
    while at < len(text):
        close = plain_close(text, at + 1) if text[at] == "[" else None
        read = None if close is None or close - at - 1 > MAX_CALL_CHARS else plain_parse(text[at + 1 : close])
        if close is None or read is None or (names is not None and read[0].tool not in names):
            at += 1
            continue
        start = at - 1 if at and text[at - 1] == " " else at
        yield FoundCall(*read, start, close + 1)
        at = close + 1


def _is_name(text: str) -> bool:
    """Return whether a text is letters, digits and underscores and does not begin with a decimal digit."""
    return bool(text) and all(char.isalnum() or char == "_" for char in text) and not text[0].isdecimal()


def _ends_input(rest: str) -> bool:
    """Return whether a `)` in front of this is followed by an arrow or by nothing."""
    rest = rest.lstrip()
    return not rest or rest.startswith(("->", "→"))


def _is_balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0


def _without_quotes(text: str) -> str:
    """Return an input without the one pair of quotes around the whole of it."""
    quoted = len(text) > 1 and text[0] + text[-1] in _QUOTES
    return text[1:-1].strip() if quoted and text[-1] not in text[1:-1] else text
