"""Without a prompt a text stands alone behind the start token: the engine gives the plain computation's numbers."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import TEXTS, encode, plain_log_probs, tiny_lm

from tests.support.plainly import CLOSE, assert_alike, drawn, scanned
from toolformer_core.errors import ContextError
from toolformer_core.lm.base import Insertion
from toolformer_core.lm.hf.plain import PlainLM
from toolformer_core.lm.windowing import windows_of
from toolformer_core.records import Prompt

BARE = Prompt("calculator", "", "", bare=True)
LONG = " ".join(f"In {1900 + i} there were {i} of them." for i in range(60))
FIRST = " [QA(Since when?) -> 1820]"
SEVERAL = [text for text in TEXTS if len(text.split()) > 1]


@pytest.mark.parametrize("family", ["gpt2", "gptj", "mistral"])
def test_p_of_a_bracket_is_that_of_the_text_alone(family: str) -> None:
    lm = tiny_lm(family)
    text = LONG[:60]
    (scan,) = lm.scan(BARE, [text])
    table = plain_log_probs(lm, ids := [0, *encode(lm, text)])
    assert scan.positions[0].tolist()[0] > 0  # nothing but the start token stands in front of the first character
    cuts = np.cumsum([0] + [len(lm.hf_model.text([token])) for token in ids[1:]]).tolist()
    for position, log_p in zip(scan.positions[0].tolist(), scan.log_probs[0].tolist(), strict=True):
        assert abs(float(table[cuts.index(position), lm.hf_model.trigger[0]]) - log_p) < CLOSE


@pytest.mark.parametrize("family", ["gpt2", "gptj", "mistral"])
def test_scans_and_draws_equal_the_plain_computation(family: str) -> None:
    assert_alike(tiny_lm(family, context=256), [*SEVERAL, LONG], prompt=BARE)


def test_behind_calls_as_well() -> None:
    lm = tiny_lm("gpt2", context=256)
    plain = PlainLM(lm.hf_model)
    texts = [Insertion(LONG, 200, FIRST), Insertion(LONG, len(LONG), FIRST), Insertion(TEXTS[1], 0, FIRST)]
    assert scanned(lm, texts, BARE).keys() == {0, 1, 2}  # type: ignore[arg-type]
    assert drawn(lm, texts, 1.0, prompt=BARE) == drawn(plain, texts, 1.0, prompt=BARE)  # type: ignore[arg-type]


def test_a_long_text_has_windows_as_wide_as_the_context() -> None:
    lm = tiny_lm(context=256)
    (windows,) = windows_of(lm.hf_model, BARE, [LONG])
    width = 256 - 1 - len(lm.hf_model.trigger) - 64
    assert max(len(window.ids) for window in windows) == width
    positions = [position for window in windows for position in window.positions.tolist()]
    assert positions == sorted(set(positions))


def test_a_text_of_one_token_has_no_position() -> None:
    lm = tiny_lm()
    assert windows_of(lm.hf_model, BARE, ["x"]) == [[]]


def test_without_a_start_token_there_is_nothing_to_go_on_from() -> None:
    lm = tiny_lm("gpt2")
    lm.hf_model.bos = None
    with pytest.raises(ContextError, match="no start token"):
        list(lm.scan(BARE, SEVERAL))


def test_a_bare_text_is_another_prompt_than_an_empty_one() -> None:
    assert BARE.digest != Prompt("calculator", "", "").digest
