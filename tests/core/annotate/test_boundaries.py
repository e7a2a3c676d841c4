"""Where a call may stand: between words, never inside one; and the places of numbers, and their values."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.annotate.boundaries import before_new_numbers, inside_words, number_at
from toolformer_core.annotate.score import worth_scoring
from toolformer_core.config import SampleConfig
from toolformer_core.records import DrawnCall


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
    assert not any(inside[at] for at in (0, -1, *(at for at, letter in enumerate(text) if letter == " ")))


@given(st.text(st.sampled_from("aZ09.,'- _\r\n$") | st.characters(max_codepoint=0x7F)))
def test_ascii_is_read_as_all_other_text_is(text: str) -> None:
    other = inside_words(f"{text} é")  # behind the blank, nothing changes what is in front of it
    assert inside_words(text).tolist() == other[: len(text) + 1].tolist()


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("sold 24 clips", [" 24 clips"]),
        ("for $0.2 and $ 50", [" $0.2 and $ 50", " $ 50"]),  # one place a number, in front of its currency
        ("a loss of -3, or (−5)", [" -3, or (−5)", " (−5)"]),
        ("1,240.50 in all", ["1,240.50 in all"]),
        ("x=3\n12 more", ["3\n12 more", "12 more"]),
        ("a 120-page book, ٣ of them", [" 120-page book, ٣ of them", " ٣ of them"]),
        ("no number", []),
    ],
)
def test_a_number_has_one_place_in_front_of_all_that_belongs_to_it(text: str, places: list[str]) -> None:
    after_two = "7\n8\n" + text
    assert [after_two[at:] for at in np.flatnonzero(before_new_numbers(after_two))] == places


def test_the_first_two_numbers_of_a_text_result_from_nothing_and_one_that_it_has_had_is_no_new_one() -> None:
    assert np.flatnonzero(before_new_numbers("2 * 3 = 6, 7")).tolist() == [7, 10]
    text = "48 / 2 = 24, so 24.0 and -2, then 1,200 or 1200"
    #             8         21 and 25: had; 34        had
    assert np.flatnonzero(before_new_numbers(text)).tolist() == [8, 33]


@given(st.text(alphabet="a1.,$ (-\n", max_size=30))
def test_a_place_is_in_front_of_a_number_and_splits_nothing(text: str) -> None:
    for at in np.flatnonzero(before_new_numbers(text)):
        assert text[at:].lstrip(" $(-.")[:1] == "1"
        assert not inside_words(text)[at] or text[at - 1] == "a"  # `a1` is one word with a digit in it


VALUES = {" 24 clips": "24", " $0.20 each": "0.2", " -3,": "-3", " (−1,240.50)": "-1240.5", "1,24 is no thousand": "1"}
VALUES |= {".5 of it": "0.5", " ٣ of them": "3", "7.": "7"}


@pytest.mark.parametrize("text", [*VALUES, " clips 24", ""])
def test_the_number_at_a_place_has_a_value(text: str) -> None:
    assert number_at(text) == (Decimal(VALUES[text]) if text in VALUES else None)
    assert number_at("to" + text, 2) == number_at(text)


@given(st.decimals(-(10**9), 10**9, places=2))
def test_a_number_is_read_as_it_is_written(value: Decimal) -> None:
    assert number_at(f"It cost {value:,} at most", 7) == value


def drawn(position: int, input_: str) -> DrawnCall:
    return DrawnCall("d", "calculator", position, -1.0, 0, f"Calculator({input_})", "ok", input_, 1)


def test_calls_that_answer_another_number_need_no_score() -> None:
    text = "He sold 48, then half, so 72.0 of the 80, not 48."
    worth = [(drawn(25, "48 * 1.5"), "72"), (drawn(25, "48 + 48 / 2"), "72"), (drawn(7, "6 * 8"), "48")]
    before_sold = (drawn(3, "6 * 8"), "48")
    others = {
        "answers_another_number": [(drawn(25, "48 + 8"), "56"), (drawn(25, "?"), "no number"), before_sold],
        "repeats_a_number": [(drawn(45, "80 - 32"), "48")],
        "holds_its_answer": [(drawn(25, "72.00 / 1"), "72")],
        "reads_ahead": [(drawn(25, "80 - 8"), "72"), (drawn(7, "72 - 24"), "48")],
    }
    everything = worth + [one for some in others.values() for one in some]
    found, reasons = worth_scoring({"d": text}, everything, SampleConfig(numbers="new"))
    assert found == worth
    assert reasons == {reason: len(some) for reason, some in others.items()}
    assert worth_scoring({"d": text}, everything, SampleConfig()) == (everything, {})
