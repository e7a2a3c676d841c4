import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_document, a_prompt, a_verdict
from tests.support.scripted_lm import ScriptedLM
from toolformer_core.annotate.sample import draw_seeds, sample
from toolformer_core.config import SampleConfig
from toolformer_core.lm.base import Draw, DrawRequest, Scan, ScanWrapper
from toolformer_core.records import Prompt

TEXT = "I went in 1994 and left in 2011"
#       0 1     6  9     14   18    23  26
GOOD = "Calculator(2011 - 1994)]"


def run(lm, documents, **config):
    given_ = {"tau_s": 0.0, "top_k": 20, "samples": 1} | config
    pairs = [d if isinstance(d, tuple) else (d, a_verdict(d)) for d in documents]
    return sample(lm, a_prompt(), "Calculator", pairs, SampleConfig(**given_))


def scripted(places, samples=None, text=TEXT, kind=ScriptedLM):
    told = {("calculator", text, p): (samples or {}).get(p, [GOOD] * 9) for p in places}
    return kind({("calculator", text): places}, told)


def positions(sampled):
    return [c.position for c in sampled.calls]


@pytest.mark.parametrize(
    ("tau_s", "expected"), [(0.0, [1, 9, 26]), (0.04, [9, 26]), (0.05, [9, 26]), (0.2, [9]), (0.5, [])]
)
def test_positions_above_tau_s_are_kept(tau_s, expected):
    lm = scripted({1: math.log(0.01), 9: math.log(0.4), 26: math.log(0.06)})
    (got,) = run(lm, [a_document(TEXT)], tau_s=tau_s)
    assert positions(got) == expected
    assert got.outcome == ("sampled" if expected else "no_position")


def test_the_k_most_likely_are_kept_and_of_equals_the_smaller_position():
    lm = scripted({1: -2.0, 6: -3.0, 9: -1.0, 14: -2.0, 26: -2.0})
    (got,) = run(lm, [a_document(TEXT)], top_k=3)
    assert [(c.position, c.rank, c.log_p) for c in got.calls] == [(1, 1, -2.0), (9, 0, -1.0), (14, 2, -2.0)]


def test_a_place_with_nothing_behind_it_is_never_sampled():
    text = "one two  \n "
    (got,) = run(scripted({3: -1.0, 7: -0.1}, text=text), [a_document(text)])
    assert positions(got) == [3]


class CharactersLM:
    """Every character is a token, " [" is as likely before each as before the next, and every draw is the same."""

    texts, bounds = [0], None

    def scan(self, prompt, texts):
        self.positions = [np.arange(len(texts[0]))]
        self.log_probs = [np.full(len(texts[0]), -1.0, dtype=np.float32)]
        yield self

    def draw(self, requests, *, max_tokens, temperature, name="", begin=""):
        return [Draw("Calculator(12 * 82)", True) for _ in requests]


def test_places_inside_words_take_no_share_of_the_k():
    # "ab cd ef": 0, 2, 3, 5 and 6 are allowed; the four first of equals are 0, 2, 3 and 5, not 0 to 3
    (got,) = run(CharactersLM(), [a_document("ab cd ef")], top_k=4)
    assert [(c.position, c.rank) for c in got.calls] == [(0, 0), (2, 1), (3, 2), (5, 3)]


def test_a_tool_that_answers_with_numbers_may_be_tried_in_front_of_new_numbers_alone():
    text = "98 * 984 = $96,432 and B2, 98."  # 10: the blank in front of the third number; B2 is a word
    (got,) = run(CharactersLM(), [a_document(text)], numbers="new")
    assert positions(got) == [10]


def test_a_window_ends_behind_five_tokens_or_with_the_text_or_span():
    # tokens begin at 0, 1, 6, 9, 14, 18, 23, 26: the five from 1 on end at 23, and from 9 on there are just five
    (got,) = run(scripted({1: -1.0, 9: -2.0, 26: -3.0}), [a_document(TEXT)])
    assert [(c.position, c.window_end) for c in got.calls] == [(1, 23), (9, 31), (26, 31)]
    document = a_document(TEXT)
    (got,) = run(spans_lm(), [(document, a_verdict(document, spans=SPANS))])
    assert [(c.position, c.window_end) for c in got.calls] == [(6, 14), (9, 14), (18, 31), (26, 31)]


