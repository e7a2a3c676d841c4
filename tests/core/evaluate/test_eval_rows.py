"""Rows of benchmarks whose values are of a wrong kind: each is one rejection with its reason, and never fatal."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.evaluate.published import split
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.scoring import is_right
from toolformer_core.evaluate.tasks import read, task_named


def escaped(*rows) -> str:
    """JSON lines in ASCII, in which a lone surrogate can stand."""
    return "".join(json.dumps(row) + "\n" for row in rows)


KEYS = {
    "lama-trex": "obj_label masked_sentences masked_sentence evidences template sub_label uuid predicate_id",
    "templama": "query answer date id relation",
    "asdiv": "id body question answer solution-type",
    "mawps": "squestion question body numbers lsolutions result iindex",
    "gsm8k": "question answer",
    "triviaqa": "question answer answers targetvalue questionid",
    "mlqa-es": "context question answers paragraphs id",
    "small-world": "prompt answers item_id date tool group",
}
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.sampled_from(
    [10**40, "calculator", "\ud800", "", " ", "x", "7",
     "[MASK]", "He is [MASK].", "a _X_", "2012", "#### 5", "[1", '["a"]', "N_01 ?", "[X] in [Y]"]
)  # fmt: skip
inner_keys = st.sampled_from(["text", "name", "aliases", "value", "Value", "masked_sentence", "context", "qas", "id"])
values = st.recursive(scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(inner_keys, v, max_size=3))


@pytest.mark.parametrize("name", KEYS)
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_row_is_fatal(name, data, tmp_path):
    row = st.dictionaries(st.sampled_from(KEYS[name].split()), values, max_size=9)
    rows = data.draw(st.lists(row, min_size=1, max_size=3))
    task, path = task_named(name), tmp_path / "rows.jsonl"
    path.write_text(escaped(*rows))
    try:
        items, _ = split(read(task, path))
    except CorpusError:
        return
    for item in items:
        assert is_right(task, item, item.answers[0])


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("small-world", {"prompt": "x", "answers": ["7"], "tool": []}, "unknown_tool"),
        ("small-world", {"prompt": "x", "answers": ["7"], "tool": "qa,"}, "unknown_tool"),
        ("small-world", {"prompt": "x", "answers": ["7"], "date": []}, "no_date"),
        ("small-world", {"prompt": ["x"], "answers": ["7"]}, "no_prompt"),
        ("small-world", {"prompt": "x", "answers": ["7", "\udfff8"]}, "not_utf8"),
        ("small-world", {"prompt": "x", "answers": ["7"], "group": "\ud800"}, "not_utf8"),
        ("mawps", {"question": "N_00?", "numbers": 5, "answer": 7}, "no_number"),
        ("mawps", {"question": "N_00?", "numbers": ["nan"], "answer": 7}, "no_number"),
        ("mawps", {"question": "N_00?", "numbers": "1e99999999", "answer": 7}, "no_number"),  # no 100 MB of zeros
        ("mawps", {"question": f"N_{'1' * 5000}?", "numbers": "1", "answer": 7}, "no_number"),
        ("svamp", {"question": "x", "answer": 1e300}, "not_one_number"),
    ],
)
def test_a_value_of_a_wrong_kind_is_one_rejection(name, row, reason, tmp_path):
    good = {"prompt": "x", "question": "x", "answers": ["7"], "answer": 7}
    path = tmp_path / "rows.jsonl"
    path.write_text(escaped(good, {**row, "key\ud800": 1}))
    items, rejected = split(read(task_named(name), path))
    assert [i.line for i in items] == [1]
    assert [(r.line, r.reason) for r in rejected] == [(2, reason)]
    rejected[0].detail.encode("utf-8")  # it is stored


def test_answers_of_many_digits_are_whole(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(escaped({"question": "x", "answer": 10**40}, {"question": "y", "answer": 2.5e20}))
    items, _ = split(read(task_named("svamp"), path))
    assert [i.answers for i in items] == [("1" + "0" * 40,), ("25" + "0" * 19,)]
