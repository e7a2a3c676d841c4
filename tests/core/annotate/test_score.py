import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_document, a_drawn, survivors
from tests.support.scripted_lm import ScriptedLM
from tests.tiny import tiny_lm
from toolformer_core.annotate.score import score
from toolformer_core.config import ScoreConfig
from toolformer_core.lm.tokens import tokenize

TEXT = "18 + 12 x 3 = 54 as said"
AT = TEXT.index(" 54")
DOC = a_document(TEXT)
CALL = " [Calculator(18 + 12 * 3) -> ]"
RESPONSE = " [Calculator(18 + 12 * 3) -> 54]"


def test_three_losses_worked_by_hand():
    lm = ScriptedLM(
        log_probs={
            ("", TEXT, AT): [-6.0, -3.0, -3.0],  # " 54", " as", " said": three tokens are left
            (CALL, TEXT, AT): [-4.5, -3.0, -3.0],
            (RESPONSE, TEXT, AT): [-0.6, -3.0, -3.0],
        }
    )
    (scored,) = score(lm, "Calculator", {DOC.doc_id: TEXT}, [(a_drawn(DOC, AT, "18 + 12 * 3"), "54")], ScoreConfig())
    # weights 5/15, 4/15, 3/15; the last two tokens cost 3 * 4/15 + 3 * 3/15 = 21/15 = 1.4 in all three
    losses = (6 / 3 + 1.4, 4.5 / 3 + 1.4, 0.6 / 3 + 1.4)  # 3.4, 2.9 (the smaller: L-) and 1.6
    assert (scored.loss_plain, scored.loss_call, scored.loss_response) == pytest.approx(losses)
    assert scored.gain == pytest.approx(2.9 - 1.6)
    assert (scored.position, scored.input, scored.response, scored.count) == (AT, "18 + 12 * 3", "54", 1)


def test_within_a_token_the_next_one_is_the_first_that_counts():
    """A call of `--candidates` may stand inside a token: a position is an offset in characters."""
    lm = tiny_lm()
    text = "The Nile is 6,853 km long; its source is the White Nile."
    cuts = tokenize(lm.hf_model.tokenizer, [text])[0].cuts.tolist()
    before, behind = next((a, b) for a, b in pairwise(cuts) if b - a > 2)  # a token of three characters or more
    found = {}
    for position in (before, before + 1, before + 2, behind):
        items = [(a_drawn(DOC, position, "how long?"), "long")]
        (found[position],) = score(lm, "QA", {DOC.doc_id: text}, items, ScoreConfig())
    assert found[before + 1].loss_plain == found[before + 2].loss_plain == found[behind].loss_plain
    assert found[before + 1].log_p_response == found[behind].log_p_response
    assert found[before].loss_plain != found[behind].loss_plain


def test_every_question_is_asked_once_and_the_plain_one_is_shared():
    asked = []

    def answer(request):
        asked.append((request.prefix, request.position, request.tokens))
        return [-1.0] * request.tokens

    items = [(a_drawn(DOC, AT, "1", count=2), "1"), (a_drawn(DOC, AT, "2"), "2"), (a_drawn(DOC, AT, "1", count=3), "1")]
    scored = score(ScriptedLM(log_probs=answer), "Calculator", {DOC.doc_id: TEXT}, items, ScoreConfig())
    prefixes = ("", *(f" [Calculator({n}) -> {response}]" for n, response in ((1, 1), (2, 2), (1, ""), (2, ""))))
    assert asked == [(prefix, AT, 5) for prefix in prefixes]
    assert [(s.input, s.count) for s in scored] == [("1", 5), ("2", 1)]


def test_one_call_of_the_model_serves_many_documents():
    calls = []

    class Counting(ScriptedLM):
        def log_probs(self, requests):
            calls.append(len(requests))
            return super().log_probs(requests)

    documents = [a_document(f"text {i} is here") for i in range(70)]
    items = [(a_drawn(d, 0, "1"), "1") for d in documents]
    lm = Counting(log_probs=lambda request: [-1.0])
    scored = score(lm, "Calculator", {d.doc_id: d.text for d in documents}, items, ScoreConfig())
    assert [s.doc_id for s in scored] == [d.doc_id for d in documents]
    assert calls == [64 * 2, 64, 6 * 2, 6]  # plain and with a response, then those that may gain


