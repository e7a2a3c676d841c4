"""JSON arrays as corpora: elements are read one by one, and a bad one costs itself only."""

from __future__ import annotations

import gzip
import json
import random

import pytest
import zstandard

from tests.core.annotate.corpora import C4, CCNET, lines, read


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["c.json", "c.json.gz", "c.json.zst"])
def test_a_json_array_is_read_like_lines(tmp_path, name, indent):
    array = json.dumps([C4, {"text": 1}, CCNET | {"raw_content": "B"}], indent=indent).encode()
    packing = {"c.json": bytes, "c.json.gz": gzip.compress, "c.json.zst": zstandard.compress}
    (tmp_path / name).write_bytes(packing[name](array))
    first, bad, second = read(tmp_path / name)
    assert [first.text, second.text] == ["A text.", "B"]
    assert bad.reason == "no_text"


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


def test_a_compressed_json_array_that_breaks_off(tmp_path):
    whole = gzip.compress(json.dumps([{"text": f"{i} {random.Random(i).random()}"} for i in range(99)]).encode())
    (tmp_path / "c.json.gz").write_bytes(whole[: len(whole) // 2])
    *kept, last = read(tmp_path / "c.json.gz")
    assert last.reason == "truncated"
    assert len(kept) > 9


def test_an_array_with_something_behind_it_keeps_its_rows(tmp_path):
    (tmp_path / "c.json").write_bytes(b'[{"text": "a"}, {"text": "b"}]\n[{"text": "c"}]\n')
    first, second, behind = read(tmp_path / "c.json")
    assert (first.text, second.text) == ("a", "b")
    assert (behind.line, behind.reason) == (2, "broken_json")


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
