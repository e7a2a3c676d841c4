"""Random arithmetic expressions as trees, the texts that write them, and what the calculator must answer.

The answer comes from the tree, by `fractions.Fraction`: nothing here tokenizes or parses. A number knows its value from
the digits it was made of, and rounding is written a second time. Only the limits of the calculator are its own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction

from toolformer_core.tools.calculator import MAX_CHARS, MAX_DEPTH

__all__ = [
    "Number",
    "Operation",
    "Parentheses",
    "Signed",
    "answer",
    "outcomes",
    "random_expression",
    "rounded",
    "write",
]

_SPELLINGS = {"+": "+＋", "-": "-−–—‐‑‒―﹣－", "*": "*xX×∗·⋅∙＊ｘ", "/": "/÷∕／"}
_FULL_WIDTH = str.maketrans("0123456789.,%", "０１２３４５６７８９．，％")
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_SPACES = ("", "", "", " ", " ", " ", "  ", "\t", "\n", "\N{NO-BREAK SPACE}", "\N{IDEOGRAPHIC SPACE}")


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is written, and what it is worth."""

    text: str
    value: Fraction


@dataclass(frozen=True, slots=True)
class Parentheses:
    """An expression in parentheses."""

    inner: Node


@dataclass(frozen=True, slots=True)
class Signed:
    """A number or parentheses with a sign in front."""

    sign: str  # + or -
    inner: Number | Parentheses | Signed


@dataclass(frozen=True, slots=True)
class Operation:
    """Two expressions and the operator between them."""

    operator: str  # + - * /
    left: Node
    right: Node


Node = Number | Parentheses | Signed | Operation


# --- drawing a tree ---------------------------------------------------------------------------------------------------


def random_expression(r: random.Random) -> Node:
    """Draw a tree whose text, read by the usual rules of precedence, is that tree.

    Most are short and valid. Some divide by zero, are a single number, hold numbers of up to 200 digits, or are nested
    more deeply than the calculator allows.
    """
    huge = r.random() < 0.05
    node = _operation(r, r.choice((1, 1, 2, 2, 3, 4, 6, 12)), huge)
    if r.random() < 0.04:
        node = _signed(r, _number(r, huge))
    if r.random() < 0.06:
        for _ in range(r.randint(1, MAX_DEPTH + 3)):
            node = Parentheses(node)
    return node


def _operation(r: random.Random, operators: int, huge: bool) -> Node:
    """Draw a tree with so many operators."""
    if operators == 0:
        return _signed(r, _number(r, huge))
    operator = r.choice("+-*/")
    on_the_left = r.randint(0, operators - 1)
    left = _operation(r, on_the_left, huge)
    right = _operation(r, operators - 1 - on_the_left, huge)
    node = Operation(operator, _grouped(left, _PRECEDENCE[operator]), _grouped(right, _PRECEDENCE[operator] + 1))
    return _signed(r, Parentheses(node)) if r.random() < 0.15 else node


def _grouped(node: Node, least: int) -> Node:
    """Return an operand, in parentheses if its operator binds less strongly than `least`."""
    return Parentheses(node) if isinstance(node, Operation) and _PRECEDENCE[node.operator] < least else node


def _signed(r: random.Random, inner: Number | Parentheses) -> Node:
    node: Number | Parentheses | Signed = inner
    while r.random() < 0.15:
        node = Signed(r.choice("+-"), node)
    return node


def _number(r: random.Random, huge: bool) -> Number:
    if r.random() < 0.05:
        return Number(*r.choice((("0", Fraction(0)), ("0.00", Fraction(0)), ("00", Fraction(0)), (".0", Fraction(0)))))
    digits = r.randint(10, 200) if huge and r.random() < 0.5 else r.choice((1, 1, 2, 2, 3, 4, 7))
    whole = "".join(r.choices("0123456789", k=digits))
    decimals = "".join(r.choices("0123456789", k=r.choice((0, 0, 0, 1, 2, 3, 9))))
    written = whole
    if r.random() < 0.2:
        written = f"{int(whole):,}".replace(",", r.choice(",,\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"))
    elif decimals and r.random() < 0.1:
        whole, written = "0", ""
    value = Fraction(int(whole + decimals), 10 ** len(decimals))
    text = f"{written}.{decimals}" if decimals else written
    if r.random() < 0.1:
        text += r.choice(("%", " %"))
        value /= 100
    return Number(text.translate(_FULL_WIDTH) if r.random() < 0.1 else text, value)


# --- writing it -------------------------------------------------------------------------------------------------------


def write(node: Node, r: random.Random) -> str:
    """Return a tree's text, with operators and spaces in any of the forms that the calculator reads."""
    ending = r.choice(("", "", "", "", "=", " =", "\t= "))
    return r.choice(_SPACES) + _written(node, r) + ending


def _written(node: Node, r: random.Random) -> str:
    space = r.choice(_SPACES)
    match node:
        case Number():
            return node.text
        case Parentheses():
            return f"({space}{_written(node.inner, r)}{space})"
        case Signed():
            return r.choice(_SPELLINGS[node.sign]) + space + _written(node.inner, r)
    operator = r.choice(_SPELLINGS[node.operator])
    left = _written(node.left, r) + space
    if operator in "xXｘ" and left[-1:] in ("0", "０"):  # 0x10 is no product
        operator = "×"
    return f"{left}{operator}{r.choice(_SPACES)}{_written(node.right, r)}"


# --- what it is worth -------------------------------------------------------------------------------------------------


def answer(node: Node) -> Fraction:
    """Return a tree's value.

    Raises:
        ZeroDivisionError: it divides by zero.
    """
    match node:
        case Number():
            return node.value
        case Parentheses():
            return answer(node.inner)
        case Signed():
            return -answer(node.inner) if node.sign == "-" else answer(node.inner)
    left, right = answer(node.left), answer(node.right)
    match node.operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    return left / right


def rounded(value: Fraction) -> str:
    """Return a value as the calculator writes it: whole without decimals, else two, halves away from zero, no -0.00."""
    if value == int(value):
        return str(int(value))
    hundredths = abs(value) * 100
    cents = int(hundredths)
    if hundredths - cents >= Fraction(1, 2):
        cents += 1
    minus = "-" if value < 0 and cents > 0 else ""
    return f"{minus}{cents // 100}.{cents % 100:02d}"


def outcomes(node: Node, text: str) -> frozenset[str]:
    """Return what the calculator may say of a tree's text: an answer, or the reason of a failure.

    Of an expression that is both nested too deeply and divides by zero, it may name either.
    """
    if len(text.strip()) > MAX_CHARS:
        return frozenset({"too_long"})
    too_deep = {"invalid_expression"} if _depth(node) > MAX_DEPTH else set()
    try:
        value = answer(node)
    except ZeroDivisionError:
        return frozenset({"division_by_zero"} | too_deep)
    if too_deep or not _has_operation(node):
        return frozenset({"invalid_expression"})
    return frozenset({rounded(value)})


def _depth(node: Node) -> int:
    match node:
        case Number():
            return 0
        case Parentheses():
            return 1 + _depth(node.inner)
        case Signed():
            return _depth(node.inner)
    return max(_depth(node.left), _depth(node.right))


def _has_operation(node: Node) -> bool:
    if isinstance(node, Parentheses | Signed):
        return _has_operation(node.inner)
    return isinstance(node, Operation)
