"""Candidate calls of a file: read, refused with their line, and proposed as if they were sampled."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from toolformer_core.annotate.sample import propose, read_candidates
from toolformer_core.errors import CorpusError
from toolformer_core.records import Document

TEXT = "He sold 48, then half, so 72 in all."
CALLS = [
    {"tool": "calculator", "input": "48 * 1.5", "position": 25, "value": "72"},
    {"tool": "calculator", "input": "48 + 24", "position": 25},
    {"tool": "calculator", "input": "6 * 8", "position": 7},
    {"tool": "calculator", "input": "6 * 8", "position": 7},
    {"tool": "qa", "input": "Who sold?", "position": 0},
]


def written(path: Path, *rows: Any) -> Path:
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["calls.jsonl", "calls.jsonl.gz"])
def test_candidates_are_proposed_once_each_by_position(tmp_path: Path, name: str) -> None:
    candidates = read_candidates(written(tmp_path / name, {"url": "a", "calls": CALLS}, "", {"url": "b", "calls": []}))
    documents = [Document("1", TEXT, "a", None, "f", 1), Document("2", TEXT, "b", None, "f", 2)]
    documents.append(Document("3", TEXT, None, None, "f", 3))
    first, *others = propose(documents, "calculator", "Calculator", candidates)
    assert first.outcome == "sampled"
    assert [(c.position, c.rank, c.input, c.raw, c.count) for c in first.calls] == [
        (7, 0, "6 * 8", "Calculator(6 * 8)", 1),
        (25, 1, "48 * 1.5", "Calculator(48 * 1.5)", 1),
        (25, 1, "48 + 24", "Calculator(48 + 24)", 1),
    ]
    assert {(c.doc_id, c.outcome, c.log_p) for c in first.calls} == {("1", "ok", -math.inf)}
    assert [(one.outcome, one.calls) for one in others] == [("no_position", ())] * 2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "line 2: "),
        ({"calls": CALLS}, "line 2: no 'url' in it"),
        ({"url": "a", "calls": [{"tool": "qa", "input": "x"}]}, "line 2: no 'position' in it"),
        ({"url": "a", "calls": [{"tool": "qa", "input": "x", "position": -1}]}, "position -1 is no offset"),
        ({"url": "a", "calls": [{"tool": "qa", "input": "x", "position": True}]}, "position True is no offset"),
        ({"url": "a", "calls": [{"tool": "qa", "input": "x] y", "position": 1}]}, "'x] y' cannot stand in a call"),
    ],
)
def test_a_row_that_is_none_is_named(tmp_path: Path, row: Any, said: str) -> None:
    first = {"url": "b", "calls": CALLS}
    with pytest.raises(CorpusError, match=said.replace("(", r"\(")) as raised:
        read_candidates(written(tmp_path / "calls.jsonl", first, row))
    assert "a row has url and calls of tool, input, position" in str(raised.value)


def test_a_position_behind_the_text_is_refused() -> None:
    with pytest.raises(CorpusError, match="a candidate of a stands at 36, and its text ends at 36"):
        propose([Document("1", TEXT, "a", None, "f", 1)], "qa", "QA", {("a", "qa"): ((36, "x"),)})
