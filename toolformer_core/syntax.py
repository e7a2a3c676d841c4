"""The syntax of calls in text: linearise, escape, close, parse, find, interleave, strip.

    e(c)    = " [" a "(" i ")" "]"
    e(c, r) = " [" a "(" i ")" " -> " r "]"

A call ends at the first `]` that closes it *in the text* (brackets opened inside it are closed first), never at a token
id, because tokenizers merge `)]`. The arrow is written `->`; `→` is accepted when reading. A response is data: nothing
in it may open or close a call, so its square brackets are written as round ones. Nothing here knows tools or tokens.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from toolformer_core.errors import CallSyntaxError
from toolformer_core.records import Call

OPEN = " ["
CLOSE = "]"
ARROW = "->"
MAX_CALL_CHARS = 8_000  # longer brackets in running text are not calls; this bounds the work on nested ones

_TOOL_NAME = re.compile(r"[^\W\d]\w*")
_NAME = re.compile(rf"\s*({_TOOL_NAME.pattern})\s*\(")
_CALL_BEGUN = re.compile(rf" \[(?={_NAME.pattern})")
_NAME_BEGUN = re.compile(rf"\s*(?:{_TOOL_NAME.pattern})?\s*")
_INPUT_END = re.compile(r"\)\s*(?:(?:->|→)(?P<response>.*))?\Z", re.DOTALL)
_BRACKET = re.compile(r"[\[\]]")
_PAREN = re.compile(r"[()]")
_INPUT_END_AND_ARROW = re.compile(r"\)\s*(?:->|→)")
_ROUND = str.maketrans("[]", "()")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’"}


def is_tool_name(text: str) -> bool:
    """Return whether a tool may have this name: an identifier of letters, digits and _, without combining marks."""
    return text.isidentifier() and _TOOL_NAME.fullmatch(text) is not None


def linearize(call: Call, response: str | None = None) -> str:
    """Return e(c) if the response is None, else e(c, r), the response escaped; an empty response keeps the arrow."""
    head = f"{OPEN}{call.tool}({call.input})"
    return head + CLOSE if response is None else f"{head} {ARROW} {escape(response)}{CLOSE}"


def written_calls(links: Iterable[tuple[str, str, str]], names: Mapping[str, str]) -> str:
    """Return e(c_1, r_1) e(c_2, r_2) ... of links (tool's key, input, response); a missing name is the key."""
    return "".join(linearize(Call(names.get(tool, tool), given), response) for tool, given, response in links)


def escape(response: str) -> str:
    """Return a response with round instead of square brackets, of the same length; escaping twice changes nothing."""
    return response.translate(_ROUND)


def find_close(text: str, start: int = 0) -> int | None:
    """Return the index of the `]` that closes a call opened just before `start`, or None."""
    depth = 1
    for match in _BRACKET.finditer(text, start):
        depth += 1 if match.group() == "[" else -1
        if depth == 0:
            return match.start()
    return None


def parse(body: str) -> tuple[Call, str | None]:
    """Parse the text between " [" and the closing "]": the call, and its response if there is an arrow.

    One pair of quotes around the whole input is removed, so `QA("Who?")` and `QA(Who?)` are the same call. The input
    ends at the first `)` that leaves it balanced and is followed by an arrow or by nothing; if there is none, at the
    first `)` that is followed by an arrow or by nothing. A CallSyntaxError if the body is not `name(input)` or
    `name(input) -> response`.

    `parse` inverts `linearize` (without " [" and "]") if `is_tool_name` allows the tool's name, the input has balanced
    parentheses and is already stripped and unquoted, and the response is None, or stripped and escaped. For the closing
    "]" to be found in running text, the input's brackets must be balanced, too.
    """
    name = _NAME.match(body)
    if name is None:
        raise CallSyntaxError(f"no tool name and '(' in {body[:80]!r}")
    first: tuple[str, str | None] | None = None
    start, depth = name.end(), 0  # depth: open parentheses in the input
    negative = False
    for paren in _PAREN.finditer(body, start):
        if paren.group() == "(":
            depth += 1
            continue
        end = _INPUT_END.match(body, paren.start()) if first is None or (depth == 0 and not negative) else None
        if end is not None:
            candidate = (body[start : paren.start()], end.group("response"))
            first = first or candidate
            if depth == 0 and not negative:  # prefer the last `)` of `f(g(x) -> y)` to its first one
                first = candidate
                break
        depth -= 1
        negative = negative or depth < 0
    if first is None:
        raise CallSyntaxError(f"no ')' closes the input in {body[:80]!r}")
    raw, response = first
    return Call(name.group(1), _unquote(raw.strip())), None if response is None else response.strip()


def name_begun(start: str) -> str | None:
    """Return the tool's name in the start of a call's body, or "" if the name, or the "(" after it, may still follow.

    None: however the text goes on, it is no call.
    """
    if name := _NAME.match(start):
        return name.group(1)
    return "" if _NAME_BEGUN.fullmatch(start) else None


def _unquote(text: str) -> str:
    if len(text) >= 2 and _QUOTES.get(text[0]) == text[-1] and text[-1] not in text[1:-1]:
        return text[1:-1].strip()
    return text


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call in running text, with its span [start, end), which includes the leading space if there is one."""

    call: Call
    response: str | None
    start: int
    end: int


def find_calls(text: str, names: Iterable[str] | None = None) -> Iterator[FoundCall]:
    """Yield the calls in a text, left to right; with `names`, only calls of those tools.

    Calls of more than `MAX_CALL_CHARS` characters are skipped. To recover x from x*, use `strip` with the recorded
    spans, as a text may hold brackets of its own.
    """
    allowed = None if names is None else frozenset(names)
    # Found once for the whole text, and only calls are parsed, so that nested brackets do not take quadratic time.
    closes = _closing_brackets(text)
    arrows = [match.start() for match in _INPUT_END_AND_ARROW.finditer(text)]
    at = 0
    while (open_ := text.find("[", at)) >= 0:
        at = open_ + 1
        close = closes.get(open_)
        name = _NAME.match(text, at, close) if close is not None else None
        if (
            close is None
            or name is None
            or close - at > MAX_CALL_CHARS
            or (allowed is not None and name.group(1) not in allowed)
            or not _ends_input(text, name.end(), close, arrows)
        ):
            continue
        call, response = parse(text[at:close])
        start = open_ - 1 if open_ > 0 and text[open_ - 1] == " " else open_
        yield FoundCall(call, response, start, close + 1)
        at = close + 1


def _ends_input(text: str, start: int, close: int, arrows: Sequence[int]) -> bool:
    """Return whether an input ends between two places: at a `)` that an arrow (these are given) or nothing follows."""
    following = bisect_left(arrows, start)
    if following < len(arrows) and arrows[following] < close:
        return True
    return text[start:close].rstrip().endswith(")")


def _closing_brackets(text: str) -> dict[int, int]:
    """Return the place of the closing bracket of each closed `[`, as `find_close` would."""
    opened: list[int] = []
    closes: dict[int, int] = {}
    for match in _BRACKET.finditer(text):
        if match.group() == "[":
            opened.append(match.start())
        elif opened:
            closes[opened.pop()] = match.start()
    return closes


def call_pieces(text: str) -> list[str]:
    """Cut a text where decoding begins new tokens: around " [" in front of a tool's name, after the arrow and the "]".

        `Of 587 books 58 are lent, so`  ` [`  `Calculator(587 - 58) ->`  ` 529]`  ` 529 remain.`

    Decoding waits for the tokens of " [", asks the tool where the arrow ends, and writes response and "]" itself. Only
    the first piece may be empty: where the text begins with " [".
    """
    begun = [match.span() for match in _CALL_BEGUN.finditer(text)]
    if not begun:
        return [text]
    closes = _closing_brackets(text)
    arrows = [match.end() for match in _INPUT_END_AND_ARROW.finditer(text)]
    cuts = {len(text)}
    for start, end in begun:
        cuts.update((start, end))
        close, following = closes.get(end - 1), bisect_left(arrows, end)
        if close is not None and following < len(arrows) and arrows[following] <= close:
            cuts.update((arrows[following], close + 1))
    return [text[start:end] for start, end in pairwise([0, *sorted(cuts)])]


def interleave(text: str, pieces: Iterable[tuple[int, str]]) -> tuple[str, list[tuple[int, int]]]:
    """Insert each piece in front of the character at its position; return x* and the spans [start, end), in order.

    Pieces at the same position keep their order. A ValueError if a position lies outside 0..len(text).
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
    """Remove spans, so that `strip(*interleave(x, pieces)) == x`; a ValueError if they overlap or leave the text."""
    edges = [0, *(edge for span in sorted(spans) for edge in span), len(text)]
    if any(first > second for first, second in pairwise(edges)):
        raise ValueError(f"spans overlap or leave the text: {list(spans)}")
    return "".join(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
