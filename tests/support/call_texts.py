"""Random texts for the calculator and the parser of calls: calls, texts that are nearly calls, and any other text.

Each text is drawn from one generator, so a seed gives the same text everywhere. What must hold of a text is not known
here, except of the calls that a text was made of.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.expressions import outcomes, random_expression, write
from toolformer_core.records import Call
from toolformer_core.syntax import MAX_CALL_CHARS

__all__ = ["KINDS", "MAX_TEXT", "Case", "draw_case"]

MAX_TEXT = 10_000  # characters: more than the longest call that is found in running text

_NAMES = ("Calculator", "QA", "WikiSearch", "MT", "Calendar", "x", "_f", "Größe_2", "検索")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’"}
# What calls and expressions are made of, so that noise often looks like one.
_SPACES = ("", "", "", " ", "\n", "\t ", "\N{NO-BREAK SPACE}", "\x1f")
_SYNTAX = (
    *(
        "[",
        "]",
        " [",
        "(",
        ")",
        ") ->",
        "->",
        "→",
        " -> ",
        "()",
        "QA(",
        "[QA(",
        "Calculator(1+1)",
        "-> 2]",
        '"',
        "“",
        "”",
    ),
    *(" ", "\n", "x", "Größe", ",", "'", "]]", "[[", ")]", "=", "\\", "\0"),
)
_ARITHMETIC = (
    *"0123456789", *"+-*/()xX×÷−–%.,= ", "**", "//", "^", "e308", "E-9", "1e999999999", "2**9999", "9" * 60,
    "1,000", "1,00", "0x1f", "1_000", "inf", "nan", "½", "²", "١", "３", "√", "!", "1/0", "__import__('os')", "\t",
)  # fmt: skip
# Ranges of code points that text handling tends to get wrong: controls, marks, joiners, right to left, surrogates, ...
_RANGES = (
    *((0x00, 0x20), (0x20, 0x7F), (0x7F, 0x100), (0x300, 0x370), (0x590, 0x700), (0x900, 0x980), (0x2000, 0x2070)),
    *((0x2070, 0x20A0), (0x2190, 0x2200), (0x3000, 0x3100), (0x4E00, 0x9FFF), (0xD800, 0xE000), (0xFE00, 0xFF60)),
    *((0x1D400, 0x1D800), (0x1F300, 0x1F700), (0xE0000, 0xE0200), (0, 0x110000)),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A text to try, and what is known of it."""

    kind: str
    text: str
    answers: frozenset[str] | None = None  # what the calculator may say of it; None: not known
    call: Call | None = None  # the text is this call, linearized, between `before` and `after`
    response: str | None = None
    before: str = ""
    after: str = ""


def _characters(r: random.Random, length: int) -> str:
    """Draw any code points, lone surrogates included, most from a few ranges."""
    ranges = r.choices(_RANGES, k=2)
    return "".join(chr(r.randrange(*r.choice(ranges))) for _ in range(length))


def _some(r: random.Random, pieces: tuple[str, ...], length: int) -> str:
    return "".join(r.choices(pieces, k=length))


def _length(r: random.Random) -> int:
    return int(r.expovariate(1 / 12))


def _text(r: random.Random) -> str:
    """Draw a text of any kind: noise of calls or of arithmetic, or any characters."""
    choice = r.random()
    if choice < 0.4:
        return _some(r, _SYNTAX, _length(r))
    return _some(r, _ARITHMETIC, _length(r)) if choice < 0.7 else _characters(r, _length(r))


def _mutated(r: random.Random, text: str) -> str:
    """Return a text with a few characters deleted, doubled, swapped or replaced, or cut off."""
    for _ in range(r.choice((1, 1, 2, 3, 8))):
        at = r.randint(0, len(text))
        end = min(len(text), at + r.choice((0, 1, 1, 2, 5)))
        change = r.random()
        if change < 0.3:
            text = text[:at] + text[end:]
        elif change < 0.5:
            text = text[:end] + text[at:]
        elif change < 0.6:
            text = text[:at]
        elif change < 0.7:
            text = text[at:] + text[:at]
        else:
            piece = r.choice(r.choice((_SYNTAX, _ARITHMETIC))) if r.random() < 0.8 else _characters(r, 1)
            text = text[:at] + piece + text[end:]
    return text


def _expression(r: random.Random) -> Case:
    node = random_expression(r)
    text = write(node, r)
    return Case("expression", text, answers=outcomes(node, text))


def _balanced(text: str, pair: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == pair[0]) - (char == pair[1])
        if depth < 0:
            return False
    return depth == 0


def _readable(text: str) -> str:
    """Return a text as the input of a call that can be read back: balanced, stripped, not in quotes."""
    for pair in ("()", "[]"):
        if not _balanced(text, pair):
            text = text.replace(pair[0], "").replace(pair[1], "")
    text = text.strip()
    return f"x{text}" if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] else text


