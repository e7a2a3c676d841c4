"""Where a call may stand: between words, never inside one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.annotate.boundaries import inside_words


def allowed(text: str) -> str:
    """Write a bar wherever a call may stand."""
    inside = inside_words(text)
    return "".join(("" if inside[at] else "|") + text[at : at + 1] for at in range(len(text) + 1))


@pytest.mark.parametrize(
    "told",
    [
        "|98| |*| |984|,| |don't| |'|quote|'|",  # an apostrophe between letters, and quotation marks
        "|costs| |$|1,234.50|,| |.5| |and| |1|.|",  # separators, a point that begins, and one that ends a sentence
        "|1\u202f234| |1\u00a0234| |1'234|",  # other thousands separators
        "|a|.|5| |3|.|.|5| |12|:|30| |2016|-|11|-|28|",  # no decimal points; times and dates have parts
        "|CO2| |x|_|y| |well|-|known|",
        "|naïve| |e\u0301a| |हिन्दी| |में| |한국어|",  # combining marks, and scripts with spaces
        "|٣٫١٤| |１２３|",  # digits are digits in any script
        "|東|京|2020|年|の|人|口|",  # Han and kana between any two; the year within is a number
        "|co\u00adop| |می\u200cخواهم| |col·lecció|",  # a soft hyphen, a joiner, a middle dot
        "|👨\u200d👩\u200d👧| |🇩🇪|🇫🇷| |👍🏽| |\r\n|",  # what a reader takes for one character
        "|ภ|า|ษ|า|ดี|",  # Thai likewise; a vowel sign stays with its consonant
        "|",
    ],
)
def test_a_call_may_stand_between_words_and_numbers(told: str) -> None:
    assert allowed(told.replace("|", "")) == told


@given(st.text())
def test_the_ends_are_allowed_and_so_is_every_place_beside_a_space(text: str) -> None:
    inside = inside_words(text)
    assert inside.shape == (len(text) + 1,)
    assert not inside[0]
    assert not inside[-1]
    for at, letter in enumerate(text):
        if letter == " ":
            assert not inside[at]


@given(st.text(st.sampled_from("aZ09.,'- _\r\n$") | st.characters(max_codepoint=0x7F)))
def test_ascii_is_read_as_all_other_text_is(text: str) -> None:
    other = inside_words(f"{text} é")  # behind the blank, nothing changes what is in front of it
    assert inside_words(text).tolist() == other[: len(text) + 1].tolist()


@given(st.text(st.characters(categories=["L", "N"], max_codepoint=0x24F), min_size=1))
def test_a_run_of_latin_letters_and_digits_is_one_word(text: str) -> None:
    assert inside_words(text)[1:-1].all()
