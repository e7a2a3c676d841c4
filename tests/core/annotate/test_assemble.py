from __future__ import annotations

import dataclasses
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_document, a_scored
from tests.strategies import balanced_texts, encodable_texts, texts_and_positions
from toolformer_core.annotate.assemble import ExampleCap, assemble, cap_examples, cap_rank, over_cap, survivors
from toolformer_core.records import AnsweredCall
from toolformer_core.syntax import strip


def reasons(calls, tau_f=None):
    kept, dropped = survivors(calls, tau_f)
    assert len(kept) + len(dropped) == len(calls)
    return [""] * len(kept) + [reason for _, reason in dropped]


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


def test_a_gain_that_is_no_number_is_no_gain():
    call = dataclasses.replace(a_scored(), loss_plain=math.inf, loss_call=math.inf, loss_response=math.inf)
    assert reasons([call]) == ["below_threshold"]


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


def a_chain(*links, gain=1.0, **more):
    """A chain whose last call is `1 + 1 -> 2`, behind the given ones, with L- = the loss of the shorter chains."""
    call = a_scored(gain=gain, **more)
    behind = tuple(AnsweredCall(*link) for link in links)
    return dataclasses.replace(call, loss_plain=9.0, behind=behind, loss_shorter=call.loss_plain)


QA = ("qa", "Since when?", "1820")


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


def test_the_calls_of_a_chain_stand_one_behind_another():
    document = a_document("It came in 1865.")
    chain = dataclasses.replace(
        a_chain(QA, gain=0.6, position=10), doc_id=document.doc_id, input="1820 + 45", response="1865"
    )
    example = assemble(document, [chain])
    assert example is not None
    assert example.text == "It came in [QA(Since when?) -> 1820] [Calculator(1820 + 45) -> 1865] 1865."
    assert [(call.tool, call.position, call.gain) for call in example.calls] == [
        ("qa", 10, pytest.approx(0.6)),
        ("calculator", 10, pytest.approx(0.6)),
    ]
    assert strip(example.text, [(call.start, call.end) for call in example.calls]) == document.text


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
    behind = a_scored(tool="qa", gain=1)
    assert survivors([ahead, behind]) == ([behind], [(ahead, "seen_only_after")])


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


def test_a_window_ends_before_the_next_position():
    near = [a_scored(position=p, window_end=p + 4, gain=g) for p, g in ((0, 0.6), (3, 0.7), (7, 0.8))]
    # 3 < 0 + 4: the first two share a window; 7 = 3 + 4: the last two do not
    assert [(c.position, reason) for c, reason in survivors(near)[1]] == [(0, "repeated_nearby")]


def test_each_but_the_best_of_a_row_has_a_better_neighbour():
    row = [a_scored(position=p, window_end=p + 4, gain=g) for p, g in ((0, 0.9), (3, 0.8), (6, 0.7))]
    kept, dropped = survivors(row)
    assert [c.position for c in kept] == [0]  # the last falls to the second, which falls to the first
    assert [c.position for c, _ in dropped] == [3, 6]


def test_of_repeated_calls_that_gain_alike_the_first_in_the_text_is_kept():
    kept, _ = survivors([a_scored(position=p, window_end=9, gain=1.0) for p in (4, 2, 3)])
    assert [c.position for c in kept] == [2]


def test_a_call_that_lost_its_position_drops_no_other():
    beaten = a_scored(position=2, window_end=9, gain=1.2)
    winner = a_scored(tool="qa", position=2, window_end=9, gain=1.3)
    nearby = a_scored(position=4, window_end=12, gain=0.8)
    assert survivors([beaten, winner, nearby]) == ([winner, nearby], [(beaten, "lower_gain")])


def test_calls_of_unknown_windows_are_kept():
    calls = [a_scored(position=p) for p in (1, 2)]
    assert survivors(calls) == (calls, [])


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0.5, 0.6, 0.7])), unique_by=lambda one: one[0]))
def test_a_call_survives_iff_none_in_its_window_is_better(drawn):
    calls = [a_scored(position=p, window_end=min(p + 4, 12), gain=g) for p, g in drawn]
    alone = [
        c
        for c in calls
        if not any(
            o.position < c.window_end
            and c.position < o.window_end
            and (o.gain > c.gain or (o.gain == c.gain and o.position < c.position))
            for o in calls
        )
    ]
    assert survivors(calls)[0] == alone


