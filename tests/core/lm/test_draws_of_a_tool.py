"""Draws that can no longer become a call of the wanted tool end at once; the others are what they were."""

from __future__ import annotations

import pytest
from tiny import TEXTS, tiny_lm

from tests.support.plain_lm import PlainLM
from tests.support.plainly import drawn
from toolformer_core.annotate.sample import sample
from toolformer_core.config import SampleConfig
from toolformer_core.lm.base import LanguageModel, Scan, ScanWrapper
from toolformer_core.lm.load import load_model
from toolformer_core.prompts.load import load_prompt
from toolformer_core.records import Document, DrawnCall, PrefilterResult
from toolformer_core.syntax import name_begun

SUMS = (
    "The shop sold 48 apples and 37 pears, which makes 85 fruits in all. Of 120 seats 45 are taken, so 75 are free.",
    "Each of the 12 boxes holds 24 pens, together 288 pens. The 288 pens weigh 1440 grams, so one weighs 5 grams.",
)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_hopeless_draw_is_cut_where_the_plain_computation_cuts_it(family: str) -> None:
    lm = tiny_lm(family)
    whole, cut = drawn(lm, TEXTS[:3], 1.0, 10), drawn(lm, TEXTS[:3], 1.0, 10, name="QA")
    assert cut == drawn(PlainLM(lm.hf_model), TEXTS[:3], 1.0, 10, name="QA")
    hopeless = [at for at, draw in cut.items() if draw != whole[at]]
    assert hopeless  # a random model writes no calls
    for at in hopeless:
        assert not cut[at].ended
        assert whole[at].text.startswith(cut[at].text.rstrip("\ufffd"))
        assert name_begun(cut[at].text.rstrip("\ufffd")) not in ("", "QA")


class _Unnamed(ScanWrapper[Scan]):
    """A scan that finishes every draw."""

    def draw(self, requests, *, max_tokens, temperature, name="", begin=""):  # type: ignore[no-untyped-def]
        return self.inner.draw(requests, max_tokens=max_tokens, temperature=temperature, begin=begin)


class FinishesEveryDraw:
    """The model, as if it knew no hopeless draws."""

    def __init__(self, lm: LanguageModel) -> None:
        self.inner = lm
        self.name, self.digest = lm.name, lm.digest
        self.log_probs = lm.log_probs

    def scan(self, prompt, texts):  # type: ignore[no-untyped-def]
        return (_Unnamed(scan) for scan in self.inner.scan(prompt, texts))


def test_the_calls_of_the_embedded_model_are_those_of_finished_draws() -> None:
    lm = load_model("embedded")
    documents = [Document(str(n), text, None, None, "c", n) for n, text in enumerate(SUMS)]
    pairs = [(d, PrefilterResult(d.doc_id, "calculator", True, "equation")) for d in documents]
    config = SampleConfig.for_tool("calculator", top_k=8, draws=4, temperature=1.5)  # hot: many a draw goes wrong

    def calls(model: LanguageModel) -> list[DrawnCall]:
        found = sample(model, load_prompt("calculator"), "Calculator", pairs, config)
        return [call for one in found for call in one.calls]

    whole = calls(FinishesEveryDraw(lm))
    before = lm.tokens  # the prompt has passed
    assert calls(FinishesEveryDraw(lm)) == whole
    between = lm.tokens
    quick = calls(lm)
    assert [call for call in quick if call.outcome == "ok"] == [call for call in whole if call.outcome == "ok"] != []
    assert sum(call.count for call in quick) == sum(call.count for call in whole) == 2 * 8 * 4
    assert lm.tokens - between < between - before
