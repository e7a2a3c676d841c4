import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.errors import UsageError
from toolformer_core.evaluate.statistics import (
    ItemOutcome,
    accuracy,
    call_rates,
    call_split,
    cohens_kappa,
    compare,
    mcnemar,
    wilson,
)


@given(st.integers(0, 120), st.integers(0, 120))
def test_mcnemar_is_the_sum_of_both_binomial_tails(b, c):
    """p = min(1, 2 sum_{i <= min(b, c)} C(b + c, i) / 2^(b + c)), here in whole numbers."""
    tail = sum(math.comb(b + c, i) for i in range(min(b, c) + 1))
    assert mcnemar(b, c) == pytest.approx(min(1.0, 2 * tail / 2 ** (b + c)), rel=1e-9)


@given(st.integers(1, 100_000))
def test_the_interval_of_equal_outcomes_is_wilsons(n):
    """With k = 0, Wilson's upper bound is z^2 / (n + z^2)."""
    z = NormalDist().inv_cdf(0.975)
    unseen = z * z / (n + z * z)
    none, every = accuracy([False] * n), accuracy([True] * n)
    assert (none.value, none.low, every.value, every.high) == (0.0, 0.0, 1.0, 1.0)
    assert none.high == pytest.approx(unseen, abs=1e-9)
    assert every.low == pytest.approx(1 - unseen, abs=1e-9)


def test_accuracy_and_its_interval():
    a = accuracy([True] * 30 + [False] * 70)
    assert (a.items, a.right, a.value) == (100, 30, 0.3)
    # the standard error is sqrt(.3 .7 / 100) = .0458, and 1.96 of them are .09
    assert a.low == pytest.approx(0.21, abs=0.011)
    assert a.high == pytest.approx(0.39, abs=0.011)
    assert accuracy([True] * 30 + [False] * 70) == a
    assert accuracy([False] * 70 + [True] * 30) == a  # the order of items does not matter
    nothing = accuracy([])
    assert nothing.items == 0
    assert math.isnan(nothing.value)
    assert math.isnan(nothing.low)


def test_where_all_pairs_are_alike_the_next_may_be_another():
    # Wilson: z^2 = 1.96^2 = 3.8415; 3.8415 / (5 + 3.8415) = 0.4345
    right, wrong = {str(i): True for i in range(5)}, {str(i): False for i in range(5)}
    better = compare(right, wrong)
    assert better.p_bootstrap == pytest.approx(2 / 10_001)  # 2 (0 + 1) / (10,000 + 1): never a probability of nothing
    assert (better.difference, better.high) == (1.0, 1.0)
    assert better.low == pytest.approx(1 - 2 * 0.4345, abs=1e-4)
    worse = compare(wrong, right)
    assert (worse.difference, worse.low, worse.high) == (-1.0, -1.0, -better.low)
    same = compare(right, right)
    assert same.difference == 0.0
    assert (same.low, same.high) == (pytest.approx(-0.4345, abs=1e-4), pytest.approx(0.4345, abs=1e-4))
    assert (same.p, same.p_bootstrap) == (1.0, 1.0)


def test_two_arms_on_the_same_items():
    # 10 items: both right on 2, only the first on 6, only the second on 1, neither on 1
    first = {str(i): i < 8 for i in range(10)}
    second = {str(i): i < 2 or i == 8 for i in range(10)}
    c = compare(first, second)
    assert (c.items, c.only_first, c.only_second) == (10, 6, 1)
    assert c.difference == pytest.approx(0.5)  # 8/10 - 3/10
    assert c.p == pytest.approx(0.125)
    assert c.low <= 0.5 <= c.high
    assert c.low > -0.2
    mirrored = compare(second, first)
    assert mirrored.difference == pytest.approx(-0.5)
    assert mirrored.p == c.p


def test_the_bootstraps_p_by_hand():
    # two items, of which only the first arm got one: it is drawn 0, 1 or 2 times with p 1/4, 1/2, 1/4, so that the
    # difference is 0 with 1/4 and never below; twice the smaller tail is 1/2
    assert compare({"a": True, "b": True}, {"a": False, "b": True}).p_bootstrap == pytest.approx(0.5, abs=0.02)


def test_arms_must_hold_the_same_items():
    with pytest.raises(UsageError, match="2 are in only one of them"):
        compare({"a": True, "b": True}, {"a": True, "c": True})


OUTCOMES = [
    ItemOutcome("1", True, ("qa",)),
    ItemOutcome("2", False, ("qa", "calculator")),
    ItemOutcome("3", True, ("calculator", "calculator")),  # two calls of one tool are one item with it
    ItemOutcome("4", True),
    ItemOutcome("5", False),
]


def test_accuracy_with_and_without_a_call():
    split = call_split(OUTCOMES)
    assert split.all.value == pytest.approx(3 / 5)
    assert (split.called.items, split.called.value) == (3, pytest.approx(2 / 3))
    assert (split.uncalled.items, split.uncalled.value) == (2, pytest.approx(1 / 2))
    assert split.rate == pytest.approx(3 / 5)
    nothing = call_split([])
    assert math.isnan(nothing.rate)
    assert call_split([ItemOutcome("1", True)]).called.items == 0


def test_call_rates():
    assert call_rates(OUTCOMES) == {"calculator": 2 / 5, "qa": 2 / 5}
    assert call_rates([]) == {}


def test_wilsons_interval_by_hand():
    # z = 1.96, z^2 = 3.84; centre (8 + 1.92) / (10 + 3.84) = .717; half z / 13.84 sqrt(8 * 2 / 10 + 3.84 / 4) = .2266
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=2e-4)


def test_kappa_by_hand():
    # alike on 20 + 15 of 50 = .7; the first says yes to 25 of 50, the second to 30: by chance .5 * .6 + .5 * .4 = .5
    pairs = [("yes", "yes")] * 20 + [("yes", "no")] * 5 + [("no", "yes")] * 10 + [("no", "no")] * 15
    assert cohens_kappa(pairs) == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    assert cohens_kappa([("yes", "no"), ("no", "yes")]) == -1.0  # 0 of 2, by chance a half
    assert math.isnan(cohens_kappa([]))
    assert math.isnan(cohens_kappa([("yes", "yes")] * 3))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"))))
def test_kappa_is_symmetric_and_at_most_one(pairs):
    kappa = cohens_kappa(pairs)
    mirrored = cohens_kappa([(second, first) for first, second in pairs])
    assert kappa == pytest.approx(mirrored, nan_ok=True)
    assert math.isnan(kappa) or kappa <= 1
    if len(set(pairs)) > 1 and all(first == second for first, second in pairs):
        assert kappa == pytest.approx(1)
