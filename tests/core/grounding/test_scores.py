"""The formula by hand, its five properties, and a transcription of it that shares nothing with the code."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.errors import UsageError
from toolformer_core.grounding.patterns import STANDARD_PATTERNS
from toolformer_core.grounding.scores import Weights, best_of, pattern_similarity, total_score

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


def test_texts_by_hand() -> None:
    # "4" against "450": C(number) = 1 and 1, six patterns, lambda = 1: (1+1)*1 / ((1+6)*1) * ln(1/0.02)
    four, calculator = STANDARD_PATTERNS.counts("4"), STANDARD_PATTERNS.counts("450")
    assert pattern_similarity(four, calculator, STANDARD_PATTERNS.weights) == pytest.approx(2 / 7 * math.log(50))
    # "4" against "a b": (0+1)*2 / ((1+6)*2) * ln(1/0.75)
    words = STANDARD_PATTERNS.counts("a b")
    assert pattern_similarity(four, words, STANDARD_PATTERNS.weights) == pytest.approx(1 / 7 * math.log(4 / 3))


def test_nothing_to_compare_scores_zero() -> None:
    assert pattern_similarity((1, 1), (0, 0), _WEIGHTS) == 0.0  # an empty response
    assert pattern_similarity((0, 0), (0, 0), _WEIGHTS, 0.0) == 0.0
    assert pattern_similarity((0, 0), (1, 1), _WEIGHTS, 0.0) == 0.0  # an empty answer without smoothing
    # an empty answer with smoothing is uniform: (1*1*1 + 1*1*3) ln 2 / (2 * 2)
    assert pattern_similarity((0, 0), (1, 1), _WEIGHTS, 1.0) == pytest.approx(_LN2)
    assert pattern_similarity((), (), ()) == 0.0


def test_the_total_by_hand() -> None:
    assert total_score(0.4, 2.0, 0.75) == pytest.approx(0.75 * 0.4 + 0.25 * 2.0)
    assert total_score(0.4, 2.0, 1.0) == 0.4
    assert total_score(0.4, 2.0, 0.0) == 2.0


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
def test_it_agrees_with_a_transcription_of_the_formula(
    answer: list[int], response: list[int], chosen: list[float], smoothing: float
) -> None:
    lam = Fraction(smoothing)
    denominator = (sum(answer) + lam * len(chosen)) * sum(response)
    expected = 0.0
    for j in range(len(chosen)):
        if denominator:
            expected += float((answer[j] + lam) * response[j] / denominator) * math.log(1 / chosen[j])
    assert pattern_similarity(answer, response, logs(chosen), smoothing) == pytest.approx(expected, abs=1e-12)


@given(counts, counts, priors, smoothings)
def test_it_is_bounded(answer: list[int], response: list[int], chosen: list[float], smoothing: float) -> None:
    score = pattern_similarity(answer, response, logs(chosen), smoothing)
    assert -1e-12 <= score <= max(logs(chosen)) + 1e-12


_words = st.lists(st.sampled_from(["ab", "12", "é", "+", "left", "3.5"]), min_size=1, max_size=6)


@given(_words, _words, st.randoms(), smoothings)
def test_it_does_not_depend_on_the_order(answer: list[str], response: list[str], random: object, lam: float) -> None:
    shuffled = list(response)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    a = STANDARD_PATTERNS.counts(" ".join(answer))
    scores = [
        pattern_similarity(a, STANDARD_PATTERNS.counts(" ".join(words)), STANDARD_PATTERNS.weights, lam)
        for words in (response, shuffled)
    ]
    assert scores[0] == pytest.approx(scores[1])


@given(counts, counts, priors, smoothings, st.integers(1, 5))
def test_it_does_not_depend_on_the_length(
    answer: list[int], response: list[int], chosen: list[float], smoothing: float, times: int
) -> None:
    weights = logs(chosen)
    longer = [n * times for n in response]
    assert pattern_similarity(answer, longer, weights, smoothing) == pytest.approx(
        pattern_similarity(answer, response, weights, smoothing)
    )
    # a longer answer counts the same if the smoothing grows with it
    assert pattern_similarity([n * times for n in answer], response, weights, smoothing * times) == pytest.approx(
        pattern_similarity(answer, response, weights, smoothing)
    )


@given(counts, st.integers(1, 6), priors, smoothings)
def test_it_depends_on_the_pattern(answer: list[int], n: int, chosen: list[float], smoothing: float) -> None:
    """Of two responses with one pattern each, the one whose pattern is in the answer, or is rarer, scores higher."""
    first, second = sorted(chosen[:2])  # the first is rarer, or as rare
    weights = logs([first, second, chosen[2]])
    more = [answer[1], answer[0], answer[2]] if answer[0] < answer[1] else answer  # has the first at least as often
    rarer = pattern_similarity(more, (n, 0, 0), weights, smoothing)
    commoner = pattern_similarity(more, (0, n, 0), weights, smoothing)
    assert rarer >= commoner - 1e-12


@given(counts, counts, priors, st.floats(0.01, 1.0))
def test_without_smoothing_further_patterns_change_nothing(
    answer: list[int], response: list[int], chosen: list[float], further: float
) -> None:
    weights = logs(chosen)
    assert pattern_similarity([*answer, 0], [*response, 0], [*weights, *logs([further])], 0.0) == pytest.approx(
        pattern_similarity(answer, response, weights, 0.0)
    )


@given(counts, counts, priors)
def test_it_is_commutative_up_to_the_smoothing(answer: list[int], response: list[int], chosen: list[float]) -> None:
    weights = logs(chosen)
    assert pattern_similarity(answer, response, weights, 0.0) == pytest.approx(
        pattern_similarity(response, answer, weights, 0.0)
    )
    # and with smoothing, if both are smoothed
    smooth = [n + 1 for n in answer], [n + 1 for n in response]
    assert pattern_similarity(*smooth, weights, 0.0) == pytest.approx(
        pattern_similarity(smooth[1], smooth[0], weights, 0.0)
    )
