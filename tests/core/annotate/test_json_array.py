"""The elements of a JSON array: the same as the whole document parsed, however it is cut into pieces."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.annotate.readers.arrays import BEHIND, CUT_OFF, WHOLE, elements

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def cut(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


@given(st.lists(_VALUES, max_size=5), st.integers(1, 7), st.sampled_from([None, 1]), st.booleans())
def test_elements_are_those_of_the_document_however_it_is_cut(values, size, indent, ascii_only):
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only) + "\n"
    found = list(elements(cut(text[1:], size), limit=10_000))
    assert [json.loads(one.text) for one in found] == values
    assert all(one.state == WHOLE and one.characters >= len(one.text) for one in found)


def test_an_element_stands_on_the_line_where_it_starts():
    # line 1 ends behind `[`; 1 stands on line 2, the object on lines 3 and 4, "x" on line 6
    text = '\n 1,\n {"a":\n 2}\n,\n "x"]'
    assert [(one.line, one.text) for one in elements([text], 100)] == [(2, "1"), (3, '{"a":\n 2}'), (6, '"x"')]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("]", []),
        (" \n]", []),
        ("1,]", ["1", ""]),
        (",1]", ["", "1"]),
        ('{"a" 1}, 2]', ['{"a" 1}', "2"]),  # broken, and the next one is there
    ],
)
def test_what_stands_between_the_commas(text, found):
    assert [one.text for one in elements([text], 100)] == found


@pytest.mark.parametrize(("text", "last"), [("1, {", "{"), ('1, "a', '"a'), ("1,", ""), ("", "")])
def test_an_array_that_is_not_closed(text, last):
    *closed, open_ = elements([text], 100)
    assert (open_.text, open_.state) == (last, CUT_OFF)
    assert all(one.state == WHOLE for one in closed)


def test_text_behind_the_array_is_seen():
    one, behind = elements(["1] ", "\n", "\n{} and", " more"], 100)
    assert (one.text, one.state) == ("1", WHOLE)
    assert (behind.text, behind.state, behind.line) == ("{} and more", BEHIND, 3)


def test_of_a_long_element_only_the_start_is_held():
    # 3 + 10 * 1,000 characters, cut by 10: the pieces up to the one that passes 50 are held, at most 60 characters
    text = '["' + "x" * 10_000 + '"], 1]'
    long, short = elements(cut(text, 10), limit=50)
    assert (long.characters, short.text) == (10_004, "1")
    assert len(long.text) <= 60
