"""Chains: behind which calls further ones are drawn, and what becomes of the samples, worked out by hand."""

import dataclasses
import math

import pytest

from tests.fakes import a_document, a_prompt, a_scored
from tests.support.scripted_lm import ScriptedLM
from toolformer_core.annotate.chains import REPEATED, TOO_LONG, extend, left_to_gain, starts_of
from toolformer_core.annotate.score import score
from toolformer_core.config import SampleConfig, ScoreConfig
from toolformer_core.records import AnsweredCall, DrawnCall, ScoredCall

TEXT = "The bridge came 45 years later, in 1865."
AT = TEXT.index(" 1865")
DOC = a_document(TEXT)
NAMES = {"qa": "QA", "calculator": "Calculator"}
FIRST = " [QA(Since when?) -> 1820]"
SECOND = " [Calculator(1820 + 45) -> 1865]"
START = dataclasses.replace(
    a_scored(DOC.doc_id, "qa", AT, "Since when?", "1820", window_end=len(TEXT)), loss_plain=6.0, loss_response=5.0
)
LINK = AnsweredCall("qa", "Since when?", "1820")


def drawn(samples: list[str], **config: object) -> list[DrawnCall]:
    lm = ScriptedLM(samples={("calculator", TEXT[:AT] + FIRST, AT + len(FIRST)): samples})
    settings = SampleConfig(samples=len(samples), **config)  # type: ignore[arg-type]
    return extend(lm, a_prompt(), "calculator", NAMES, {DOC.doc_id: TEXT}, [START], settings)


def test_what_is_left_to_gain_is_the_least_loss_without_a_further_call() -> None:
    assert left_to_gain(START) == 5.0  # L(e(c, r)); L(eps) is 6
    assert left_to_gain(dataclasses.replace(START, loss_response=7.0)) == 6.0
    assert left_to_gain(dataclasses.replace(START, loss_shorter=4.0)) == 4.0
    assert math.isnan(left_to_gain(dataclasses.replace(START, loss_response=math.nan)))


def test_the_starts_of_a_document_are_those_that_leave_most() -> None:
    def call(left: float, doc_id: str = "d", **more: object) -> ScoredCall:
        return dataclasses.replace(a_scored(doc_id), loss_plain=9.0, loss_response=left, **more)  # type: ignore[arg-type]

    calls = [call(1.0), call(3.0), call(2.0), call(0.0), call(math.nan), call(0.5, "other")]
    assert starts_of(calls, 2) == {"d": [calls[1], calls[2]], "other": [calls[5]]}
    assert starts_of(calls, 9)["d"] == [calls[1], calls[2], calls[0]]  # nothing is left of 0, or of what is no number
    ahead = call(4.0, tool="mt", seen_after=True)
    assert starts_of([*calls, ahead], 1)["d"] == [calls[1]]  # what is never kept begins nothing
    often = call(3.0, count=2)
    assert starts_of([*calls, often], 1)["d"] == [often]


def test_calls_are_drawn_behind_the_response() -> None:
    (call,) = drawn(["Calculator(1820 + 45)]"])
    assert (call.outcome, call.input, call.position, call.preceding_calls) == ("ok", "1820 + 45", AT, (LINK,))
    assert (call.tool, call.rank, call.log_p, call.window_end) == ("calculator", 0, 0.0, len(TEXT))


def test_equal_samples_are_one_record_and_outcomes_are_those_of_any_draw() -> None:
    found = drawn(["Calculator(1 + 1)]", "QA(Since when?)]", "so much", "Calculator(1 + 1)]", "Calculator(1"])
    counts = {"ok": 2, "wrong_tool": 1, "unparsable": 1, "unterminated": 1}
    assert [(call.outcome, call.count) for call in found] == list(counts.items())


