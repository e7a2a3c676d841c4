"""Numbers in a text, and whether one is what + - * / makes of two others near it: the calculator's part of `prefilter`.

What counts as a number, as a result and as trivial is said in `prefilter`. Nothing here knows documents or verdicts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Number", "has_operation", "numbers_in", "related"]

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
# A number stands alone: not joined to a letter, nor to further digits by a point or comma (a version, a list).
_TOKEN = re.compile(rf"(?<![\w.,])(?P<number>{_DIGITS}|\.\d+)(?P<percent>\s?%)?(?![\w]|[.,]\d)|[^\W_]+")
_MOST_DIGITS = 15
_MOST_NUMBERS = 2_000


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a text: its magnitude, the decimals it is written with, and which token it is."""

    value: Fraction
    decimals: int  # of the value: 29 % has two
    token: int

    @property
    def slack(self) -> Fraction:
        """By how much a result may differ and still be written like this; 0 if it must be exact."""
        step = Fraction(1, 10**self.decimals)
        return step / 2 if self.decimals >= 2 and self.value >= 10 * step else Fraction(0)


def _is_step(a: Fraction | int, b: Fraction | int, c: Fraction | int, one: int) -> bool:
    return one in (a, b, c) and all(v < 10 * one and v % one == 0 for v in (a, b, c))


def numbers_in(text: str) -> list[Number]:
    """Return the numbers of a text, in order."""
    out = []
    for i, match in enumerate(_TOKEN.finditer(text)):
        written = match["number"]
        if written is None or sum(c.isdigit() for c in written) > _MOST_DIGITS:
            continue
        percent = match["percent"] is not None
        decimals = len(written.partition(".")[2]) + (2 if percent else 0)
        value = Fraction(written.replace(",", "")) / (100 if percent else 1)
        out.append(Number(value, decimals, i))
    return out


def related(a: Number, b: Number, c: Number) -> bool:
    """Whether one of three numbers is what + - * / makes of the other two, trivial cases left out (see the module)."""
    if min(a.value, b.value, c.value) == 0 or _is_step(a.value, b.value, c.value, 1):
        return False
    for x, y, z in ((a, b, c), (a, c, b), (b, c, a)):
        if x.value + y.value == z.value:
            return True
        if 1 in (x.value, y.value, z.value):
            continue
        if abs(x.value * y.value - z.value) <= z.slack:
            return True
        if abs(x.value / y.value - z.value) <= z.slack or abs(y.value / x.value - z.value) <= z.slack:
            return True
    return False


def has_operation(numbers: Sequence[Number], window: int) -> bool:
    """Whether three related numbers stand within `window` tokens.

    Exact results are looked up: the numbers behind are in a table, and any two name the third. Rounded ones are sought
    among the sorted neighbours of each number that may be rounded. With n numbers in a window, O(n) lookups or
    O(n log n) steps per number; it ends at the first hit, and after 2,000 numbers.
    """
    numbers = numbers[:_MOST_NUMBERS]
    return _has_exact(numbers, window) or _has_rounded(numbers, window)


def _has_exact(numbers: Sequence[Number], window: int) -> bool:
    unit = 10 ** max((n.decimals for n in numbers), default=0)
    values = [int(n.value * unit) for n in numbers]  # whole numbers of the finest step: fractions would be slow
    behind: Counter[int] = Counter()  # the numbers before this one and in its window
    first = 0
    for i, z in enumerate(values):
        while numbers[i].token - numbers[first].token >= window:
            behind[values[first]] -= 1
            first += 1
        for x in values[first:i] if z else ():
            for third in _thirds(x, z, unit) if x else ():
                # x is in the table too: where it is the third itself, it must stand there twice
                if third and behind[third] > (third == x) and not _is_step(x, z, third, unit):
                    return True
        behind[z] += 1
    return False


def _thirds(x: int, z: int, unit: int) -> tuple[int, ...]:
    """What is related to x and z, all in steps of 1 / unit: x + z, |x - z|, x z, x / z, z / x."""
    sums = (x + z, abs(x - z))
    if unit in (x, z):
        return sums
    products = ((x * z, unit), (x * unit, z), (z * unit, x))
    return sums + tuple(top // below for top, below in products if top % below == 0 and top != below * unit)


def _has_rounded(numbers: Sequence[Number], window: int) -> bool:
    for i, c in enumerate(numbers):
        slack = c.slack
        if not slack or c.value == 1:
            continue
        near = _neighbours(numbers, i, window)
        values = [float(n.value) for n in near]
        low, high = float(c.value - slack), float(c.value + slack)
        for x in near:
            v = float(x.value)
            # a partner y with x * y or y / x about c (x / y about c is met from the partner's side)
            for least, most in ((low / v, high / v), (low * v, high * v)):
                at = bisect_left(values, least * (1 - 1e-9))
                while at < len(near) and values[at] <= most * (1 + 1e-9):
                    y = near[at]
                    at += 1
                    if y is not x and _within(window, x, y, c) and related(x, y, c):
                        return True
    return False


def _neighbours(numbers: Sequence[Number], i: int, window: int) -> list[Number]:
    """The numbers less than a window away from number i, by value; zeros and ones take part in no product."""
    c, out = numbers[i], []
    for step in (-1, 1):
        at = i + step
        while 0 <= at < len(numbers) and abs(numbers[at].token - c.token) < window:
            if numbers[at].value not in (0, 1):
                out.append(numbers[at])
            at += step
    return sorted(out, key=lambda n: float(n.value))


def _within(window: int, *numbers: Number) -> bool:
    tokens = [n.token for n in numbers]
    return max(tokens) - min(tokens) < window
