"""Places in front of numbers, and their values: where a tool that answers with a number may be tried, and scored."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.annotate.boundaries import before_new_numbers, inside_words, number_at, numbers_in
from toolformer_core.annotate.score import worth_scoring
from toolformer_core.config import SampleConfig
from toolformer_core.errors import UsageError
from toolformer_core.records import DrawnCall


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


def test_the_first_two_numbers_of_a_text_result_from_nothing() -> None:
    assert np.flatnonzero(before_new_numbers("2 * 3 = 6, 7")).tolist() == [7, 10]


def test_a_number_that_the_text_has_had_is_no_new_one() -> None:
    text = "48 / 2 = 24, so 24.0 and -2, then 1,200 or 1200"
    #             8         21 and 25: had; 34        had
    assert np.flatnonzero(before_new_numbers(text)).tolist() == [8, 33]


@given(st.text(alphabet="a1.,$ (-\n", max_size=30))
def test_a_place_is_in_front_of_a_number_and_splits_nothing(text: str) -> None:
    for at in np.flatnonzero(before_new_numbers(text)):
        assert text[at:].lstrip(" $(-.")[:1] == "1"
        assert not inside_words(text)[at] or text[at - 1] == "a"  # `a1` is one word with a digit in it


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 24 clips", "24"),
        (" $0.20 each", "0.2"),
        (" -3,", "-3"),
        (" (−1,240.50)", "-1240.5"),
        ("1,24 is no thousand", "1"),
        (".5 of it", "0.5"),
        (" ٣ of them", "3"),
        ("7.", "7"),
        (" clips 24", None),
        ("", None),
    ],
)
def test_the_number_at_a_place_has_a_value(text: str, value: str | None) -> None:
    assert number_at(text) == (None if value is None else Decimal(value))
    assert number_at("to" + text, 2) == number_at(text)


@given(st.decimals(-(10**9), 10**9, places=2))
def test_a_number_is_read_as_it_is_written(value: Decimal) -> None:
    assert number_at(f"It cost {value:,} at most", 7) == value


def drawn(position: int, input_: str) -> DrawnCall:
    return DrawnCall("d", "calculator", position, -1.0, 0, f"Calculator({input_})", "ok", input_, 1)


def test_calls_that_answer_another_number_need_no_score() -> None:
    text = "He sold 48, then half, so 72.0 of the 80, not 48."
    worth = [(drawn(25, "48 * 1.5"), "72"), (drawn(25, "48 + 48 / 2"), "72"), (drawn(7, "6 * 8"), "48")]
    others = {
        "answers_another_number": [
            (drawn(25, "48 + 8"), "56"),
            (drawn(25, "?"), "no number"),
            (drawn(3, "6 * 8"), "48"),  # in front of `sold`
        ],
        "repeats_a_number": [(drawn(45, "80 - 32"), "48")],
        "holds_its_answer": [(drawn(25, "72.00 / 1"), "72")],
        "reads_ahead": [(drawn(25, "80 - 8"), "72"), (drawn(7, "72 - 24"), "48")],
    }
    everything = worth + [one for some in others.values() for one in some]
    found, reasons = worth_scoring({"d": text}, everything, SampleConfig(numbers="new"))
    assert found == worth
    assert reasons == {reason: len(some) for reason, some in others.items()}
    assert worth_scoring({"d": text}, everything, SampleConfig()) == (everything, {})


def test_the_numbers_of_a_text_are_its_values_without_signs() -> None:
    assert numbers_in("-3 of 1,240.50, then 3.0 and .5") == {Decimal(3), Decimal("1240.5"), Decimal("0.5")}


def test_what_numbers_there_are() -> None:
    with pytest.raises(UsageError, match="numbers must be one of any, new: 'some'"):
        SampleConfig(numbers="some")
