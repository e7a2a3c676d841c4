"""Words and tokens for scoring: splits a text into tokens, each of which knows its word.

    normalise   NFKC, case folded, accents removed (é -> e, ø -> o, Arabic vowel signs), − -> -, ½ -> 1/2
    token       a number (1,000.50 is one, written 1000.5), an ordinal (6th), a run of letters (and digits after them:
                mp3), or one character of a script written without spaces (Han, kana, Thai, ...); % is "percent",
                & is "and"; all other punctuation separates tokens and is dropped
    word        a run without whitespace that holds a token: "Jean-Paul's" is one word of three tokens; a character of
                a script without spaces is a separate word

Limits count words. Matching compares tokens, so "art" is never found in "party".
"""

import functools
import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal

# Letters that do not decompose into a base and an accent.
_PLAIN = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h", "−": "-", "⁄": "/"}
)
_ACCENTS = re.compile("[\u0300-\u036f\u064b-\u0652\u0670\u0640]")
_NO_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_MAX_DIGITS = 60  # of a number; a longer run of digits is compared as text


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    kind: str  # number | ordinal | word
    start: int  # in the normalised text, [start, end)
    end: int
    first: int  # the word it starts in, from 0
    last: int  # ... and ends in; they differ if tokens were joined ("twenty one")
    decimals: int = 0  # of a number: digits after the decimal point


def normalise(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _spell_small_digits(text))
    text = text.casefold()
    if not text.isascii():
        text = _ACCENTS.sub("", unicodedata.normalize("NFD", text)).translate(_PLAIN)
        text = unicodedata.normalize("NFC", text)
    return text


def _spell_small_digits(text: str) -> str:
    """Separate what NFKC would join: 2½ becomes 2 1/2 rather than 21/2, and 10² becomes 10^2 rather than 102."""
    out = []
    for char in text:
        kind = unicodedata.decomposition(char).partition(" ")[0]
        if kind == "<fraction>":
            out.append(" ")
        elif kind == "<super>" and out and out[-1].isdigit():
            out.append("^")
        out.append(char)
    return "".join(out)


@functools.cache
def _pattern() -> re.Pattern[str]:
    marks = "".join(c for c in map(chr, range(0x300, 0x20000)) if unicodedata.category(c).startswith("M"))
    letter, tail = f"(?![{_NO_SPACES}])[^\\W\\d_]", f"(?![{_NO_SPACES}])(?:[^\\W_]|[{marks}])"
    return re.compile(
        r"(?P<ordinal>(?<![\w.,])\d+(?=(?:st|nd|rd|th)\b))(?:st|nd|rd|th)"
        r"|(?P<decade>(?<![\w.,])\d+s\b)"
        r"|(?P<number>(?:(?<![^\s(\[=:+*/×÷$£€])-(?=[$£€]?\.?\d)[$£€]?)?"
        r"(?:(?<![\d_])\d{1,3}(?:,\d{3})+(?![\d])(?:\.\d+)?|(?<![\d_])\d+(?:\.\d+)?|(?<![\d_])\.\d+))"
        rf"|(?P<char>[{_NO_SPACES}][{marks}]*)"
        rf"|(?P<word>{letter}(?:{tail})*)"
        r"|(?P<sign>[%&])"
    )


def tokens_of(text: str) -> list[Token]:
    out: list[Token] = []
    word, end, alone = 0, 0, False
    for match in _pattern().finditer(text):
        here = match["char"] is not None
        if out and (here or alone or any(c.isspace() for c in text[end : match.start()])):
            word += 1
        written, kind, decimals = _canonical(match)
        out.append(Token(written, kind, match.start(), match.end(), word, word, decimals))
        end, alone = match.end(), here
    return out


def _canonical(match: re.Match[str]) -> tuple[str, str, int]:
    if match["number"] is not None:
        digits = re.sub(r"[,$£€]", "", match["number"])
        if len(digits) > _MAX_DIGITS:
            return digits, "word", 0
        return number_text(Decimal(digits)), "number", len(digits.partition(".")[2])
    if match["ordinal"] is not None:
        return f"{match['ordinal'].lstrip('0') or '0'}th", "ordinal", 0
    if match["sign"] is not None:
        return ("percent" if match["sign"] == "%" else "and"), "word", 0
    return match[0], "word", 0


def number_text(value: Decimal) -> str:
    """Return a number without redundant digits: 4.0 -> 4, 1E+3 -> 1000, -0 -> 0."""
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text
