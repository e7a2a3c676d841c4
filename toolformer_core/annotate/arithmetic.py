"""Finds numbers in a text, and tests whether one is the result of + - * / on two others near it, for `prefilter`.

`prefilter` defines what counts as a number, a year, a result and a trivial case. Nothing here knows documents.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

# Digits that are not quantities: in a URL or an address, in a query, in an assignment in code or markup.
_CODE = re.compile(
    r"(?:https?|ftp)://[^\s<>\"]+|\bwww\.[^\s<>\"]+|(?<![\w.+-])[\w.+-]{1,64}@[\w.-]+"
    r"|(?<![\w.-])(?:[a-z0-9-]{1,63}\.){1,4}[a-z]{2,10}/[^\s<>\"]*"  # example.org/2
    r"|[?&][\w.-]{1,40}=[^\s<>\"]*"
    r"|[^\W\d]{2}=[\"']?-?[\d.][\w.%]*",  # width=300
    re.IGNORECASE,
)
# At the start of a line, possibly quoted or after a bullet: 1. 2) (3) [4] 5: 2.1.
_LIST_MARKER = re.compile(
    r"^(?P<before>[^\S\n]*(?:[-*•>#]+[^\S\n]+)?)(?P<marker>[(\[]?\d{1,3}(?:\.\d{1,3}){0,3}[.):\]]{1,2})(?=\s)",
    re.MULTILINE,
)
_EQUATION = re.compile(
    r"(?:(?<![<>!=])=|\b(?:equals|equal to|total of|average of))\s*+[-−]?\s*+[$€£¥]?\s*+\.?\d", re.IGNORECASE
)

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
# A number is not joined to a letter, nor to further digits by a point or comma (a version, a list).
_TOKEN = re.compile(rf"(?<![\w.,])(?P<number>{_DIGITS}|\.\d+)(?P<percent>\s?%)?(?![\w]|[.,]\d)|[^\W_]+")
_YEAR = re.compile(r"1[5-9]\d\d|20\d\d")
_PRICE_OR_OPERATOR_BEFORE = re.compile(r"[$€£¥+*/×÷=]\s?\Z")
_WORD_BEFORE_A_YEAR = re.compile(
    r"\b(?:the|this|that|a|an|its|his|her|their|our|in|since|until|during)\s\Z", re.IGNORECASE
)
_FUNCTION_WORDS = (
    "a an and are as at because but by did for from had has have he her his i if in into is it its my no not of on or "
    "our she since so than that the their then there these they this through to under until up was we were when where "
    "which while who will with would you"
)
# What follows a number that counts things: an operator, or a word that is not a function word.
_COUNTED = re.compile(rf"\s?[+*/×÷=%]|[\s-](?!(?:{_FUNCTION_WORDS.replace(' ', '|')})\b)(?P<thing>[a-z]+)")
_YEARS_AFTER = re.compile(r"[\s-]?(?:years?|yrs?)\b", re.IGNORECASE)
_AGE_BEFORE = re.compile(r"\b(?:aged?|age of)\s\Z", re.IGNORECASE)
_NEAR_CHARS = 24
_MAX_DIGITS = 15
_MAX_NUMBERS = 2_000


@dataclass(frozen=True, slots=True)
class NumberToken:
    value: Fraction
    decimals: int  # of the value: 29 % has two
    token: int
    is_year: bool = False  # a bare year, which is only an operand of a difference in years
    counts_years: bool = False  # a count of years: 17 years, aged 17

    @property
    def tolerance(self) -> Fraction:
        """How far a result may differ and still round to this number; 0 if it must be exact."""
        step = Fraction(1, 10**self.decimals)
        return step / 2 if self.decimals >= 2 and self.value >= 10 * step else Fraction(0)


def _is_counting(a: Fraction | int, b: Fraction | int, c: Fraction | int, unit: int) -> bool:
    """Return whether one number is 1 and all are whole and below 10, as in 3 + 1 = 4; `unit` is 1 in their scale."""
    return unit in (a, b, c) and all(v < 10 * unit and v % unit == 0 for v in (a, b, c))


def has_equation(text: str) -> bool:
    return _EQUATION.search(_mask_non_quantities(text)) is not None


def numbers_in(text: str) -> list[NumberToken]:
    """Return the numbers of a text, in order; those in URLs, code and list markers count as tokens but not numbers."""
    out = []
    text = _mask_non_quantities(text)
    for i, match in enumerate(_TOKEN.finditer(text)):
        written = match["number"]
        if written is None or sum(c.isdigit() for c in written) > _MAX_DIGITS:
            continue
        percent = match["percent"] is not None
        decimals = len(written.partition(".")[2]) + (2 if percent else 0)
        value = Fraction(written.replace(",", "")) / (100 if percent else 1)
        before = text[max(0, match.start() - _NEAR_CHARS) : match.start()]
        is_year = _YEAR.fullmatch(written) is not None and not percent and _names_a_year(text, match, before)
        counts_years = _YEARS_AFTER.match(text, match.end()) is not None or _AGE_BEFORE.search(before) is not None
        out.append(NumberToken(value, decimals, i, is_year, counts_years))
    return out


def _mask_non_quantities(text: str) -> str:
    """Return the text, at the same length, with everything whose digits are not quantities replaced by a word."""
    text = _CODE.sub(lambda match: "x" * len(match.group()), text)
    return _LIST_MARKER.sub(lambda match: match["before"] + "x" * len(match["marker"]), text)


def _names_a_year(text: str, match: re.Match[str], before: str) -> bool:
    """Return whether four digits are a year: not a count (`1804 maps`), a price or a part of a calculation."""
    if _PRICE_OR_OPERATOR_BEFORE.search(before):
        return False
    counted = _COUNTED.match(text, match.end())
    if counted is None:
        return True
    thing = counted["thing"]  # a year in `the 2018 season`, but a count in `the 1804 maps`
    return thing is not None and _WORD_BEFORE_A_YEAR.search(before) is not None and not thing.endswith("s")


def related(a: NumberToken, b: NumberToken, c: NumberToken) -> bool:
    """Return whether one of three numbers is the result of + - * / on the other two, without trivial cases."""
    if min(a.value, b.value, c.value) == 0 or _is_counting(a.value, b.value, c.value, 1):
        return False
    for x, y, z in ((a, b, c), (a, c, b), (b, c, a)):
        if x.value + y.value == z.value:
            return True
        if 1 in (x.value, y.value, z.value):
            continue
        if abs(x.value * y.value - z.value) <= z.tolerance:
            return True
        if abs(x.value / y.value - z.value) <= z.tolerance or abs(y.value / x.value - z.value) <= z.tolerance:
            return True
    return False


def has_operation(numbers: Sequence[NumberToken], window: int) -> bool:
    """Return whether there are three related numbers within `window` tokens, among the first 2,000."""
    numbers = numbers[:_MAX_NUMBERS]
    quantities = [number for number in numbers if not number.is_year]
    return _has_exact(quantities, window) or _has_rounded(quantities, window) or _has_years_between(numbers, window)


def _has_years_between(numbers: Sequence[NumberToken], window: int) -> bool:
    """Return whether a count of years is the difference of two bare years within the window."""
    for i, count in enumerate(numbers):
        if not count.counts_years or count.is_year or not count.value:
            continue
        near = [n for n in numbers[max(0, i - window) : i + window] if n.is_year]
        latest: dict[Fraction, int] = {}
        for year in near:
            for other in (year.value - count.value, year.value + count.value):
                first = latest.get(other)
                if first is not None and max(year.token, count.token) - min(first, count.token) < window:
                    return True
            latest[year.value] = year.token
    return False


def _has_exact(numbers: Sequence[NumberToken], window: int) -> bool:
    unit = 10 ** max((n.decimals for n in numbers), default=0)
    values = [int(n.value * unit) for n in numbers]  # integers in units of the finest step, because fractions are slow
    preceding: Counter[int] = Counter()  # the numbers before this one, within its window
    first = 0
    for i, z in enumerate(values):
        while numbers[i].token - numbers[first].token >= window:
            preceding[values[first]] -= 1
            first += 1
        for x in values[first:i] if z else ():
            for third in _third_numbers(x, z, unit) if x else ():
                # x is in the table too, so if it equals the third number, the table must hold it twice
                if third and preceding[third] > (third == x) and not _is_counting(x, z, third, unit):
                    return True
        preceding[z] += 1
    return False


def _third_numbers(x: int, z: int, unit: int) -> tuple[int, ...]:
    """Return the numbers related to x and z, all in units of 1 / `unit`: x + z, |x - z|, x z, x / z, z / x."""
    sums = (x + z, abs(x - z))
    if unit in (x, z):
        return sums
    fractions = ((x * z, unit), (x * unit, z), (z * unit, x))  # numerator, denominator
    return sums + tuple(n // d for n, d in fractions if n % d == 0 and n != d * unit)


def _has_rounded(numbers: Sequence[NumberToken], window: int) -> bool:
    for i, c in enumerate(numbers):
        if not c.tolerance or c.value == 1:
            continue
        others = (n for n in numbers[max(0, i - window) : i + window] if 0 < abs(n.token - c.token) < window)
        near = sorted((n for n in others if n.value not in (0, 1)), key=lambda n: float(n.value))
        values = [float(n.value) for n in near]
        low, high = float(c.value - c.tolerance), float(c.value + c.tolerance)
        for x in near:
            v = float(x.value)
            # a partner y with x * y or y / x close to c (x / y is found from the partner's side)
            for least, most in ((low / v, high / v), (low * v, high * v)):
                at = bisect_left(values, least * (1 - 1e-9))
                while at < len(near) and values[at] <= most * (1 + 1e-9):
                    y = near[at]
                    at += 1
                    if y is not x and abs(x.token - y.token) < window and related(x, y, c):
                        return True
    return False
