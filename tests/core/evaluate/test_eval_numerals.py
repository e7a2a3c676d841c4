from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.evaluate.numerals import first_number, join_numerals, number_in
from toolformer_core.evaluate.words import normalise, tokens_of

_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
_ONES += ["seventeen", "eighteen", "nineteen"]
_TENS = ["", "", *"twenty thirty forty fifty sixty seventy eighty ninety".split()]


def spelled(n: int, link: str = " and ") -> str:
    """English for 0 <= n < 10^9, by a rule of its own."""
    for size, name in ((10**6, "million"), (10**3, "thousand")):
        if n >= size:
            rest = f" {spelled(n % size, link)}" if n % size else ""
            return f"{spelled(n // size, link)} {name}{rest}"
    if n >= 100:
        return f"{_ONES[n // 100]} hundred{link + spelled(n % 100) if n % 100 else ''}"
    if n >= 20:
        return _TENS[n // 10] + (f"-{_ONES[n % 10]}" if n % 10 else "")
    return _ONES[n]


def read(text: str) -> list[str]:
    text = normalise(text)
    return [t.text for t in join_numerals(tokens_of(text), text)]


@given(st.integers(0, 10**9 - 1), st.sampled_from([" and ", " "]))
def test_every_number_is_read_from_its_words(n, link):
    assert read(spelled(n, link)) == [str(n)]
    assert number_in(spelled(n, link).title()).value == n


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("one two three", ["1", "2", "3"]),  # three numbers, not one
        ("twenty twenty", ["20", "20"]),
        ("one hundred, five", ["100", "5"]),
        ("one thousand, two hundred", ["1200"]),
        ("twenty\none", ["21"]),
        ("twenty. One", ["20", "1"]),
        ("five and six", ["5", "and", "6"]),
        ("a hundred", ["100"]),
        ("a dog", ["a", "dog"]),
        ("hundred", ["hundred"]),
        ("the twenty-first", ["the", "21th"]),
        ("1.2.3", ["1.2", "3"]),
        ("(-4)", ["-4"]),
        ("N_00", ["n"]),
        ("٣", ["3"]),
    ],
)
def test_tokens(text, tokens):
    assert read(text) == tokens


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9 (apples)", 9),
        ("25 (%)", 25),
        ("$1,234.50", Fraction(2469, 2)),
        ("3/4", Fraction(3, 4)),
        ("1 1/2 (hours)", Fraction(3, 2)),
        ("-10", -10),
        ("12 (packs of 6)", 12),
        ("10:1", None),
        ("Shop 2", None),
        ("2 (hours); 30 (minutes)", None),
        ("Book store", None),
        ("", None),
    ],
)
def test_an_answer_that_is_a_number(text, value):
    number = number_in(text)
    assert (number and number.value) == value


def test_a_fraction_is_one_number_only_if_asked_for():
    assert first_number("3/4").value == 3
    assert first_number("3/4", fractions=True).value == Fraction(3, 4)
    assert first_number("-1 1/2", fractions=True).value == Fraction(-3, 2)
    assert first_number("3/0", fractions=True).value == 3


def test_words_are_counted_by_white_space():
    tokens = tokens_of(normalise("Jean-Paul's — 7 – 北京"))
    # the words: Jean-Paul's, 7, and each Chinese character; dashes are none
    assert [(t.text, t.first) for t in tokens] == [("jean", 0), ("paul", 0), ("s", 0), ("7", 1), ("北", 2), ("京", 3)]


def test_numbers_too_long_to_be_numbers_are_words():
    digits = "1" * 5_000
    assert read(digits) == [digits]
    assert first_number(digits) is None
