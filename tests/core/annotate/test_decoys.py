import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_document, a_drawn, a_scored, survivors
from tests.support.scripted_lm import ScriptedLM
from toolformer_core.annotate.decoys import DecoyPool, GainCollector, GainsOfTool, estimate, find_threshold, reserve
from toolformer_core.annotate.score import score
from toolformer_core.config import TOOL_NAMES, ScoreConfig
from toolformer_core.errors import UsageError

DOCUMENTS = [a_document(f"text {n}") for n in range(6)]
ANSWERED = [(document.doc_id, str(n)) for n, document in enumerate(DOCUMENTS)]
CALL = a_drawn(DOCUMENTS[0], 0, "1 + 1")


def pool(answered=ANSWERED, **options):
    return DecoyPool(answered, **{"decoys": 3, **options})


def test_too_few_are_filled_up_from_the_reserve():
    some = pool(ANSWERED[:2], reserve=("90", "91", "1"))
    assert set(some.decoys_of(CALL, "0")) == {"1", "90", "91"}
    assert (some.from_shard, some.from_reserve) == (1, 2)
    assert pool(ANSWERED[:1]).decoys_of(CALL, "0") == ()


def test_every_other_response_is_as_likely():
    counts = Counter(
        decoy
        for position in range(3000)
        for decoy in pool(decoys=1).decoys_of(a_drawn(DOCUMENTS[0], position, "1 + 1"), "0")
    )
    assert counts.keys() == set("12345")
    assert all(510 < n < 690 for n in counts.values())  # 600 expected, with a standard deviation of 22


@given(
    answered=st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("uvwxyz")), min_size=1, max_size=30),
    decoys=st.integers(1, 8),
    seed=st.integers(0, 3),
)
def test_decoys_are_different_wrong_and_depend_on_no_order(answered, decoys, seed):
    doc_id, response = answered[0]
    call = replace(CALL, doc_id=doc_id)
    found = DecoyPool(answered, decoys=decoys, seed=seed).decoys_of(call, response)
    own = {r for d, r in answered if d == doc_id}
    others = {r for _, r in answered} - own
    assert len(found) == len(set(found)) == min(decoys, len(others))
    assert set(found) <= others
    assert found == DecoyPool(answered[::-1], decoys=decoys, seed=seed).decoys_of(call, response)


def test_the_reserve_has_enough_for_each_of_the_papers_tools_and_who_asks_for_none_has_no_pool():
    assert reserve().keys() == TOOL_NAMES.keys()
    assert all(len(set(responses)) >= 8 for responses in reserve().values())
    assert DecoyPool.of(ScoreConfig(), "qa", ANSWERED) is None
    assert len(DecoyPool.of(ScoreConfig(decoys=2), "qa", ANSWERED[:1]).decoys_of(CALL, "0")) == 2  # of the reserve


def test_a_config_out_of_range_is_refused():
    for decoys in (-1, 101):
        with pytest.raises(UsageError):
            ScoreConfig(decoys=decoys)


TEXT = "one two"
HERE, ELSEWHERE = a_document(TEXT), a_document("elsewhere")


def scored_with(losses):
    """Score a call with response `r` at the last of two words, with the one decoy `other`; losses by prefix."""
    asked = []

    def log_probs(request):
        asked.append(request.prefix)
        return [-3 * losses[request.prefix]]  # the first weight is 5/15: one token's loss is a third of it

    lm = ScriptedLM(log_probs=log_probs)
    items = [(a_drawn(HERE, 4, "i"), "r"), (a_drawn(ELSEWHERE, 0, "i"), "other")]
    decoys = DecoyPool.of(ScoreConfig(decoys=1), "qa", [(call.doc_id, response) for call, response in items])
    texts = {HERE.doc_id: TEXT, ELSEWHERE.doc_id: "elsewhere"}
    return score(lm, "QA", texts, items[:1], ScoreConfig(), decoys)[0], asked


PLAIN, BARE, FULL, DECOY = "", " [QA(i) -> ]", " [QA(i) -> r]", " [QA(i) -> other]"