@pytest.mark.parametrize(
    ("drawn", "outcome", "input_"),
    [
        # a made-up response is ignored
        (["Calculator(1 + 1)]", "Calculator(1 + 1) -> 2] and on", 'Calculator("1 + 1")]'], "ok", "1 + 1"),
        (["Calculator()]"], "ok", ""),
        (["Calculator(a [b])]"], "ok", "a [b]"),
        (["Calculator(1 + 1)", "Calculator([1)]"], "unterminated", ""),
        (["QA(1 + 1)]", "calculator(1 + 1)]"], "wrong_tool", ""),
        (["1 + 1]", "]", "Calculator(a [b) -> c] d]"], "unparsable", ""),  # the last: closed behind the input
    ],
)
def test_what_becomes_of_a_draw(drawn, outcome, input_):
    (got,) = run(scripted({9: -1.0}, {9: drawn}), [a_document(TEXT)], samples=len(drawn))
    assert [(call.outcome, call.input, call.count) for call in got.calls] == [(outcome, input_, 1)] * len(drawn)
    assert got.outcome == ("sampled" if outcome == "ok" else "no_call")


def test_equal_samples_at_a_position_are_one_row_with_a_count():
    lm = scripted({9: -1.0, 26: -2.0}, {9: ["Calculator(1)]", "QA(1)]", "Calculator(1)]"]})
    (got,) = run(lm, [a_document(TEXT)], samples=3)
    wanted = [(9, "Calculator(1)", 2), (9, "QA(1)", 1), (26, "Calculator(2011 - 1994)", 3)]
    assert [(c.position, c.raw, c.count) for c in got.calls] == wanted


SPANS = ((2, 14), (18, 31))  # "went in 1994" and " left in 2011"


def spans_lm(**how):
    places = {
        ("calculator", "went in 1994"): {4: -3.0, 7: -1.0},
        ("calculator", " left in 2011"): {0: -2.0, 8: -1.5},
        ("calculator", TEXT): {9: -1.0},
    }
    samples = {(tool, text, p): [GOOD] * 9 for (tool, text), at in places.items() for p in at}
    return ScriptedLM(places, samples, **how)


def test_it_tells_how_many_documents_are_finished():
    whole, parts = a_document(TEXT, "u"), a_document(TEXT, "v")
    pairs = [(whole, a_verdict(whole)), (parts, a_verdict(parts, spans=SPANS))]
    told = []
    config = SampleConfig(tau_s=0.0, top_k=3, samples=1)
    sample(spans_lm(batch_size=1), a_prompt(), "Calculator", pairs, config, told.append)
    # three scans, of the first document and of the other's two spans, which are drawn from in a second round
    assert told == [1, 2]


@pytest.mark.parametrize("batch_size", [1, 2, 8])
@pytest.mark.parametrize("reverse", [False, True])
def test_spans_are_scanned_alone_and_mapped_back_whatever_the_batches(batch_size, reverse):
    whole, parts = a_document(TEXT, "u"), a_document(TEXT, "v")
    lm = spans_lm(batch_size=batch_size, reverse=reverse)
    pairs = [(whole, a_verdict(whole)), (parts, a_verdict(parts, spans=SPANS)), (parts, a_verdict(parts, spans=SPANS))]
    first, second, third = run(lm, pairs, top_k=3)
    assert (first.doc_id, positions(first)) == (whole.doc_id, [9])
    # of the document's four, the one at 2 + 4 is least likely; 2 + 7 = 9, 18 + 0 = 18, 18 + 8 = 26
    assert [(c.position, c.rank) for c in second.calls] == [(9, 0), (18, 2), (26, 1)]
    assert second == third


def test_no_documents_and_spans_of_nothing_ask_nothing():
    assert run(ScriptedLM(), []) == []
    document = a_document("a \n b")
    (got,) = run(ScriptedLM(), [(document, a_verdict(document, spans=((1, 4),)))])
    assert (got.outcome, got.calls) == ("no_position", ())


