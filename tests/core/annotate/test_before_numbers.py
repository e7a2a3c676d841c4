"""Places in front of numbers: where a tool that answers with a number may be tried."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.annotate.boundaries import before_numbers, inside_words
from toolformer_core.config import SampleConfig, canonical_json


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
    assert [text[at:] for at in np.flatnonzero(before_numbers(text))] == places


@given(st.text(alphabet="a1.,$ (-\n", max_size=30))
def test_every_number_has_exactly_one_place_that_splits_nothing(text: str) -> None:
    for at in np.flatnonzero(before_numbers(text)):
        assert text[at:].lstrip(" $(-.")[:1] == "1"
        assert not inside_words(text)[at] or text[at - 1] == "a"  # `a1` is one word with a digit in it


def test_off_is_the_same_config_as_before() -> None:
    assert "before_numbers" not in canonical_json(SampleConfig())
    assert '"before_numbers":true' in canonical_json(SampleConfig(before_numbers=True))
