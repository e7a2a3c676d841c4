"""The confidence of an answer."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.tools.qa_readers.embedded import Evidence, confidence

EVIDENCE = Evidence(fit=1.0, margin=0.5, covered=0.5, named=0.0, direct=0.25, rank=1)


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