def _call(r: random.Random) -> Case:
    input_ = write(random_expression(r), r) if r.random() < 0.4 else _text(r)
    response = None if r.random() < 0.3 else _text(r)
    call = Call(r.choice(_NAMES), _readable(input_))
    around = [_text(r).replace("[", "").replace("]", "") for _ in range(2)] if r.random() < 0.5 else ["", ""]
    return _case_of(call, response, *around)


def _case_of(call: Call, response: str | None, before: str, after: str) -> Case:
    # written here a second time: e(c) and e(c, r) of the paper, with round brackets in the response
    arrow = "" if response is None else f" -> {response.replace('[', '(').replace(']', ')')}"
    written = f" [{call.tool}({call.input}){arrow}]"
    return Case("call", f"{before}{written}{after}", None, call, response, before, after)


def _loose_call(r: random.Random) -> str:
    """Draw a call as a model may write it: with spaces anywhere, quotes, another arrow, brackets in its response."""
    name, input_, response = r.choice(_NAMES), _text(r), _text(r)
    opening, closing = r.choice(list(_QUOTES.items())) if r.random() < 0.5 else ("", "")
    space = [r.choice(_SPACES) for _ in range(7)]
    arrow = r.choice(("", "->", "->", "→", "=>"))
    inside = f"{space[0]}{name}{space[1]}({space[2]}{opening}{input_}{closing}{space[3]}){space[4]}"
    return f"{r.choice(('', ' ', 'a'))}[{inside}{arrow}{space[5]}{response if arrow else ''}{space[6]}]"


def _nested(r: random.Random) -> str:
    """Draw brackets in brackets, sometimes with a call in each, seldom all closed."""
    depth = r.choice((1, 2, 3, 5, 20, 60))
    opening, closing = r.choice((("[", "]"), ("(", ")"), ("[QA(", ")]"), (" [QA(a) -> ", "]"), ("[QA((", "))]")))
    closed = depth if r.random() < 0.6 else r.randint(0, 2 * depth)
    return opening * depth + r.choice(("", "1+1", "x", ")", "->", _text(r))) + closing * closed


def _long(r: random.Random) -> Case:
    """Draw a text of thousands of characters, often one that a parser may read again and again."""
    length = r.choice((257, 1_000, 4_000, 7_990, 8_000, MAX_TEXT))
    choice = r.random()
    if choice < 0.1:
        call = Call("QA", _readable("(a) [b] -> " * (length // 11)))
        return _case_of(call, _text(r), "", "")
    if choice < 0.2:  # as long as a call may be, or just not
        body = MAX_CALL_CHARS + r.choice((-1, 0, 1))
        return _case_of(Call("QA", "a" * (body - len("QA()"))), None, "", "")
    if choice < 0.3:
        return Case("long", _characters(r, length))
    if choice < 0.45:
        return Case("long", _some(r, r.choice((_SYNTAX, _ARITHMETIC)), length)[:length])
    unit = r.choice(
        (
            "[",
            "]",
            "(",
            ")",
            "[QA(",
            "QA(",
            ")]",
            " [QA(a) -> b]",
            ") ",
            "a",
            " ",
            "[a",
            "9",
            "1+",
            "-",
            "((",
            "1/3+",
            "→",
        )
    )
    text = _some(r, (unit,), length // len(unit))
    return Case("long", r.choice(("", "[QA(", "1+", "a(")) + text + r.choice(("", ")]", "]", ") ->", "1")))


def _plain(kind: str, draw: Callable[[random.Random], str]) -> Callable[[random.Random], Case]:
    return lambda r: Case(kind, draw(r))


# How a text is drawn, and how many of 1,000 are drawn so.
KINDS: dict[str, tuple[int, Callable[[random.Random], Case]]] = {
    "expression": (330, _expression),
    "mutated expression": (130, _plain("mutated expression", lambda r: _mutated(r, _expression(r).text))),
    "arithmetic noise": (80, _plain("arithmetic noise", lambda r: _some(r, _ARITHMETIC, _length(r)))),
    "call": (170, _call),
    "loose call": (70, _plain("loose call", _loose_call)),
    "mutated call": (
        80,
        _plain("mutated call", lambda r: _mutated(r, _call(r).text if r.random() < 0.5 else _loose_call(r))),
    ),
    "nested brackets": (60, _plain("nested brackets", _nested)),
    "any characters": (76, _plain("any characters", lambda r: _characters(r, _length(r)))),
    "long": (4, _long),
}
_DRAWS = [draw for share, draw in KINDS.values() for _ in range(share)]


def draw_case(seed: int, number: int) -> Case:
    """Return one case; the same seed and number give the same case."""
    r = random.Random((seed << 32) + number)
    return r.choice(_DRAWS)(r)
