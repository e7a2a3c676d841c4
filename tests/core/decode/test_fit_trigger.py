"""The fit of the thresholds on p(" ["): a worked table, and the definition on any openings."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.decode.trigger import CurvePoint, FitConfig, Opening, fit_tool, fit_triggers

WANTED = [0.35, 0.5, 0.6, 0.7]
NEEDLESS = [0.1, 0.2, 0.3, 0.4]
# Halfway between neighbours of .1 .2 .3 .35 .4 .5 .6 .7, and how many are at least that: of NEEDLESS, of WANTED.
THRESHOLDS, LEFT, KEPT = (
    [0.0, 0.15, 0.25, 0.325, 0.375, 0.45, 0.55, 0.65],
    [4, 3, 2, 1, 1, 0, 0, 0],
    [4, 4, 4, 4, 3, 3, 2, 1],
)
TABLE = list(zip(THRESHOLDS, LEFT, KEPT, strict=True))


@pytest.mark.parametrize(
    ("needless", "lost", "bound", "row"),
    [
        (0.25, 0.25, "needless", 3),  # one of four may remain: from .325 on
        (0.2, 0.25, "needless", 5),  # none may: from .45 on, where .35 is lost, one of four
        (0.2, 0.0, "lost", 3),  # but no call may be lost: the largest such threshold is .325
        (1.0, 0.0, "needless", 0),  # all may remain: no threshold is needed
        (0.0, 1.0, "needless", 5),
    ],
)
def test_the_worked_table(needless: float, lost: float, bound: str, row: int) -> None:
    fit = fit_tool("t", WANTED, NEEDLESS, FitConfig(needless, lost, min_calls=4, few_calls=4))
    threshold, left, kept = TABLE[row]
    assert (fit.threshold, fit.bound) == (pytest.approx(threshold), bound)
    assert (fit.needless_left, fit.kept, fit.needless, fit.wanted) == (left, kept, 4, 4)
    assert fit.curve == tuple(CurvePoint(pytest.approx(t), n, k) for t, n, k in TABLE)


def test_too_few_calls_give_no_threshold() -> None:
    fit = fit_tool("t", WANTED, NEEDLESS, FitConfig(min_calls=5))
    assert (fit.threshold, fit.bound, fit.kept, fit.needless_left) == (None, "too_few_calls", 4, 4)
    assert fit_tool("t", [], [], FitConfig()).curve == (CurvePoint(0.0, 0, 0),)


# Two are enough: no needless opening remains from .55 on, halfway between .5 and .6. Two are too few: .06 is a tenth of
# .6, and .055, halfway between .01 and .1, is the next one below.
@pytest.mark.parametrize(
    ("few_calls", "bound", "threshold", "left"), [(2, "needless", 0.55, 0), (3, "few_calls", 0.055, 3)]
)
def test_few_calls_count_up_to_a_tenth_of_the_least(few_calls: int, bound: str, threshold: float, left: int) -> None:
    fit = fit_tool("t", [0.6, 0.9], [0.01, 0.1, 0.2, 0.5], FitConfig(0.0, 0.0, min_calls=2, few_calls=few_calls))
    assert (fit.bound, fit.threshold, fit.needless_left) == (bound, pytest.approx(threshold), left)


def test_which_openings_count_for_which_tool() -> None:
    openings = [
        *[Opening("t", "t", p) for p in WANTED],
        *[Opening("t", "", p) for p in NEEDLESS],
        Opening("t", "", 0.99, early=True),
        Opening("t", "u", 0.98),  # a call of another tool
        Opening("", "t", 0.97),  # the model names no tool
        Opening("u", "t", 0.96),
    ]
    t, u = fit_triggers(openings, ["t", "u"], config := FitConfig(0.25, 0.25, min_calls=4, few_calls=4))
    assert t == fit_tool("t", WANTED, NEEDLESS, config, early=1, other_tool=1)
    assert u == fit_tool("u", [], [], config, other_tool=1)


# Few distinct values, so that many are equal.
_some = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.3, 0.5, 0.9, 1.0]), max_size=12)
_shares = st.sampled_from([0.0, 0.02, 0.1, 0.29, 0.5, 1.0])


@given(_some, _some, _shares, _shares, st.integers(0, 12), st.randoms(use_true_random=False))
def test_the_threshold_is_the_one_of_the_definition(
    wanted: list[float], needless: list[float], a: float, b: float, few: int, rng: random.Random
) -> None:
    config = FitConfig(a, b, min_calls=1, few_calls=few)
    fit = fit_tool("t", wanted, needless, config)
    if not wanted:
        assert fit.threshold is None
        return
    distinct = sorted({*wanted, *needless})
    candidates = [0.0, *((low + high) / 2 for low, high in itertools.pairwise(distinct))]
    least = [c for c in candidates if sum(n >= c for n in needless) <= a * len(needless) + 1e-9]
    most = [c for c in candidates if sum(w < c for w in wanted) <= b * len(wanted) + 1e-9]
    careful = [c for c in candidates if c <= 0.1 * min(wanted)] if len(wanted) < few else candidates
    assert fit.threshold == min([*least[:1], most[-1], careful[-1]])
    assert fit.kept == sum(w >= fit.threshold for w in wanted)
    assert fit.needless_left == sum(n >= fit.threshold for n in needless)
    assert (fit.bound == "needless") == (fit.needless_left <= a * len(needless) + 1e-9)
    rng.shuffle(wanted)
    assert fit_tool("t", wanted, needless, config) == fit


def test_a_long_curve_is_thinned_and_holds_its_ends_and_the_threshold() -> None:
    wanted, needless = [0.5 + i / 2000 for i in range(500)], [i / 1000 for i in range(1, 500)]
    fit = fit_tool("t", wanted, needless, FitConfig())
    assert len(fit.curve) <= 61
    assert fit.curve[0] == CurvePoint(0.0, 499, 500)
    assert CurvePoint(fit.threshold or 0.0, 24, 500) in fit.curve  # 24 of 499 is 4.8 %, 25 is 5.01 %
    assert fit.curve[-1].kept == 1
    assert [p.threshold for p in fit.curve] == sorted({p.threshold for p in fit.curve})
