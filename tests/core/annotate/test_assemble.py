import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_document, a_scored
from tests.strategies import balanced_texts, encodable_texts, texts_and_positions
from toolformer_core.annotate.assemble import ExampleCap, assemble, cap_rank, over_cap
from toolformer_core.records import AnsweredCall
from toolformer_core.syntax import strip


def test_the_calls_of_a_chain_stand_one_behind_another():
    document = a_document("It came in 1865.")
    chain = dataclasses.replace(
        a_scored(document.doc_id, input="1820 + 45", response="1865", position=10, gain=0.6),
        preceding_calls=(AnsweredCall("qa", "Since when?", "1820"),),
    )
    example = assemble(document, [chain])
    assert example.text == "It came in [QA(Since when?) -> 1820] [Calculator(1820 + 45) -> 1865] 1865."
    assert [(call.tool, call.position) for call in example.calls] == [("qa", 10), ("calculator", 10)]
    assert [call.gain for call in example.calls] == pytest.approx([0.6, 0.6])


def test_an_example_of_two_calls_by_hand():
    document = a_document("so 27 years, on Friday")
    year = a_scored(document.doc_id, "calculator", 2, "2021 - 1994", "27", gain=1.25)
    today = a_scored(document.doc_id, "calendar", 15, "", "Today is Friday.", gain=2.0)
    example = assemble(document, [today, year])
    assert example.text == "so [Calculator(2021 - 1994) -> 27] 27 years, on [Calendar() -> Today is Friday.] Friday"
    first, second = example.calls
    assert (first.tool, first.position, first.start, first.end, first.gain) == ("calculator", 2, 2, 34, 1.25)
    assert example.text[second.start : second.end] == " [Calendar() -> Today is Friday.]"


def test_a_users_tool_stands_by_its_given_name_or_its_key():
    document = a_document("x y")
    call = a_scored(document.doc_id, "stocks", 1, "ACME", "3")
    assert assemble(document, [call]).text == "x [stocks(ACME) -> 3] y"
    assert assemble(document, [call], {"stocks": "Stocks"}).text == "x [Stocks(ACME) -> 3] y"


def test_shared_positions_are_refused():
    document = a_document()
    with pytest.raises(ValueError, match="share a position"):
        assemble(document, [a_scored(document.doc_id), a_scored(document.doc_id, "qa")])


@given(texts_and_positions(), balanced_texts, encodable_texts, st.lists(encodable_texts, max_size=2))
def test_stripping_an_example_gives_the_document_back(placed, input_, response, earlier):
    """Whatever the document, the inputs and the responses hold; with chains as with single calls."""
    text, positions = placed
    document = a_document(text)
    links = tuple(AnsweredCall("mt", input_, one) for one in earlier)
    calls = [a_scored(document.doc_id, "qa", p, input_, response) for p in positions]
    example = assemble(document, [dataclasses.replace(call, preceding_calls=links) for call in calls])
    if example is None:
        assert not positions
    else:
        assert strip(example.text, [(c.start, c.end) for c in example.calls]) == text
        assert [c.position for c in example.calls] == [p for p in sorted(positions) for _ in range(1 + len(links))]


def test_the_cap_falls_on_other_documents_for_another_seed_or_tool():
    def dropped(tool, seed):
        cap = ExampleCap(25, seed)
        cap.add(tool, map(str, range(50)))
        over = over_cap([(tool, str(i)) for i in range(50)], cap.last_ranks(), seed)
        return frozenset(doc_id for _, doc_id in over)

    assert [len(dropped(*case)) for case in (("qa", 0), ("qa", 1), ("mt", 0))] == [25] * 3
    assert len({dropped("qa", 0), dropped("qa", 1), dropped("mt", 0)}) == 3


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
