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
        *(("qa", 1.0, {}, ""), ("qa", 0.999, {}, "below_threshold")),  # kept iff gain >= tau_f: equality keeps
        *(("calculator", 0.5, {}, ""), ("mt", 0.5, {}, ""), ("mt", 0.49, {}, "below_threshold")),
        *(("qa", 0.5, {"qa": 0.5}, ""), ("calculator", 1.9, {"calculator": 2.0}, "below_threshold")),
        ("the_users_own", 0.9, {}, "below_threshold"),
    ],
)
def test_the_threshold_is_the_tools(tool, gain, tau_f, reason):
    assert reasons([a_scored(tool=tool, gain=gain)], tau_f) == [reason]
    unknown = dataclasses.replace(a_scored(), loss_plain=math.inf, loss_call=math.inf, loss_response=math.inf)
    assert reasons([unknown]) == ["below_threshold"]  # a gain that is no number is no gain


def test_only_mt_may_not_look_ahead():
    ahead = {"gain": 2, "seen_after": True}
    calls = [a_scored(tool="mt", **ahead), a_scored(tool="mt", seen_before=True, **ahead), a_scored(tool="qa", **ahead)]
    assert [reasons([call]) for call in calls] == [["seen_only_after"], [""], [""]]


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
    shorter = [(single, "shorter_chain"), (chain, "shorter_chain")]
    assert survivors([single, chain, longest]) == ([longest], shorter)
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


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0.5, 0.6, 0.7])), unique_by=lambda one: one[0]))
def test_a_call_survives_iff_none_in_its_window_is_better(drawn):
    calls = [a_scored(position=p, window_end=min(p + 4, 12), gain=g) for p, g in drawn]

    def better(one, other):
        near = one.position < other.window_end and other.position < one.window_end
        return near and (one.gain, -one.position) > (other.gain, -other.position)

    assert survivors(calls)[0] == [call for call in calls if not any(better(other, call) for other in calls)]
