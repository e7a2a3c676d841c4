"""Behind calls that are inserted into a text: the engine answers what the plain computation answers."""

from __future__ import annotations

import pytest
from tiny import PROMPT, TEXTS, encode, plain_log_probs, tiny_lm

from tests.support.plain_lm import PlainLM
from tests.support.plainly import CLOSE, assert_scans_alike
from toolformer_core.lm.base import DrawRequest, Insertion
from toolformer_core.lm.windowing import windows_of

FIRST = " [QA(Since when?) -> 1820]"
LONG = " ".join(f"In {1900 + i} there were {i} of them." for i in range(60))


@pytest.mark.parametrize("family", ["gpt2", "gptj", "mistral"])
def test_p_of_a_bracket_behind_a_call_is_that_of_the_sequence_written_out(family: str) -> None:
    lm = tiny_lm(family)
    text, at = LONG[:60], LONG.index(" there")
    (scan,) = lm.scan(PROMPT, [Insertion(text, at, FIRST)])
    assert [positions.tolist() for positions in scan.positions] == [[at]]
    head, tail = PROMPT.head.removesuffix(" "), PROMPT.tail
    ids = [0, *encode(lm, head), *encode(lm, " " + text), *encode(lm, tail), *encode(lm, " " + text[:at] + FIRST)]
    wanted = float(plain_log_probs(lm, ids)[-1, lm.hf_model.trigger[0]])
    assert abs(float(scan.log_probs[0][0]) - wanted) < CLOSE


@pytest.mark.parametrize("family", ["gpt2", "gptj", "mistral"])
def test_scans_and_draws_beside_plain_texts_equal_the_plain_computation(family: str) -> None:
    lm = tiny_lm(family, context=256)
    middle, end = LONG.index(" there", len(LONG) // 2), len(LONG)
    longs = [Insertion(LONG, middle, FIRST), Insertion(LONG, middle, FIRST * 2), Insertion(LONG, end, FIRST)]
    assert_scans_alike(lm, [TEXTS[1], Insertion(TEXTS[1], 0, FIRST), *longs])


def test_of_a_long_text_the_window_around_the_position_is_read_twice() -> None:
    lm = tiny_lm(context=256)
    at = LONG.index(" there", len(LONG) // 2)
    ((window,),) = windows_of(lm.hf_model, PROMPT, [Insertion(LONG, at, FIRST)])
    first, second = lm.hf_model.text(window.ids.tolist()).split(lm.hf_model.text(lm.hf_model.encode(PROMPT.tail)))
    assert first.strip() in LONG
    assert second.endswith(FIRST)
    assert first.strip().startswith(second.removesuffix(FIRST).strip())
    assert len(lm.hf_model.head_ids(PROMPT)) + len(window.ids) + len(lm.hf_model.trigger) + 64 <= 256
    assert window.positions.tolist() == [at]
    assert window.before.tolist() == [len(window.ids) - 1]


def test_calls_that_leave_no_room_are_in_no_scan() -> None:
    lm = tiny_lm(context=256)
    texts = [Insertion(LONG, 7, FIRST * 20), TEXTS[1]]
    for model in (lm, PlainLM(lm.hf_model)):
        assert [index for scan in model.scan(PROMPT, texts) for index in scan.texts] == [1]
    (scan,) = lm.scan(PROMPT, texts)
    with pytest.raises(ValueError, match="no position"):
        scan.draw([DrawRequest(0, 7, 1)], max_tokens=3, temperature=1.0)
