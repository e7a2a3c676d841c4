"""The confidence of an answer, and the benchmark that measures precision and coverage by it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tools.qa_precision import Asked, ask, best_threshold, curve, fit
from toolformer_core.tools.qa_readers.confidence import Evidence, confidence

EVIDENCE = Evidence(fit=1.0, margin=0.5, covered=0.5, named=0.0, direct=0.25, rank=1)


def asked(confidence: float, right: bool, answerable: bool = True) -> Asked:
    return Asked(answerable, replace(EVIDENCE, covered=max(confidence, 0.0)), right, confidence)


def test_confidence_is_a_logistic_regression() -> None:
    # 2 * 1 + 1 * 0.5 + 2 * 0.5 + 3 * 0 + 4 * 0.25 - 0.5 * 1 - 4 = 0, and half of what the odds 1 : 1 have
    assert confidence(EVIDENCE, (2.0, 1.0, 2.0, 3.0, 4.0, -0.5), -4.0) == 0.5
    # one more for the title: log odds of 3
    assert confidence(replace(EVIDENCE, named=1.0), (2.0, 1.0, 2.0, 3.0, 4.0, -0.5), -4.0) == pytest.approx(
        math.exp(3) / (1 + math.exp(3))
    )


def test_a_margin_over_no_other_answer_is_a_large_one() -> None:
    assert confidence(replace(EVIDENCE, margin=math.inf)) == confidence(replace(EVIDENCE, margin=1.5))


@given(
    st.builds(Evidence, *(st.floats(0, 2) for _ in range(5)), rank=st.integers(0, 9)),
    st.sampled_from(["fit", "margin", "covered", "named", "direct"]),
    st.floats(0, 1),
)
def test_more_evidence_never_makes_an_answer_less_probable(evidence: Evidence, measure: str, more: float) -> None:
    better = replace(evidence, **{measure: getattr(evidence, measure) + more})
    assert 0 < confidence(evidence) <= confidence(better) < 1
    assert confidence(replace(evidence, rank=evidence.rank + 1)) <= confidence(evidence)


def test_the_curve_counts_answers_at_or_above_each_threshold() -> None:
    rows = [asked(0.9, True), asked(0.6, False, answerable=False), asked(0.6, True), asked(-1, False)]
    low, high, none = curve(rows, [0.5, 0.9, 0.95])
    assert (low.answered, low.precision) == (3 / 4, 2 / 3)
    assert (low.answered_answerable, low.precision_answerable) == (2 / 3, 1.0)  # of three answerable, two answered
    assert (high.answers, high.right, high.precision) == (1, 1, 1.0)
    assert (none.answered, none.precision) == (0.0, None)


def test_the_best_threshold_weighs_a_wrong_answer_like_a_right_one() -> None:
    # right minus wrong: 0.8 and above 1; 0.5 and above 2 - 1 = 1; 0.3 and above 4 - 1 = 3; 0.1 and above 4 - 3 = 1
    rows = [asked(0.8, True), asked(0.5, True), asked(0.5, False), asked(0.3, True), asked(0.3, True)]
    assert best_threshold([*rows, asked(0.1, False), asked(0.1, False)]) == 0.3


def test_fitted_weights_give_the_shares_of_two_groups() -> None:
    # covered 0: 1 of 4 right, log odds -log 3; covered 1: 3 of 4 right, log odds log 3. The others tell nothing.
    rows = [asked(0.0, i == 0) for i in range(4)] + [asked(1.0, i > 0) for i in range(4)]
    weights, bias = fit(rows)
    shares = [confidence(replace(EVIDENCE, covered=c), weights.tolist(), bias) for c in (0.0, 1.0)]
    assert shares == pytest.approx([0.25, 0.75], abs=1e-4)


def test_a_file_of_questions_is_asked(tmp_path: Path) -> None:
    passages, questions = tmp_path / "passages.jsonl", tmp_path / "questions.jsonl"
    passages.write_text('{"title": "Velden", "text": "The mayor of Velden is Tora Lind."}\n', encoding="utf-8")
    questions.write_text(
        '{"question": "who is the mayor of velden", "answer": ["Tora Lind", "Lind"]}\n'
        '{"question": "who is the mayor of orrin", "answer": ["Mira Holt"]}\n'
        '{"question": "xyzzy", "answer": ["velden"]}\n',
        encoding="utf-8",
    )
    known, unknown, none = ask(passages, questions)
    assert (known.right, known.answerable, unknown.right, unknown.answerable) == (True, True, False, False)
    assert known.confidence > unknown.confidence
    assert (none.evidence, none.confidence, none.answerable) == (None, -1.0, True)