def test_a_call_that_stands_in_front_of_itself_is_repeated() -> None:
    before = TEXT[:AT] + " [Calculator(1 + 1) -> 2]"
    lm = ScriptedLM(samples={("calculator", before, len(before)): ["Calculator(1 + 1)]", "Calculator(1+1)]"]})
    start = dataclasses.replace(START, tool="calculator", input="1 + 1", response="2")
    found = extend(lm, a_prompt(), "calculator", NAMES, {DOC.doc_id: TEXT}, [start], SampleConfig(samples=2))
    assert [(call.outcome, call.input) for call in found] == [(REPEATED, ""), ("ok", "1+1")]


def test_what_leaves_no_room_is_not_drawn_and_nothing_to_extend_asks_no_model() -> None:
    class Full(ScriptedLM):
        def scan(self, prompt, texts):  # type: ignore[no-untyped-def]
            return iter(())

    (call,) = extend(Full(), a_prompt(), "calculator", NAMES, {DOC.doc_id: TEXT}, [START], SampleConfig(samples=3))
    assert (call.outcome, call.count, call.log_p) == (TOO_LONG, 3, -math.inf)
    assert extend(ScriptedLM(), a_prompt(), "calculator", NAMES, {}, [], SampleConfig()) == []


def test_four_losses_of_a_chain_worked_by_hand() -> None:
    # " 1865." is one token of the script, so each loss is 5/15 of it
    told = {"": -9.0, FIRST: -6.0, FIRST + " [Calculator(1820 + 45) -> ]": -7.5, FIRST + SECOND: -0.3}
    (call,) = drawn(["Calculator(1820 + 45)]"])
    lm = ScriptedLM(log_probs=lambda asked: [told[asked.prefix]])
    (scored,) = score(lm, "Calculator", {DOC.doc_id: TEXT}, [(call, "1865")], ScoreConfig(), None, NAMES)
    assert scored.preceding_calls == (LINK,)
    losses = (scored.loss_plain, scored.loss_shorter, scored.loss_call, scored.loss_response)
    assert (*losses, scored.gain) == pytest.approx((3.0, 2.0, 2.5, 0.1, 2.0 - 0.1))


def test_a_chain_is_not_scored_to_the_end_where_the_first_call_alone_does_as_well() -> None:
    told = {"": -9.0, FIRST: -0.3, FIRST + SECOND: -0.6}  # the chain makes it worse; no other prefix may be asked
    (call,) = drawn(["Calculator(1820 + 45)]"])
    lm = ScriptedLM(log_probs=lambda asked: [told[asked.prefix]])
    (scored,) = score(lm, "Calculator", {DOC.doc_id: TEXT}, [(call, "1865")], ScoreConfig(), None, NAMES)
    assert (scored.loss_call, scored.bound) == (None, pytest.approx(0.1 - 0.2))


def test_the_same_chain_drawn_twice_is_one_and_chains_of_other_beginnings_are_not() -> None:
    (call,) = drawn(["Calculator(1820 + 45)]"])
    other = dataclasses.replace(call, preceding_calls=(AnsweredCall("qa", "When?", "1820"),))
    lm = ScriptedLM(log_probs=lambda request: [-1.0])
    items = [(call, "1865"), (other, "1865"), (call, "1865")]
    found = score(lm, "Calculator", {DOC.doc_id: TEXT}, items, ScoreConfig(), None, NAMES)
    assert [(one.preceding_calls[0].input, one.count) for one in found] == [("Since when?", 2), ("When?", 1)]


def test_what_an_earlier_response_says_was_seen_before() -> None:
    text = "Er sagte: drei. In English three."
    doc = a_document(text)
    call = DrawnCall(doc.doc_id, "mt", text.index(" three"), -1.0, 0, "", "ok", "drei Türme", 1)
    chain = dataclasses.replace(call, preceding_calls=(AnsweredCall("qa", "What?", "drei Türme"),))
    lm = ScriptedLM(log_probs=lambda request: [-1.0])
    scored = score(lm, "MT", {doc.doc_id: text}, [(call, "towers"), (chain, "towers")], ScoreConfig())
    assert [one.seen_before for one in scored] == [False, True]
