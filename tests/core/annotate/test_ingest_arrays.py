"""JSON arrays as corpora: elements are read one by one, and a bad one costs itself only."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.annotate.corpora import C4, CCNET, lines, read
from toolformer_core.annotate.readers.arrays import TRAILING, WHOLE, elements


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_array_is_read_like_lines(tmp_path, indent):
    (tmp_path / "c.json").write_text(json.dumps([C4, {"text": 1}, CCNET | {"raw_content": "B"}], indent=indent))
    assert [getattr(row, "text", None) or row.reason for row in read(tmp_path)] == ["A text.", "no_text", "B"]


def test_of_a_json_array_a_bad_row_costs_itself_alone(tmp_path):
    # lines 1 to 7: the array's "[", a row, a broken one, one that is no object, bytes that are no UTF-8, a row, the end
    text = b'[\n{"text": "a"},\n{"text" 1},\n17,\n{"text": "\xff"},\n{"text": "b"}\n]\n{"text": "behind"}'
    (tmp_path / "c.json").write_bytes(text)
    assert [(row.line, getattr(row, "reason", "")) for row in read(tmp_path / "c.json")] == [
        *((2, ""), (3, "broken_json"), (4, "not_an_object"), (5, "not_utf8"), (6, ""), (8, "broken_json"))
    ]


@pytest.mark.parametrize("end", ["", ",", ', {"text": "b'])
def test_a_json_array_that_breaks_off_keeps_what_stands_before(tmp_path, end):
    (tmp_path / "c.json").write_text('[\n{"text": "a"}' + end)
    *kept, last = read(tmp_path / "c.json")
    assert [d.text for d in kept] == (["a"] if end else [])
    assert last.reason == "truncated"


def test_a_row_that_is_not_closed_says_how_much_was_lost(tmp_path):
    (tmp_path / "c.json").write_bytes(b'[{"text": "a"},\n{"text": "b",\n{"text": "c"}]')
    kept, last = read(tmp_path / "c.json")
    assert (kept.text, last.line, last.reason) == ("a", 2, "truncated")
    # from the brace of the second row on: 13 characters, a line feed, 13 characters and the bracket
    assert "28 characters from here on are no rows" in last.detail


def test_json_lines_that_begin_with_an_array_stay_lines(tmp_path):
    (tmp_path / "c.json").write_bytes(b'["no", "row"]\n' + lines({"text": "t"}))
    bad, document = read(tmp_path / "c.json")
    assert (bad.reason, document.text, document.line) == ("not_an_object", "t", 2)


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


def test_what_stands_between_the_commas():
    between = {
        "]": [],
        " \n]": [],
        "1,]": ["1", ""],
        ",1]": ["", "1"],
        '{"a" 1}, 2]': ['{"a" 1}', "2"],
    }  # the last: broken
    assert {text: [one.text for one in elements([text], 100)] for text in between} == between


def test_an_element_stands_on_the_line_where_it_starts_and_text_after_the_array_is_seen():
    # line 1 ends after `[`; 1 stands on line 2, the object on lines 3 and 4, "x" on line 6
    found = elements(['\n 1,\n {"a":\n 2}\n,\n "x"] ', "\n", "\n{} and", " more"], 100)
    assert [(one.line, one.text) for one in found if one.state == WHOLE] == [(2, "1"), (3, '{"a":\n 2}'), (6, '"x"')]
    (_, rest) = elements(["1] ", "\n", "\n{} and", " more"], 100)
    assert (rest.text, rest.state, rest.line) == ("{} and more", TRAILING, 3)


def test_of_a_long_element_only_the_start_is_held():
    # 3 + 10 * 1,000 characters, cut by 10: the pieces up to the one that passes 50 are held, at most 60 characters
    text = '["' + "x" * 10_000 + '"], 1]'
    long, short = elements(cut(text, 10), limit=50)
    assert (long.characters, short.text) == (10_004, "1")
    assert len(long.text) <= 60