def test_an_example_of_two_calls_by_hand():
    document = a_document("so 27 years, on Friday")
    year = a_scored(document.doc_id, "calculator", 2, "2021 - 1994", "27", gain=1.25)
    today = a_scored(document.doc_id, "calendar", 15, "", "Today is Friday.", gain=2.0)
    example = assemble(document, [today, year])
    assert example is not None
    assert example.text == ("so [Calculator(2021 - 1994) -> 27] 27 years, on [Calendar() -> Today is Friday.] Friday")
    first, second = example.calls
    assert (first.tool, first.position, first.start, first.end, first.gain) == ("calculator", 2, 2, 34, 1.25)
    assert example.text[second.start : second.end] == " [Calendar() -> Today is Friday.]"
    assert strip(example.text, [(c.start, c.end) for c in example.calls]) == document.text


def test_no_calls_no_example():
    assert assemble(a_document(), []) is None


def test_a_users_tool_stands_by_its_given_name_or_its_key():
    document = a_document("x y")
    call = a_scored(document.doc_id, "stocks", 1, "ACME", "3")
    assert assemble(document, [call]).text == "x [stocks(ACME) -> 3] y"
    assert assemble(document, [call], {"stocks": "Stocks"}).text == "x [Stocks(ACME) -> 3] y"


def test_calls_of_other_documents_and_shared_positions_are_refused():
    document = a_document()
    with pytest.raises(ValueError, match="a call of document elsewhere"):
        assemble(document, [a_scored("elsewhere")])
    with pytest.raises(ValueError, match="share a position"):
        assemble(document, [a_scored(document.doc_id), a_scored(document.doc_id, "qa")])


@given(texts_and_positions(), balanced_texts, encodable_texts, st.lists(encodable_texts, max_size=2))
def test_stripping_an_example_gives_the_document_back(placed, input_, response, earlier):
    """Whatever the document, the inputs and the responses hold; with chains as with single calls."""
    text, positions = placed
    document = a_document(text)
    behind = tuple(AnsweredCall("mt", input_, one) for one in earlier)
    calls = [a_scored(document.doc_id, "qa", p, input_, response) for p in positions]
    example = assemble(document, [dataclasses.replace(call, behind=behind) for call in calls])
    if example is None:
        assert not positions
    else:
        assert strip(example.text, [(c.start, c.end) for c in example.calls]) == text
        assert [c.position for c in example.calls] == [p for p in sorted(positions) for _ in range(1 + len(behind))]


@given(st.lists(st.integers(0, 99).map(str), unique=True), st.integers(1, 20), st.integers(0, 3), st.randoms())
def test_the_cap_keeps_as_many_whatever_the_order(doc_ids, most, seed, rng: random.Random):
    dropped = cap_examples({"qa": doc_ids, "mt": doc_ids[:3]}, most, seed)
    assert sum(tool == "qa" for tool, _ in dropped) == max(0, len(doc_ids) - most)
    shuffled = rng.sample(doc_ids, len(doc_ids))
    assert cap_examples({"mt": doc_ids[:3], "qa": shuffled}, most, seed) == dropped


def test_the_cap_falls_on_other_documents_for_another_seed_or_tool():
    doc_ids = [str(i) for i in range(50)]
    dropped = [frozenset(d for _, d in cap_examples({t: doc_ids}, 25, s)) for t, s in [("qa", 0), ("qa", 1), ("mt", 0)]]
    assert len(set(dropped)) == 3


@given(
    st.lists(st.tuples(st.sampled_from(["qa", "mt"]), st.integers(0, 60).map(str))),
    st.integers(1, 5),
    st.integers(0, 3),
)
def test_the_cap_holds_no_more_ranks_than_may_stay_and_says_the_same(pairs, most, seed):
    cap = ExampleCap(most, seed)
    for tool, doc_id in pairs:
        cap.add(tool, [doc_id])
        assert all(len(ranks) <= 2 * most for ranks in cap._ranks.values())
    # the rule, written out: of each tool's documents in the order of their ranks, all behind the first `most`
    over = set()
    for tool in ("qa", "mt"):
        ranked = sorted({d for t, d in pairs if t == tool}, key=lambda d, tool=tool: cap_rank(seed, tool, d))
        over |= {(tool, doc_id) for doc_id in ranked[most:]}
    assert over_cap(pairs, cap.last_ranks(), seed) == over


def test_a_tool_within_the_limit_has_no_last_rank():
    cap = ExampleCap(2, 0)
    cap.add("qa", ["a", "b", "a"])
    cap.add("mt", ["a", "b", "c"])
    ranks = sorted(cap_rank(0, "mt", doc_id) for doc_id in "abc")
    assert cap.last_ranks() == {"mt": ranks[1]}  # of three documents the first two stay