def test_seeds_are_of_the_place_and_the_draw_alone():
    asked = []

    class Watching(ScriptedLM):
        def _draw(self, scan, requests, *more):
            asked.extend((scan.text_by_index[r.text], r.position, r.seed) for r in requests)
            return super()._draw(scan, requests, *more)

    document = a_document(TEXT)
    lm = Watching({("calculator", TEXT): {9: -1.0}}, {("calculator", TEXT, 9): [GOOD] * 2})
    run(lm, [document], samples=2, seed=7)
    assert asked == [(TEXT, 9, s) for s in draw_seeds(7, document.doc_id, "calculator", 9, 2)]


@given(st.lists(st.tuples(st.integers(0, 5), st.text(), st.text(), st.integers(0, 99)), unique=True))
def test_seeds_are_64_bits_and_differ(places):
    seeds = [s for place in places for s in draw_seeds(*place, 3)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**64 for s in seeds)
    assert draw_seeds(0, "d", "qa", 4, 2) == draw_seeds(0, "d", "qa", 4, 7)[:2]


class RoundingLM(CharactersLM):
    """Tells of two samples at one place another rounding of the same log-probability."""

    def draw(self, requests, *, max_tokens, temperature, name="", begin=""):
        self.begin = begin
        return [Draw("Calculator(1)", True, -0.5 - 1e-9 * n) for n, _ in enumerate(requests)]


def test_a_forced_draw_is_given_the_name_and_tells_how_likely_it_was():
    lm = RoundingLM()
    (got,) = run(lm, [a_document("x")], samples=2, draw_form="forced")
    assert lm.begin == "Calculator("
    ((call),) = got.calls
    assert (call.raw, call.outcome, call.count, call.log_p_form) == ("Calculator(1)", "ok", 2, -0.5)
    lm = scripted({9: -1.0})
    assert [c.log_p_form for c in run(lm, [a_document(TEXT)], draw_form="forced")[0].calls] == [0.0]
    assert [c.log_p_form for c in run(lm, [a_document(TEXT)])[0].calls] == [None]


# TEXT has tokens at 0, 1, 6, 9, 14, 18, 23 and 26. Of three p(" [") is known, of the others what it is at most:
KNOWN = {1: math.log(0.01), 9: math.log(0.4), 26: math.log(0.06)}
AT_MOST = {0: 0.001, 6: 0.04, 14: 0.2, 18: 0.001, 23: 0.001}


class PartlySeen(ScanWrapper[Scan]):
    """A scan with bounds."""

    def __init__(self, inner: Scan) -> None:
        super().__init__(inner)
        self.bounds = [
            np.array([KNOWN.get(at, math.log(AT_MOST.get(at, 1))) for at in of_text.tolist()], dtype=np.float32)
            for of_text in inner.positions
        ]

    def draw(self, requests: Sequence[DrawRequest], **how) -> list[Draw]:
        return self.inner.draw(requests, **how)


class PartlySeeing(ScriptedLM):
    """A scripted model whose scans have bounds."""

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        return map(PartlySeen, super().scan(prompt, texts))


@pytest.mark.parametrize(
    ("tau_s", "tried", "unseen"),
    [
        (0.0, [1, 9, 26], 5),  # all that is not told
        (0.03, [9, 26], 2),  # 6 may have 0.04, and 14 0.2
        (0.05, [9, 26], 1),  # 14
        (0.2, [9], 0),  # 14 has at most that
    ],
)
def test_what_is_not_told_and_may_exceed_tau_s_is_counted(tau_s, tried, unseen):
    (got,) = run(scripted(KNOWN, kind=PartlySeeing), [a_document(TEXT)], tau_s=tau_s)
    assert (positions(got), got.positions, got.unseen) == (tried, 8, unseen)
    (all_told,) = run(scripted(KNOWN), [a_document(TEXT)], tau_s=tau_s)
    assert (all_told.positions, all_told.unseen) == (0, 0)


def test_a_position_where_no_call_may_stand_is_not_counted():
    text = TEXT + "  "
    document = a_document(text)
    lm = scripted({1: KNOWN[1], 9: KNOWN[9]}, text=text[:14], kind=PartlySeeing)
    (got,) = run(lm, [(document, a_verdict(document, spans=((0, 14),)))])
    assert (got.positions, got.unseen) == (4, 2)  # 0, 1, 6, 9, and of these 0 and 6
