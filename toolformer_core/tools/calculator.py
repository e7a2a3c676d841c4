"""The Calculator: four operators on decimal numbers, computed exactly, with two decimals in the response.

    27 + 4 * 2 -> 35        400 / 1400 -> 0.29        85 / 23 -> 3.70        11.4% * 1,500 = -> 171

A model's text must never reach an interpreter. Arithmetic is in fractions, so `1 / 3 * 3` is 1. What could mean two
things is refused (`0x10`, `0,234`), and so is a single number (`42`, `(42)`), which asks nothing.
"""

import operator
import re
from dataclasses import dataclass
from fractions import Fraction

from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of

VERSION = "2"
MAX_CHARS = 256
MAX_DEPTH = 32  # open parentheses

_SPACE = "[\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}]"  # between thousands
_SIGNS = {"*": "xX×∗·⋅∙", "/": "÷∕", "-": "‐‑‒–—―−﹣"}
_OPERATORS = {sign: plain for plain, signs in _SIGNS.items() for sign in signs}
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>[1-9][0-9]{{0,2}}(?:(?:,[0-9]{{3}})+|(?:{_SPACE}[0-9]{{3}})+)(?![0-9])(?:\.[0-9]+)?"
    rf"|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?P<percent>\s*%)?|(?P<op>[-+*/(){''.join(_OPERATORS)}]))"
)
_HEXADECIMAL = re.compile(r"(?<![0-9.,])0[xX][0-9a-fA-F]")
_FULL_WIDTH = {code + 0xFEE0: code for code in range(ord("!"), ord("~") + 1)}  # U+FF01 to U+FF5E
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}
_APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


class InvalidExpression(Exception):
    """The text is not an expression of this calculator."""


@dataclass(frozen=True, slots=True)
class Calculator:
    """Evaluates an arithmetic expression.

    Failures: `not_an_expression` (no digit in it), `invalid_expression`, `division_by_zero`, `too_long`.
    """

    key: str = "calculator"
    name: str = "Calculator"
    description: str = (
        "Adds, subtracts, multiplies and divides the numbers of an arithmetic expression and returns the result."
    )

    @property
    def fingerprint(self) -> str:
        return digest_of(type(self).__name__, VERSION)

    def load(self) -> None: ...

    def run(self, input: str, context: str = "") -> ToolResult:
        text = input.strip().translate(_FULL_WIDTH)
        if len(text) > MAX_CHARS:
            return ToolFailure("too_long", f"{len(text)} characters, at most {MAX_CHARS}")
        if not any("0" <= char <= "9" for char in text):
            return ToolFailure("not_an_expression", "there is no number in it")
        try:
            return ToolResponse(format_number(evaluate(text)))
        except ZeroDivisionError:
            return ToolFailure("division_by_zero")
        except InvalidExpression as exc:
            return ToolFailure("invalid_expression", str(exc))


def format_number(value: Fraction) -> str:
    """Return a whole number without decimals, any other with two, halves away from zero."""
    if value.denominator == 1:
        return str(value.numerator)
    cents = (abs(value.numerator) * 200 + value.denominator) // (2 * value.denominator)
    sign = "-" if value < 0 and cents else ""
    return f"{sign}{cents // 100}.{cents % 100:02d}"


def evaluate(text: str) -> Fraction:
    """Evaluate an expression of at most `MAX_CHARS` characters exactly, or raise `InvalidExpression`."""
    tokens = _tokenize(text)
    value, at, operations = _sum(tokens, 0, 0)
    if at < len(tokens):
        raise InvalidExpression(f"{_describe(tokens[at])} is not expected here")
    if not operations:
        raise InvalidExpression("a single number asks nothing")
    return value


_Token = Fraction | str


def _tokenize(text: str) -> list[_Token]:
    text = text.translate(_FULL_WIDTH).strip().removesuffix("=").rstrip()
    if hexadecimal := _HEXADECIMAL.search(text):
        raise InvalidExpression(f"{hexadecimal[0]!r} may be hexadecimal; write a product as 0 * 10")
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InvalidExpression(f"cannot read {text[at : at + 20].strip()!r}")
        if number := match.group("number"):
            value = Fraction(re.sub(f",|{_SPACE}", "", number))
            tokens.append(value / 100 if match.group("percent") else value)
        else:
            op = match.group("op")
            tokens.append(_OPERATORS.get(op, op))
        at = match.end()
    return tokens


def _describe(token: _Token) -> str:
    return repr(token) if isinstance(token, str) else f"the number {format_number(token)}"


def _sum(tokens: list[_Token], at: int, depth: int, rank: int = 1) -> tuple[Fraction, int, int]:
    """Parse operators of this rank or higher, left to right; return (value, next token, operators applied)."""
    value, at, operations = _operand(tokens, at, depth)
    while at < len(tokens):
        op = tokens[at]
        if not isinstance(op, str) or _RANK.get(op, 0) < rank:
            break
        right, at, more = _sum(tokens, at + 1, depth, _RANK[op] + 1)
        operations += more + 1
        value = _APPLY[op](value, right)
    return value, at, operations


def _operand(tokens: list[_Token], at: int, depth: int) -> tuple[Fraction, int, int]:
    """Parse a number or a parenthesis, with any signs in front of it."""
    sign = 1
    while at < len(tokens) and tokens[at] in ("+", "-"):
        sign = -sign if tokens[at] == "-" else sign
        at += 1
    if at == len(tokens):
        raise InvalidExpression("a number is missing at the end")
    token = tokens[at]
    if isinstance(token, Fraction):
        return sign * token, at + 1, 0
    if token != "(":
        raise InvalidExpression(f"a number is missing before {token!r}")
    if depth == MAX_DEPTH:
        raise InvalidExpression(f"more than {MAX_DEPTH} nested parentheses")
    value, at, operations = _sum(tokens, at + 1, depth + 1)
    if at == len(tokens) or tokens[at] != ")":
        raise InvalidExpression("a ')' is missing")
    return sign * value, at + 1, operations
