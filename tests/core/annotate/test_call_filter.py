from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_scored, survivors
from toolformer_core.annotate.call_filter import CallFilter, outcomes_of
from toolformer_core.records import AnsweredCall


def reasons(calls, tau_f=None):
    kept, dropped = survivors(calls, tau_f)
    assert len(kept) + len(dropped) == len(calls)
    return [""] * len(kept) + [reason for _, reason in dropped]


def a_chain(*links, gain=1.0, **more):
    """A chain whose last call is `1 + 1 -> 2`, behind the given ones, with L- = the loss of the shorter chains."""
    call = a_scored(gain=gain, **more)
    front = tuple(AnsweredCall(*link) for link in links)
    return dataclasses.replace(call, loss_plain=9.0, preceding_calls=front, loss_shorter=call.loss_plain)


QA = ("qa", "Since when?", "1820")


@pytest.mark.parametrize(
    ("tool", "gain", "tau_f", "reason"),
    [
        ("qa", 1.0, {}, ""),  # kept iff gain >= tau_f: equality keeps
        ("qa", 0.999, {}, "below_threshold"),
        ("calculator", 0.5, {}, ""),
        ("mt", 0.5, {}, ""),
        ("mt", 0.49, {}, "below_threshold"),
        ("qa", 0.5, {"qa": 0.5}, ""),
        ("calculator", 1.9, {"calculator": 2.0}, "below_threshold"),
        ("the_users_own", 0.9, {}, "below_threshold"),
    ],
)
def test_the_threshold_is_the_tools(tool, gain, tau_f, reason):
    assert reasons([a_scored(tool=tool, gain=gain)], tau_f) == [reason]
    unknown = dataclasses.replace(a_scored(), loss_plain=math.inf, loss_call=math.inf, loss_response=math.inf)
    assert reasons([unknown]) == ["below_threshold"]  # a gain that is no number is no gain


@pytest.mark.parametrize(
    ("tool", "before", "after", "reason"),
    [
        ("mt", False, True, "seen_only_after"),
        ("mt", True, True, ""),
        ("mt", False, False, ""),
        ("mt", True, False, ""),
        ("qa", False, True, ""),
    ],
)
def test_only_mt_may_not_look_ahead(tool, before, after, reason):
    assert reasons([a_scored(tool=tool, gain=2, seen_before=before, seen_after=after)]) == [reason]


def test_a_chain_must_beat_all_that_it_begins_with():
    # L(z) = 1, L(e(c2, eps)) = 2 + 0.6: L- is the least of 9 (no call), 1.6 (the first alone) and 2.6
    chain = a_chain(QA, gain=0.6)
    assert chain.gain == pytest.approx(0.6)
    assert dataclasses.replace(chain, loss_plain=1.2).gain == pytest.approx(0.2)
    assert dataclasses.replace(chain, loss_call=1.1).gain == pytest.approx(0.1)
    assert reasons([chain]) == [""]  # the calculator's 0.5, as its last call is one
    assert reasons([a_chain(QA, gain=0.4)]) == ["below_threshold"]


def test_where_a_call_and_a_chain_pass_the_longest_chain_stays():
    single, chain = a_scored(gain=5.0), a_chain(QA, gain=0.6)
    longest = a_chain(QA, ("mt", "drei", "three"), gain=0.5)
    kept, dropped = survivors([single, chain, longest])
    assert kept == [longest]
    assert dropped == [(single, "shorter_chain"), (chain, "shorter_chain")]
    kept, dropped = survivors([single, chain, dataclasses.replace(longest, loss_shorter=1.0)])  # which gains nothing
    assert kept == [chain]
    assert [reason for _, reason in dropped] == ["shorter_chain", "below_threshold"]
    better = a_chain(QA, gain=0.7, input="2 + 0")
    assert survivors([chain, better])[1] == [(chain, "lower_gain")]


def test_a_repeated_chain_is_one_whose_calls_are_all_the_same():
    chain = a_chain(QA, gain=2, position=0, window_end=9)
    same = a_chain(QA, gain=1, position=5, window_end=12)
    other = a_chain(("qa", "When?", "1820"), gain=1, position=5, window_end=12)
    assert survivors([chain, same])[1] == [(same, "repeated_nearby")]
    assert survivors([chain, other])[1] == []
    assert survivors([chain, a_scored(gain=1, position=5, window_end=12)])[1] == []


def test_of_several_calls_at_a_position_the_largest_gain_wins_across_tools():
    weak = a_scored(tool="calculator", position=3, gain=1.5)
    strong = a_scored(tool="qa", position=3, gain=1.6)
    elsewhere = a_scored(tool="qa", position=4, gain=1.1)
    other = a_scored(doc_id="e", tool="qa", position=3, gain=1.1)
    kept, dropped = survivors([weak, strong, elsewhere, other])
    assert kept == [strong, elsewhere, other]
    assert dropped == [(weak, "lower_gain")]


def test_a_call_that_falls_to_another_rule_does_not_win_its_position():
    ahead = a_scored(tool="mt", gain=9, seen_after=True)
    later = a_scored(tool="qa", gain=1)
    assert survivors([ahead, later]) == ([later], [(ahead, "seen_only_after")])