@pytest.mark.parametrize(
    ("losses", "loss_call", "gain", "decoy_gain"),
    [
        ({PLAIN: 3.0, BARE: 2.0, FULL: 0.5, DECOY: 1.75}, 2.0, 2.0 - 0.5, 2.0 - 1.75),
        # the call's bound is 3 - 3.5 < 0, but the decoy's is not
        ({PLAIN: 3.0, BARE: 2.0, FULL: 3.5, DECOY: 1.0}, 2.0, 2.0 - 3.5, 2.0 - 1.0),
        ({PLAIN: 3.0, FULL: 3.5, DECOY: 3.25}, None, 3.0 - 3.5, 3.0 - 3.25),  # neither reaches the floor
    ],
)
def test_a_decoys_gain_is_taken_from_the_same_smaller_loss(losses, loss_call, gain, decoy_gain):
    call, asked = scored_with(losses)
    assert call.loss_call == (None if loss_call is None else pytest.approx(loss_call))
    assert (call.gain, *call.decoy_gains) == pytest.approx((gain, decoy_gain))
    assert asked == [PLAIN, FULL, DECOY, *([BARE] if BARE in losses else [])]


# Per hundred calls and decoys. FDR = (W / 4) / (R / 5):
#   tau   R  W   FDR
#   0.1   5  2   (2/4) / (5/5) = 0.5
#   0.2   4  2   (2/4) / (4/5) = 0.625
#   0.4   4  1   (1/4) / (4/5) = 0.3125
#   0.45  3  1   (1/4) / (3/5) = 0.41666...
#   0.5   3  0   0
CALLS = [0.1, 0.4, 0.5, 0.8, 1.0]
DECOYS = [-1.0, -0.5, 0.2, 0.45]


def gains_of(calls, decoys, times=1):
    calls, decoys = np.sort(np.repeat(calls, times)), np.sort(np.repeat(decoys, times))
    return GainsOfTool(calls, decoys, with_decoys=len(calls), requested=len(calls), responses=8)


@pytest.mark.parametrize(
    ("tau_f", "rate"), [(0.1, 0.5), (0.2, 0.625), (0.4, 0.3125), (0.45, 0.25 / 0.6), (0.46, 0.0), (1.0, 0.0)]
)
def test_the_rate_worked_by_hand(tau_f, rate):
    assert estimate(gains_of(CALLS, DECOYS), tau_f).rate == pytest.approx(rate)


def test_a_rate_is_at_most_one_and_unknown_where_no_call_passes_or_there_is_no_decoy():
    assert estimate(gains_of(CALLS, DECOYS), 1.1).rate is None
    assert estimate(gains_of(CALLS, []), 0.1).rate is None
    assert estimate(gains_of([0.0, 1.0], [2.0]), 0.5).rate == 1.0  # 1 / (1/2) = 2


MANY = gains_of(CALLS, DECOYS, times=100)


@pytest.mark.parametrize(
    ("gains", "promised", "tau_f", "reason"),
    [
        (MANY, 0.7, 0.1, ""),  # it holds everywhere
        (MANY, 0.5, 0.4, ""),  # broken at 0.2, and the next call gains 0.4
        (MANY, 0.42, 0.4, ""),  # 0.41666... at 0.45 is within it
        (MANY, 0.4, 0.5, ""),  # ... and here is not, though the rate at 0.4 would be
        (MANY, 0.05, 0.5, ""),
        # few digits: broken at the decoy's 0.41..., kept at the call's 0.4987...: 0.4 does not lie between
        (gains_of([0.4987654, 0.9], [0.41234, -1.0], times=100), 0.05, 0.49, ""),
        (gains_of([0.5, 1.0], [1.0, 2.0], times=100), 0.05, 1.1, "none_passes"),
        # else it is the tool's own, 2: 0.05 of 4 * 14 = 56 decoys are 2.8; of 60 they are 3
        (gains_of(CALLS, DECOYS, times=14), 0.05, 2.0, "too_few"),
        (gains_of(CALLS, DECOYS, times=15), 0.05, 0.5, ""),
        (GainCollector().gains(), 0.05, 2.0, "too_few"),  # no call was scored
        (replace(MANY, decoys=np.empty(0), with_decoys=0, requested=0), 0.05, 2.0, "no_decoys"),
        (replace(MANY, responses=7), 0.05, 2.0, "too_alike"),
        (replace(MANY, with_decoys=200, requested=500), 0.05, 2.0, "too_alike"),
    ],
)
def test_the_threshold_worked_by_hand(gains, promised, tau_f, reason):
    found = find_threshold("qa", gains, promised, own=2.0)
    assert (found.tau_f, found.reason, found.at.tau_f) == (tau_f, reason, tau_f)
    assert found.at.calls == sum(gain >= tau_f for gain in gains.calls)
    assert found.at.decoys == sum(gain >= tau_f for gain in gains.decoys)