def scored_with(losses, config):
    """Score one call whose three losses are 5/15 of these, and return it with the prefixes that were asked."""
    asked = []

    def answer(request):
        asked.append(request.prefix)
        return [-losses[request.prefix]]

    lm = ScriptedLM(log_probs=answer)
    (scored,) = score(lm, "Calculator", {DOC.doc_id: TEXT}, [(a_drawn(DOC, AT, "18 + 12 * 3"), "54")], config)
    return scored, asked


def test_a_call_that_cannot_be_kept_is_not_scored_to_the_end():
    # L(eps) - L+ = (3 - 3.3) / 3 = -0.1 < 0, and L- can only be smaller than L(eps)
    losses = {"": 3.0, CALL: 1.5, RESPONSE: 3.3}
    scored, asked = scored_with(losses, ScoreConfig())
    assert asked == ["", RESPONSE]
    assert scored.gain == scored.bound == pytest.approx(-0.1)
    assert (scored.loss_call, scored.log_p_call, scored.log_p_plain) == (None, None, (-3.0,))
    assert scored.log_p_response == pytest.approx((-3.3,))

    whole, asked = scored_with(losses, ScoreConfig(floor=None))
    assert asked == ["", CALL, RESPONSE]
    assert whole.gain == pytest.approx((1.5 - 3.3) / 3)  # -0.6
    assert (whole.bound, whole.log_p_call) == (None, (-1.5,))


@pytest.mark.parametrize("config", [ScoreConfig(floor=-0.15), ScoreConfig(decay=0.5)])
def test_neither_above_the_floor_nor_under_other_weights_is_a_call_skipped(config):
    scored, _ = scored_with({"": 3.0, CALL: 1.5, RESPONSE: 3.3}, config)  # -0.1 is above the floor
    assert scored.loss_call is not None


def test_a_loss_that_cannot_be_measured_is_no_bound():
    scored, asked = scored_with({"": math.nan, CALL: 1.5, RESPONSE: 3.3}, ScoreConfig())
    assert CALL in asked
    assert scored.bound is None


@given(st.lists(st.tuples(*[st.floats(-20, 0, width=32)] * 3), min_size=1, max_size=6), st.floats(0, 3))
def test_the_floor_changes_no_kept_call(told, tau):
    """Whatever the losses: at a threshold from the floor on, the same calls are kept with the same gains."""
    documents = [a_document(f"text {i} is here") for i in range(len(told))]
    by_text = dict(zip([d.text for d in documents], told, strict=True))

    def answer(request):
        plain, call, response = by_text[request.text]
        return [{"": plain, " [F(1) -> ]": call, " [F(1) -> 1]": response}[request.prefix]]

    def kept(config):
        items = [(a_drawn(d, 0, "1"), "1") for d in documents]
        scored = score(ScriptedLM(log_probs=answer), "F", {d.doc_id: d.text for d in documents}, items, config)
        survivors_, _ = survivors(scored, {"calculator": tau})
        return [(call.doc_id, call.gain, call.loss_call) for call in survivors_]

    assert kept(ScoreConfig()) == kept(ScoreConfig(floor=None))


def test_where_the_input_was_seen():
    seen = {"18 + 12 X 3": (True, False), "54": (False, True), "as SAID": (False, True)}
    seen |= dict.fromkeys(("no", ""), (False, False))
    lm, items = ScriptedLM(log_probs=lambda request: [-1.0]), [(a_drawn(DOC, AT, input_, "mt"), "r") for input_ in seen]
    scored = score(lm, "MT", {DOC.doc_id: TEXT}, items, ScoreConfig())
    assert {one.input: (one.seen_before, one.seen_after) for one in scored} == seen


@given(st.lists(st.floats(-50, 0, width=32), max_size=8), st.floats(0.05, 1))
def test_a_loss_is_the_formula(told, decay):
    lm = ScriptedLM(log_probs=lambda request: told)
    (scored,) = score(lm, "F", {DOC.doc_id: TEXT}, [(a_drawn(DOC, AT, "1"), "1")], ScoreConfig(decay))
    raw = [max(0.0, 1 - decay * t) for t in range(200)]
    expected = -sum(w / math.fsum(raw) * p for w, p in zip(raw, told, strict=False))
    assert scored.loss_plain == pytest.approx(expected, abs=1e-9)
    assert scored.gain == 0