@given(st.permutations([("qa", "b"), ("qa", "a"), ("calendar", "z"), ("wikisearch", "a")]))
def test_ties_go_by_tool_then_input_whatever_the_order(pairs):
    kept, dropped = survivors([a_scored(tool=t, input=i, gain=2) for t, i in pairs])
    assert [(c.tool, c.input) for c in kept] == [("calendar", "z")]
    assert {reason for _, reason in dropped} == {"lower_gain"}


def test_one_answer_one_call():
    # "so 58 are lent and 529 remain": the calls at 2 and 5 share tokens, the one at 24 is behind both
    first = a_scored(input="587 - 58", position=2, window_end=18, gain=0.9)
    best = a_scored(input="587 - 58", position=5, window_end=22, gain=1.5)
    later = a_scored(input="587 - 58", position=24, window_end=29, gain=0.6)
    other = a_scored(input="58 + 529", position=6, window_end=22, gain=0.7)  # another input
    tool = a_scored(tool="qa", input="587 - 58", position=9, window_end=24, gain=1.1)
    elsewhere = a_scored("e", input="587 - 58", position=5, window_end=22, gain=0.8)
    calls = [first, best, later, other, tool, elsewhere]
    assert survivors(calls) == ([best, later, other, tool, elsewhere], [(first, "repeated_nearby")])
    assert survivors(calls, keep_repeats=True) == (calls, [])


@pytest.mark.parametrize(
    ("gains", "kept"),
    [
        ({0: 0.6, 3: 0.7, 7: 0.8}, [3, 7]),  # 3 < 0 + 4: the first two share a window; 7 = 3 + 4: the last two do not
        ({0: 0.9, 3: 0.8, 6: 0.7}, [0]),  # the last falls to the second, which falls to the first
        ({4: 1.0, 2: 1.0, 3: 1.0}, [2]),  # of those that gain alike the first in the text
    ],
)
def test_of_equal_calls_in_each_others_windows_those_with_a_better_neighbour_fall(gains, kept):
    survived, dropped = survivors([a_scored(position=p, window_end=p + 4, gain=gain) for p, gain in gains.items()])
    assert [c.position for c in survived] == kept
    assert {reason for _, reason in dropped} == {"repeated_nearby"}


def test_a_call_that_lost_its_position_drops_no_other():
    beaten = a_scored(position=2, window_end=9, gain=1.2)
    winner = a_scored(tool="qa", position=2, window_end=9, gain=1.3)
    nearby = a_scored(position=4, window_end=12, gain=0.8)
    assert survivors([beaten, winner, nearby]) == ([winner, nearby], [(beaten, "lower_gain")])


def test_the_call_that_won_over_a_dropped_one_is_known():
    def near(tool, position, gain, input):
        """A call whose loss counts the next five characters."""
        return a_scored(tool=tool, position=position, gain=gain, input=input, window_end=position + 5)

    best = near("calculator", 0, 2.0, "1")  # gains most at 0
    outdone = near("qa", 0, 1.5, "x")
    repeated = near("calculator", 4, 0.9, "1")  # 4 < 0 + 5: `best` is nearby
    beside = near("calculator", 4, 0.6, "2")  # gains less than the call at its place, which is not kept itself
    between = near("calculator", 8, 0.7, "1")  # 8 < 4 + 5, but not 8 < 0 + 5: `repeated` is nearby, and so is `last`
    last = near("calculator", 12, 0.8, "1")  # 12 < 8 + 5, and it gains less than `repeated`
    weak = near("qa", 20, 0.9, "x")  # 0.9 < 1
    start, chain = near("qa", 30, 1.2, "y"), a_chain(QA, gain=0.6, position=30)
    call_filter = CallFilter.of_build(("calculator", "qa"), {"keep_repeats": {"calculator": False}})
    calls = [weak, between, outdone, chain, best, beside, last, start, repeated]
    assert dict(zip(calls, outcomes_of(calls, call_filter), strict=True)) == {
        best: ("", None),
        outdone: ("lower_gain", best),
        repeated: ("repeated_nearby", best),
        beside: ("lower_gain", repeated),
        between: ("repeated_nearby", repeated),
        last: ("", None),
        weak: ("below_threshold", None),
        start: ("shorter_chain", chain),
        chain: ("", None),
    }


def test_calls_of_unknown_windows_are_kept():
    calls = [a_scored(position=p) for p in (1, 2)]
    assert survivors(calls) == (calls, [])


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0.5, 0.6, 0.7])), unique_by=lambda one: one[0]))
def test_a_call_survives_iff_none_in_its_window_is_better(drawn):
    calls = [a_scored(position=p, window_end=min(p + 4, 12), gain=g) for p, g in drawn]

    def better(one, other):
        near = one.position < other.window_end and other.position < one.window_end
        return near and (one.gain, -one.position) > (other.gain, -other.position)

    assert survivors(calls)[0] == [call for call in calls if not any(better(other, call) for other in calls)]