def test_no_threshold_lies_below_the_floor():
    # without a floor, -0.5 would keep the promise: no decoy passes it
    gains = gains_of([-0.5, 0.3, 0.7], [-1.0], times=100)
    assert find_threshold("qa", gains, 0.05, own=1.0).at.calls == 200
    assert find_threshold("qa", gains, 0.05, own=1.0, floor=-1.0).at.calls == 300


def test_the_interval_is_wilsons_with_one_decoy_a_call():
    # 25 of 100 pass, as 100 calls with a decoy each: Wilson (0.1755, 0.3430); half of the calls pass, so twice that
    gains = replace(gains_of([0.0, 1.0], [], times=50), decoys=np.repeat([0.0, 1.0], [225, 75]))
    found = estimate(gains, 0.5)
    assert found.rate == pytest.approx(0.5)
    assert (found.low, found.high) == (pytest.approx(0.351, abs=5e-4), pytest.approx(0.686, abs=5e-4))


GAINS = st.lists(st.floats(-2, 3).map(lambda x: round(x, 2)), min_size=60, max_size=120)


@given(calls=GAINS, decoys=GAINS, promised=st.sampled_from([0.05, 0.2, 0.5, 0.9]))
def test_the_promise_holds_from_the_threshold_on_and_at_no_lower_call(calls, decoys, promised):
    gains = gains_of(calls, decoys)
    found = find_threshold("qa", gains, promised, own=1.0)
    places = [x for x in {*calls, *decoys, found.tau_f} if 0 <= x <= max(calls)]

    def holds(tau_f):
        return all((estimate(gains, x).rate or 0.0) <= promised + 1e-12 for x in places if x >= tau_f)

    if found.reason == "none_passes":
        assert not holds(max(calls)) or max(calls) < 0
    elif not found.reason:
        assert holds(found.tau_f)
        lower = [gain for gain in calls if 0 <= gain < found.tau_f]
        assert not lower or not holds(max(lower))


def test_collected_calls_are_those_that_a_threshold_may_keep():
    calls = [
        replace(a_scored(tool="mt", gain=0.7, response="a"), decoy_gains=(0.1, -0.2)),
        replace(a_scored(tool="mt", gain=9.0, response="b", seen_after=True), decoy_gains=(9.0,)),  # looked ahead
        replace(a_scored(tool="mt", gain=math.nan, response="c"), decoy_gains=(1.0,)),
        replace(a_scored(tool="mt", gain=0.3, response="a"), decoy_gains=()),  # no other response was found
        a_scored(tool="mt", gain=0.2, response="d"),  # not among those that get decoys
    ]
    collected = GainCollector()
    collected.add(calls[:2])
    collected.add(calls[2:])
    gains = collected.gains()
    assert gains.calls.tolist() == pytest.approx([0.2, 0.3, 0.7])
    assert gains.decoys.tolist() == [-0.2, 0.1]
    assert (gains.requested, gains.with_decoys, gains.responses) == (2, 1, 2)
    assert survivors([calls[1], calls[2]], {"mt": -99.0})[0] == []  # indeed none keeps these two
