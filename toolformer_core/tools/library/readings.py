"""Numbers in texts, read and written: what the library's tools share.

Numbers are exact fractions. A tool's fingerprint covers its own file only, so whoever changes what is read or written
here raises `VERSION`, which stands in the fingerprints of the tools that use it.
"""

import re
from contextlib import suppress
from fractions import Fraction

from toolformer_core.tools import calculator

VERSION = "2"
MAX_CHARS = 256  # of an input

# A number in digits: 1,234.5 or 3/4 or 1 1/2, with a sign unless a letter or digit stands in front of it.
NUMBER = (
    r"(?:(?<![\w.])[-−+])?(?<![\w.,])(?:\d+ \d+/\d+|\d+/\d+|\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
)
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SMALL = {word: n for n, word in enumerate(_UNITS)} | {word: 10 * n for n, word in enumerate(_TENS, start=2)}
_LARGE = {"hundred": 100, "thousand": 1_000, "million": 1_000_000}
_WORDS = "|".join([*_SMALL, *_LARGE])
# A number in words, e.g. `twenty-five`, `a hundred and five`, `half`.
WORD_NUMBER = rf"\b(?:half(?: an?)?|(?:an? )?(?:{_WORDS})(?:(?:[ -]| and )(?:{_WORDS}))*|an?)\b"


def one_line(text: str) -> str:
    """Return an input with single spaces; a `ValueError` if it is empty, or longer than any question here."""
    line = " ".join(text.split())
    if not line:
        raise ValueError("the input is empty")
    if len(line) > MAX_CHARS:
        raise ValueError(f"{len(line)} characters, at most {MAX_CHARS}")
    return line


def number_of(text: str) -> Fraction:
    """Return the value of a text that is a number, in digits or in words; else a `ValueError`."""
    text = text.strip().replace("−", "-")
    if re.fullmatch(NUMBER, text):
        sign = -1 if text.startswith("-") else 1
        whole, _, part = text.lstrip("+-").replace(",", "").rpartition(" ")
        return sign * (Fraction(whole or 0) + Fraction(part))
    if re.fullmatch(WORD_NUMBER, text.lower()):
        return _in_words(text.lower())
    raise ValueError(f"{text[:40]!r} is no number")


def value_of(text: str) -> Fraction:
    """Return the value of a number or of an expression that the calculator understands; else a `ValueError`."""
    text = text.strip()
    with suppress(ValueError):
        return number_of(text)
    try:
        return calculator.evaluate(text)
    except calculator.InvalidExpression as exc:
        raise ValueError(f"{text[:40]!r} is neither a number nor an expression: {exc}") from exc


def written(value: Fraction) -> str:
    """Return a number as it is written: with four decimals, and of a number below 1 with four significant digits.

    Where these are exact, zeros at the end are left out; else they stay, as a sign that the number was rounded: 3 is
    exact, 3.0000 is not. Halves round away from zero.
    """
    decimals = 4
    while value and decimals < 300 and abs(value) * 10 ** (decimals - 3) < 1:
        decimals += 1
    scaled = abs(value) * 10**decimals
    rounded = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    whole, rest = divmod(rounded, 10**decimals)
    text = f"{'-' if value < 0 and rounded else ''}{whole}.{rest:0{decimals}d}"
    return text.rstrip("0").rstrip(".") if scaled.denominator == 1 else text


def _in_words(text: str) -> Fraction:
    if text.startswith("half"):
        return Fraction(1, 2)
    total = group = 0
    last = ""
    for word in re.findall("[a-z]+", text):
        if word in ("a", "an"):
            group = 1
        elif word in _SMALL:
            if last in _SMALL and not (_SMALL[last] >= 20 and 0 < _SMALL[word] < 10):
                raise ValueError(f"{text!r} is no number")
            group += _SMALL[word]
        elif word == "hundred":
            group = max(group, 1) * 100
        elif word in _LARGE:
            total += max(group, 1) * _LARGE[word]
            group = 0
        last = word if word != "and" else last
    return Fraction(total + group)
