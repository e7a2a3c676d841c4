"""The formula by hand, its five properties, and a transcription of it that shares nothing with the code."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.errors import UsageError
from toolformer_core.grounding.records import Weights, best_of, pattern_similarity

_LN2 = math.log(2)
_WEIGHTS = (_LN2, 3 * _LN2)  # log 1/P of two patterns with the priors 1/2 and 1/8

counts = st.lists(st.integers(0, 6), min_size=3, max_size=3)
smoothings = st.sampled_from([0.0, 0.5, 1.0, 3.0])
priors = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3)


def logs(chosen: list[float]) -> list[float]:
    return [math.log(1 / prior) for prior in chosen]


def test_the_formula_by_hand() -> None:
    # a has 1 letter run and 1 number, a_i has 1 and 2; lambda = 1:
    #   ((1+1)*1*ln 2 + (1+1)*2*3 ln 2) / ((2 + 1*2) * 3) = (2 + 12) ln 2 / 12
    assert pattern_similarity((1, 1), (1, 2), _WEIGHTS, 1.0) == pytest.approx(14 / 12 * _LN2)
    # lambda = 0: (1*1*1 + 1*2*3) ln 2 / (2 * 3)
    assert pattern_similarity((1, 1), (1, 2), _WEIGHTS, 0.0) == pytest.approx(7 / 6 * _LN2)
    # an answer of one number, a response of one number, lambda = 1: (0 + (1+1)*1*3) ln 2 / ((1 + 2) * 1)
    assert pattern_similarity((0, 1), (0, 1), _WEIGHTS, 1.0) == pytest.approx(2 * _LN2)


def test_nothing_to_compare_scores_zero() -> None:
    assert pattern_similarity((1, 1), (0, 0), _WEIGHTS) == 0.0  # an empty response
    assert pattern_similarity((0, 0), (0, 0), _WEIGHTS, 0.0) == 0.0
    assert pattern_similarity((0, 0), (1, 1), _WEIGHTS, 0.0) == 0.0  # an empty answer without smoothing
    # an empty answer with smoothing is uniform: (1*1*1 + 1*1*3) ln 2 / (2 * 2)
    assert pattern_similarity((0, 0), (1, 1), _WEIGHTS, 1.0) == pytest.approx(_LN2)
    assert pattern_similarity((), (), ()) == 0.0


def test_the_best_is_the_first_of_equal_ones_and_reaches_the_threshold() -> None:
    assert best_of([("a", 1.0), ("b", 2.0), ("c", 2.0)]) == "b"
    assert best_of([("a", 1.0)], threshold=1.0) == "a"
    assert best_of([("a", 1.0)], threshold=1.01) is None
    assert best_of([]) is None


@pytest.mark.parametrize("wrong", [{"gamma": -0.1}, {"gamma": 1.1}, {"smoothing": -1.0}, {"smoothing": math.inf}])
def test_weights_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Weights(**wrong)


@given(counts, counts, priors, smoothings)
def test_a_transcription_agrees(answer: list[int], response: list[int], chosen: list[float], smoothing: float) -> None:
    lam = Fraction(smoothing)
    denominator = (sum(answer) + lam * len(chosen)) * sum(response)
    expected = 0.0
    for j in range(len(chosen)):
        if denominator:
            expected += float((answer[j] + lam) * response[j] / denominator) * math.log(1 / chosen[j])
    assert pattern_similarity(answer, response, logs(chosen), smoothing) == pytest.approx(expected, abs=1e-12)
