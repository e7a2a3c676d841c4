"""Reads numbers in digits or in words: "1,000.5", "-3", "5 million", "twenty-one", "a hundred and two", "3/4".

"One" is not a number where it is a pronoun ("one of", "this one").
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from toolformer_core.evaluate.words import Token, normalise, number_text, tokens_of


def _values(words: str, start: int = 0, step: int = 1) -> dict[str, int]:
    return {word: step * value for value, word in enumerate(words.split(), start)}


_UNITS = _values(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = _values("twenty thirty forty fifty sixty seventy eighty ninety", 2, 10) | {"fourty": 40}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ORDINALS = _values(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth",
    1,
) | _values("twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth hundredth", 2, 10)
_BEGINNINGS = frozenset({"a", *_UNITS, *_TENS, *_ORDINALS})
_MAX_TOKENS = 32  # of a numeral; "nine hundred and ninety nine trillion ..." has 29
_BEFORE_A_PRONOUN = frozenset("the this that each every any no which another either neither".split())


@dataclass(frozen=True, slots=True)
class Number:
    value: Fraction
    decimals: int | None  # as written; None for a fraction such as 1/3, which is exact


def join_numerals(tokens: Sequence[Token], text: str) -> list[Token]:
    """Return the tokens of a normalised text with every numeral in words as one number ("7") or ordinal ("21th")."""
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        token, used = _numeral(tokens, i, text)
        out.append(token)
        i += used
    return out


def _numeral(tokens: Sequence[Token], i: int, text: str) -> tuple[Token, int]:
    """Return the token at i, or the numeral that starts there as one token, and how many tokens it takes."""
    if tokens[i].kind != "number" and tokens[i].text not in _BEGINNINGS:
        return tokens[i], 1
    run = _run(tokens, i, text)
    value, used, kind = _parse_numeral(run)
    if not used or (used == 1 and tokens[i].kind == "number"):
        return tokens[i], 1
    head, tail = tokens[i], tokens[i + used - 1]
    written = f"{value}th" if kind == "ordinal" else number_text(value)
    decimals = len(written.partition(".")[2]) if kind == "number" else 0
    return Token(written, kind, head.start, tail.end, head.first, tail.last, decimals), used


def _run(tokens: Sequence[Token], i: int, text: str) -> list[Token]:
    """Return the tokens from i on that are separated only by a space or a hyphen (after "thousand", also a comma)."""
    out = [tokens[i]]
    for token in tokens[i + 1 : i + _MAX_TOKENS]:
        gap = text[out[-1].end : token.start]
        if not re.fullmatch(r"\s|-", gap) and not (gap == ", " and out[-1].text in _SCALES):
            break
        out.append(token)
    return out


def _parse_numeral(run: Sequence[Token]) -> tuple[Decimal, int, str]:
    """Return value, token count (0: there is none) and kind (number or ordinal) of the numeral that starts a run."""
    words = [t.text for t in run]
    if run[0].kind == "number":  # 5 million; 2.5 thousand
        scale = _SCALES.get(words[1]) if len(words) > 1 else None
        return (Decimal(words[0]) * scale, 2, "number") if scale else (Decimal(words[0]), 1, "number")
    total, i, limit = 0, 0, 10**15
    while True:
        value, used, ordinal = _group(words, i)
        if not used:
            break
        scale = _SCALES.get(words[i + used]) if not ordinal and i + used < len(words) else None
        if scale is not None and scale < limit:
            total, i, limit = total + value * scale, i + used + 1, scale
            if words[i : i + 1] == ["and"] and _group(words, i + 1)[1]:
                i += 1
            continue
        return Decimal(total + value), i + used, "ordinal" if ordinal else "number"
    return Decimal(total), i, "number"


def _group(words: Sequence[str], i: int) -> tuple[int, int, bool]:
    """Return the numeral below a thousand at i: value, word count (0: none), and whether it ends as an ordinal."""
    value, used, ordinal = _below_hundred(words, i)
    if ordinal:
        return value, used, True
    after = next(iter(words[i + (used or 1) :]), "")
    if not used and words[i : i + 1] == ["a"] and after in (*_SCALES, "hundred", "dozen"):
        value, used = 1, 1
    if not used or after not in ("dozen", "hundred"):
        return value, used, False
    if after == "dozen":
        return 12 * value, used + 1, False
    at = i + used + 1
    link = words[at : at + 1] == ["and"]
    more, more_used, ordinal = _below_hundred(words, at + link)
    return (100 * value + more, used + 1 + link + more_used, ordinal) if more_used else (100 * value, used + 1, False)


def _below_hundred(words: Sequence[str], i: int) -> tuple[int, int, bool]:
    word, unit = [*words[i : i + 2], "", ""][:2]
    if word in _ORDINALS:
        return _ORDINALS[word], 1, True
    if word in _UNITS:
        return _UNITS[word], 1, False
    if word not in _TENS:
        return 0, 0, False
    if 1 <= _UNITS.get(unit, 0) <= 9:
        return _TENS[word] + _UNITS[unit], 2, False
    if 1 <= _ORDINALS.get(unit, 0) <= 9:
        return _TENS[word] + _ORDINALS[unit], 2, True
    return _TENS[word], 1, False


def first_number(text: str, *, fractions: bool = False) -> Number | None:
    """Return the first number predicted, or if there is an equation the first after its first "=" (§4.2.2), if any.

    `fractions`: 3/4 and 2 1/2 are one number; otherwise their first numbers are 3 and 2.
    """
    text = normalise(text)
    numbers = _numbers(text, fractions)
    equals = text.find("=")
    results = (number for number, start, _ in numbers if 0 <= equals < start)
    return next(results, numbers[0][0] if numbers else None)


def number_in(text: str) -> Number | None:
    """Return a text's number, ignoring brackets, currency and percent signs; None if there is other text.

    "9 (apples)", "$1,234.50", "25 (%)", "3/4", "seven"; but not "10:1", "Shop 2" or "2 hours; 30 minutes".
    """
    text = re.sub(r"\([^()]*\)", " ", text).strip().rstrip(".")
    folded = normalise(text)
    numbers = _numbers(folded, fractions=True)
    if len(numbers) != 1:
        return None
    number, start, end = numbers[0]
    rest = folded[:start] + folded[end:]
    return number if re.fullmatch(r"[\s$£€¥%]*", rest) else None


def numbers_of(text: str) -> list[Fraction]:
    """Return all numbers of a text in order, in digits or words, without ordinals."""
    return [number.value for number, _, _ in _numbers(normalise(text), fractions=False)]


def _numbers(text: str, fractions: bool) -> list[tuple[Number, int, int]]:
    """Return the numbers of a normalised text with their spans, in order, without ordinals."""
    tokens = join_numerals(tokens_of(text), text)
    out: list[tuple[Number, int, int]] = []
    for i, token in enumerate(tokens):
        if token.kind != "number" or _is_pronoun(tokens, i, text):
            continue
        if fractions and out and _merge_denominator(out, token, text):
            continue
        out.append((Number(Fraction(token.text), token.decimals), token.start, token.end))
    return out


def _is_pronoun(tokens: Sequence[Token], i: int, text: str) -> bool:
    if text[tokens[i].start : tokens[i].end] != "one":
        return False
    before = tokens[i - 1].text if i else ""
    after = tokens[i + 1].text if i + 1 < len(tokens) else ""
    return after == "of" or before in _BEFORE_A_PRONOUN


def _merge_denominator(out: list[tuple[Number, int, int]], token: Token, text: str) -> bool:
    """Merge a denominator into the last number (3/4) and a whole number before it (2 1/2); False if it is none."""
    numerator, start, end = out[-1]
    denominator = Fraction(token.text)
    if text[end : token.start] != "/" or denominator <= 0 or numerator.decimals != 0 or token.decimals:
        return False
    value = numerator.value / denominator
    out.pop()
    if out and 0 < value < 1 and text[out[-1][2] : start] == " " and out[-1][0].decimals == 0:
        whole, start, _ = out.pop()
        value = whole.value - value if whole.value < 0 else whole.value + value
    out.append((Number(value, None), start, token.end))
    return True
