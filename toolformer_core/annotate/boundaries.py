"""Where a call may be inserted into a text: not inside a word, a number or a character.

The paper allows a call in front of every token, and a tokenizer may split anywhere. What must not be split:

- a word is a run of letters and digits, with apostrophes and similar marks between letters (`don't`, `col·lecció`)
- a number is a run of digits with separators between them (`1,234.50`, `1 234` with a no-break space) and a leading
  decimal point (`.5`); times, dates and fractions are several numbers, and a sign or unit is not part of a number
- a character is what a reader perceives as one: a letter with its combining marks and joiners, a flag, a joined emoji
- scripts written without spaces have no such runs of letters: a call may be inserted between any two characters
"""

import re
from decimal import Decimal

import numpy as np
import regex
from numpy.typing import NDArray

# The letters and marks of scripts without spaces, for a character class of the package `regex`.
UNSPACED = "".join(
    rf"\p{{Script={script}}}"
    for script in (
        *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"),
        *("Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Javanese", "Balinese"),
    )
)

# Combining marks, joiners, soft hyphen, halfwidth voiced marks, skin tones.
_MARK = r"\p{M}\u00ad\u200c\u200d\u2060\uff9e\uff9f\U0001f3fb-\U0001f3ff"
_RUN = rf"[[\p{{L}}--[{UNSPACED}]]\p{{N}}][[\p{{L}}--[{UNSPACED}]]\p{{N}}{_MARK}]*+"
_CHARACTER = rf"\r\n|[\U0001f1e6-\U0001f1ff]{{2}}|[^{_MARK}][{_MARK}]++(?:(?<=\u200d)[^{_MARK}][{_MARK}]*+)*+"
# Full stop, comma, Arabic decimal and thousands separators, apostrophes (Swiss), no-break spaces, the separator U+2009.
_SEPARATOR = r"(?<=\p{N})[.,\u066b\u066c'’\u00a0\u202f\u2009](?=\p{N})"
_APOSTROPHE = r"(?<=\p{L}\p{M}*)['’·׳״](?=\p{L})"
_POINT = r"(?<![\p{L}\p{N}\p{M}.])\.(?=\p{N})"
_WHOLE = regex.compile(rf"(?V1)(?:{_POINT})?+{_RUN}(?:(?:{_SEPARATOR}|{_APOSTROPHE}){_RUN})*+|{_CHARACTER}")
# The same for ASCII, eight times as fast: a shard's texts are looked through by it.
_ASCII_WHOLE = re.compile(
    r"(?:(?<![A-Za-z0-9.])\.(?=[0-9]))?+[A-Za-z0-9]++"
    r"(?:(?:(?<=[0-9])[.,'](?=[0-9])|(?<=[A-Za-z])'(?=[A-Za-z]))[A-Za-z0-9]++)*+|\r\n"
)
# What stands between a number's place and its first digit: a blank, a currency or bracket, a sign, a decimal point.
_BEFORE_NUMBER = regex.compile(
    r"(?:(?<!\p{Zs})\p{Zs}[\p{Sc}(]*+\p{Zs}?|(?<![\p{Zs}\p{Sc}(\p{N}.,+\-−])[\p{Sc}(]*+)(?P<sign>[-+−]?+)(?=\.?\p{Nd})"
)
_VALUE = re.compile(r"(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++)(?:\.\d++)?|\.\d++")


def inside_words(text: str) -> NDArray[np.bool_]:
    """Return for every character offset whether a call there would split a word, a number or a character.  (n + 1,)"""
    pattern = _ASCII_WHOLE if text.isascii() else _WHOLE
    spans = [span for whole in pattern.finditer(text) if (span := whole.span())[1] - span[0] > 1]
    starts, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    depth = np.zeros(len(text) + 1, dtype=np.int8)  # of matches that are open: 0 or 1, as no two overlap
    depth[starts + 1] = 1
    depth[ends] = -1
    return np.cumsum(depth, dtype=np.int8).view(np.bool_)


def before_new_numbers(text: str) -> NDArray[np.bool_]:
    """Return for every character offset whether a number that may result from those before it has its place there.

    A result takes two numbers, so it is the text's third or a later one; none before it has its value, signs aside, as
    a number that is repeated was hardly computed there.  (n + 1,)
    """
    out = np.zeros(len(text) + 1, dtype=np.bool_)
    places = [found.start() for found in _BEFORE_NUMBER.finditer(text)]
    values = [abs(number_at(text, place) or 0) for place in places]
    first = dict(zip(reversed(values), reversed(places), strict=True))  # of each value
    out[[place for place in first.values() if place not in places[:2]]] = True
    return out


def number_at(text: str, position: int = 0) -> Decimal | None:
    """Return the value of the number whose place is there, or None; a comma before three digits marks thousands."""
    place = _BEFORE_NUMBER.match(text, position)
    if place is None or (digits := _VALUE.match(text, place.end())) is None:
        return None
    value = Decimal(digits[0].replace(",", ""))
    return -value if place["sign"] in ("-", "−") else value


def numbers_in(text: str) -> set[Decimal]:
    """Return the values of a text's numbers without their signs."""
    return {Decimal(found[0].replace(",", "")) for found in _VALUE.finditer(text)}
