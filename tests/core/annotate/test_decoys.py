from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_document, a_drawn
from tests.support.scripted_lm import ScriptedLM
from toolformer_core.annotate.decoys import DecoyPool, reserve
from toolformer_core.annotate.score import score
from toolformer_core.config import TOOL_NAMES, ScoreConfig
from toolformer_core.errors import UsageError

DOCUMENTS = [a_document(f"text {n}") for n in range(6)]
ANSWERED = [(document.doc_id, str(n)) for n, document in enumerate(DOCUMENTS)]
CALL = a_drawn(DOCUMENTS[0], 0, "1 + 1")


def pool(answered=ANSWERED, **options):
    return DecoyPool(answered, **{"decoys": 3, **options})


def test_decoys_are_other_documents_responses():
    decoys = pool().decoys_of(CALL, "0")
    assert len(set(decoys)) == 3
    assert set(decoys) <= {"1", "2", "3", "4", "5"}


def test_no_response_of_the_same_document_is_one():
    # document 0 got 1, 2 and 3 elsewhere: they may be right here, too
    answered = [*ANSWERED, *((DOCUMENTS[0].doc_id, response) for response in "123")]
    assert set(pool(answered).decoys_of(CALL, "0")) == {"4", "5"}


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


def test_the_reserve_has_enough_for_each_of_the_papers_tools():
    assert reserve().keys() == TOOL_NAMES.keys()
    assert all(len(set(responses)) >= 8 for responses in reserve().values())


def test_a_config_that_asks_for_none_has_no_pool():
    assert DecoyPool.of(ScoreConfig(), "qa", ANSWERED) is None
    assert len(DecoyPool.of(ScoreConfig(decoys=2), "qa", ANSWERED[:1]).decoys_of(CALL, "0")) == 2  # of the reserve


@pytest.mark.parametrize("decoys", [-1, 101])
def test_a_config_out_of_range_is_refused(decoys):
    with pytest.raises(UsageError):
        ScoreConfig(decoys=decoys)


TEXT = "one two"
HERE, ELSEWHERE = a_document(TEXT), a_document("elsewhere")


def scored_with(losses, floor=0.0):
    """Score a call with response `r` at the last of two words, with the one decoy `other`; losses by prefix."""
    asked = []

    def log_probs(request):
        asked.append(request.prefix)
        return [-3 * losses[request.prefix]]  # the first weight is 5/15: one token's loss is a third of it

    lm = ScriptedLM(log_probs=log_probs)
    items = [(a_drawn(HERE, 4, "i"), "r"), (a_drawn(ELSEWHERE, 0, "i"), "other")]
    decoys = DecoyPool.of(ScoreConfig(decoys=1), "qa", [(call.doc_id, response) for call, response in items])
    texts = {HERE.doc_id: TEXT, ELSEWHERE.doc_id: "elsewhere"}
    return score(lm, "QA", texts, items[:1], ScoreConfig(floor=floor), decoys)[0], asked


PLAIN, BARE, FULL, DECOY = "", " [QA(i) -> ]", " [QA(i) -> r]", " [QA(i) -> other]"


def test_a_decoys_gain_is_taken_from_the_same_smaller_loss():
    call, asked = scored_with({PLAIN: 3.0, BARE: 2.0, FULL: 0.5, DECOY: 1.75})
    assert call.gain == pytest.approx(2.0 - 0.5)
    assert call.decoy_gains == pytest.approx((2.0 - 1.75,))
    assert asked == [PLAIN, FULL, DECOY, BARE]


def test_a_call_below_the_floor_is_scored_to_the_end_if_its_decoy_is_not():
    call, _ = scored_with({PLAIN: 3.0, BARE: 2.0, FULL: 3.5, DECOY: 1.0})  # the call's bound: 3 - 3.5 < 0
    assert call.loss_call == pytest.approx(2.0)
    assert call.decoy_gains == pytest.approx((1.0,))


def test_where_neither_reaches_the_floor_the_bound_is_stored():
    call, asked = scored_with({PLAIN: 3.0, FULL: 3.5, DECOY: 3.25})
    assert (call.loss_call, call.bound) == (None, pytest.approx(-0.5))
    assert call.decoy_gains == pytest.approx((-0.25,))
    assert BARE not in asked
