"""Several wordings of a prompt in one sampling: which positions are chosen, who draws there how often, by what seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_document, a_prompt, a_verdict
from tests.support.scripted_lm import ScriptedLM
from toolformer_core.annotate.sample import SampledDocument, draw_seeds, sample, scans_of, shared_draws
from toolformer_core.annotate.score import score
from toolformer_core.config import SampleConfig, ScoreConfig
from toolformer_core.errors import UsageError
from toolformer_core.lm.base import Draw, DrawRequest, Scan, ScanWrapper
from toolformer_core.records import PrefilterResult, Prompt

TEXT = "I went in 1994 and left in 2011"
#       0 1     6  9     14   18    23  26
DOCUMENT = a_document(TEXT)
Asked = list[tuple[int, int, int]]  # wording, position, seed


class Recorded(ScanWrapper[Scan]):
    """A scan whose requests are written down."""

    def __init__(self, inner: Scan, wording: int, asked: Asked) -> None:
        super().__init__(inner)
        self.wording, self.asked = wording, asked

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        self.asked += [(self.wording, one.position, one.seed) for one in requests]
        return self.inner.draw(requests, max_tokens=max_tokens, temperature=temperature, name=name, begin=begin)


class ByWording:
    """A model that answers each wording of a prompt by a script of its own; wording 1 draws 1, wording 2 draws 2."""

    name = digest = "by wording"

    def __init__(self, places: dict[int, dict[int, float]], text: str = TEXT) -> None:
        self.asked: Asked = []
        self.scans: list[tuple[int, list[str]]] = []
        everywhere = {p for at in places.values() for p in at}
        self.lms = {
            wording: ScriptedLM(
                {("calculator", text): at},
                {("calculator", text, p): [f"Calculator({wording})]"] * 9 for p in everywhere},
            )
            for wording, at in places.items()
        }

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        self.scans.append((prompt.wording, list(texts)))
        for scan in self.lms[prompt.wording].scan(prompt, texts):
            yield Recorded(scan, prompt.wording, self.asked)


def drawn(
    lm: ByWording, wordings: Sequence[int], verdict: PrefilterResult | None = None, **config: object
) -> SampledDocument:
    prompts = [replace(a_prompt(), wording=number) for number in wordings]
    settings = SampleConfig(**{"tau_s": 0.0, "top_k": 20, "draws": len(wordings)} | config)  # type: ignore[arg-type]
    (got,) = sample(lm, prompts, "Calculator", [(DOCUMENT, verdict or a_verdict(DOCUMENT))], settings)  # type: ignore[arg-type]
    return got


def test_the_k_best_are_those_of_the_union_by_the_wording_that_ranks_them_best() -> None:
    # best values: 26 by wording 2 (-0.5), 9 by wording 1 (-1), 1 by wording 1 (-2); of 9 wording 2 thinks less
    lm = ByWording({1: {1: -2.0, 9: -1.0}, 2: {9: -3.0, 26: -0.5}})
    got = drawn(lm, [1, 2], top_k=2)
    assert [(c.position, c.rank, c.log_p, c.wording, c.count) for c in got.calls] == [
        (9, 1, -1.0, 1, 1),
        (9, 1, -1.0, 2, 1),
        (26, 0, -0.5, 1, 1),
        (26, 0, -0.5, 2, 1),
    ]


def test_tau_s_holds_for_each_wordings_own_probability() -> None:
    low, high = math.log(0.04), math.log(0.06)
    lm = ByWording({1: {1: low, 9: low}, 2: {1: low, 9: high}})
    assert {c.position for c in drawn(lm, [1, 2], tau_s=0.05).calls} == {9}  # not 1: the two are not added


def test_the_draws_of_a_position_are_shared_out() -> None:
    # m = 5 over two wordings: 3 and 2
    got = drawn(ByWording({1: {9: -1.0}, 2: {9: -1.0}}), [1, 2], draws=5)
    assert [(c.wording, c.input, c.count) for c in got.calls] == [(1, "1", 3), (2, "2", 2)]


@given(st.integers(1, 60), st.integers(1, 12))
def test_shares_add_up_and_differ_by_one_at_most(draws: int, wordings: int) -> None:
    if draws < wordings:
        with pytest.raises(UsageError, match="cannot be shared out"):
            shared_draws(draws, wordings)
        return
    shares = shared_draws(draws, wordings)
    assert (sum(shares), len(shares)) == (draws, wordings)
    assert shares == sorted(shares, reverse=True)
    assert shares[0] - shares[-1] in (0, 1)


def test_the_same_text_drawn_by_two_wordings_is_two_rows_and_one_scored_call() -> None:
    lm = ByWording({1: {9: -1.0}, 2: {9: -1.0}})
    lm.lms[2] = lm.lms[1]
    got = drawn(lm, [1, 2], draws=3)
    assert [(c.raw, c.wording, c.count) for c in got.calls] == [("Calculator(1)", 1, 2), ("Calculator(1)", 2, 1)]
    judge = ScriptedLM(log_probs=lambda request: [-1.0] * request.tokens)
    texts = {DOCUMENT.doc_id: TEXT}
    (scored,) = score(judge, "Calculator", texts, [(call, "1") for call in got.calls], ScoreConfig())
    assert scored.count == 3


def test_one_wording_draws_as_ever_and_names_none() -> None:
    lm = ByWording({1: {9: -1.0}, 3: {9: -1.0}})
    got = drawn(lm, [1], draws=2)
    assert [call.wording for call in got.calls] == [None]
    assert lm.scans == [(1, [TEXT])]  # once: the draws are made while the scan stands
    assert [seed for _, _, seed in lm.asked] == draw_seeds(0, DOCUMENT.doc_id, "calculator", 9, 2)
    assert [call.wording for call in drawn(lm, [3], draws=2).calls] == [None]


def test_a_wordings_draws_do_not_depend_on_who_shares_the_position() -> None:
    lm = ByWording({1: {9: -1.0}, 2: {9: -1.0}, 3: {9: -1.0}})
    seeds = {}
    for wordings in ([1, 2], [2, 3], [2]):
        lm.asked.clear()
        drawn(lm, wordings, draws=2 * len(wordings))
        for wording in wordings:
            found = [seed for number, _, seed in lm.asked if number == wording]
            assert seeds.setdefault(wording, found) == found
    assert len({seed for found in seeds.values() for seed in found}) == 6  # all others


@given(st.integers(2, 50), st.integers(1, 5), st.integers(0, 5))
def test_seeds_of_other_wordings_are_other_numbers(wording: int, first: int, more: int) -> None:
    own = draw_seeds(7, "d", "qa", 3, first + more, wording)
    assert draw_seeds(7, "d", "qa", 3, first, wording) == own[:first]
    assert not {*own} & {*draw_seeds(7, "d", "qa", 3, first + more)}
    assert not {*own} & {*draw_seeds(7, "d", "qa", 3, first + more, wording + 1)}


def test_each_wording_is_scanned_to_choose_and_again_to_draw() -> None:
    lm = ByWording({1: {9: -1.0}, 2: {9: -1.0}})
    drawn(lm, [1, 2])
    assert lm.scans == [(1, [TEXT]), (2, [TEXT]), (1, [TEXT]), (2, [TEXT])]
    assert len(lm.scans) == scans_of(2)
    assert scans_of(1) == 1
    lm = ByWording({1: {}, 2: {}})
    assert drawn(lm, [1, 2], tau_s=0.5).outcome == "no_position"
    assert len(lm.scans) == 2  # nothing is chosen, so nothing is scanned again


def test_only_the_spans_with_a_chosen_position_are_scanned_again() -> None:
    first, second = "went in 1994", " left in 2011"
    lm = ByWording({1: {}, 2: {}})
    for wording, at in ((1, {7: -1.0}), (2, {4: -2.0})):
        scans = {("calculator", first): at, ("calculator", second): {0: -5.0}}
        lm.lms[wording] = ScriptedLM(scans, {("calculator", first, p): ["Calculator(1)]"] * 9 for p in (4, 7)})
    got = drawn(lm, [1, 2], a_verdict(DOCUMENT, spans=((2, 14), (18, 31))), top_k=2)
    assert [(c.position, c.rank, c.wording) for c in got.calls] == [(6, 1, 1), (6, 1, 2), (9, 0, 1), (9, 0, 2)]
    assert lm.scans[2:] == [(1, [first]), (2, [first])]
