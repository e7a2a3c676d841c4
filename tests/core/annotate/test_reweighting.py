"""Losses under other weights, worked out by hand: single calls, chains, and what was not computed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolformer_core.annotate.score import reweighted, weights
from toolformer_core.records import AnsweredCall, ScoredCall

FIRST = AnsweredCall("qa", "When?", "1820")
QA = ScoredCall(
    *("d", "qa", 7, "When?", "1820", -0.1, 1),
    **{"loss_plain": 0.0, "loss_call": 0.0, "loss_response": 0.0, "seen_before": False, "seen_after": False},
    log_p_plain=(-3.0, -1.0),
    log_p_call=(-2.0, -2.0),
    log_p_response=(-1.0, -1.5),
)
SUM = replace(QA, tool="calculator", input="1820 + 45", response="1865", preceding_calls=(FIRST,), loss_shorter=0)
SUM = replace(SUM, log_p_response=(-0.5, -0.5))


def test_the_first_token_alone_and_two_tokens_alike() -> None:
    qa, chain = reweighted([QA, SUM], [1.0])
    assert (qa.loss_plain, qa.loss_call, qa.loss_response, qa.loss_shorter) == (3.0, 2.0, 1.0, None)
    assert qa.gain == 1.0  # min(3, 2) - 1
    assert chain.loss_shorter == 1.0  # of the first call with its response
    assert chain.gain == 0.5  # min(3, 2, 1) - 0.5
    qa, chain = reweighted([QA, SUM], [0.5, 0.5])
    assert qa.gain == 0.75  # min(2, 2) - 1.25
    assert chain.gain == 0.75  # min(2, 2, 1.25) - 0.5


def test_near_the_end_of_a_text_the_weights_stay_and_what_was_not_computed_stays_unknown() -> None:
    short = replace(QA, log_p_plain=(-3.0,), log_p_call=(-3.0,), log_p_response=(-1.5,))
    [found] = reweighted([short], weights())
    assert found.gain == pytest.approx(0.5)  # 5/15 of 3 - 1.5
    [found] = reweighted([replace(QA, loss_call=None, log_p_call=None)], [1.0])
    assert (found.loss_call, found.bound) == (None, 2.0)  # at most 3 - 1


def test_what_is_not_stored_is_an_error() -> None:
    with pytest.raises(ValueError, match="a call of qa in document d has no log-probabilities"):
        reweighted([replace(QA, log_p_plain=None)], [1.0])
    with pytest.raises(ValueError, match="begins with one that was not scored"):
        reweighted([SUM], [1.0])
