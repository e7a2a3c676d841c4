"""The engine's shortcuts give the plain computation's numbers: prompt cache, batches, forks, truncation."""

import numpy as np
import pytest
from tiny import PROMPT, TEXTS, encode, plain_log_probs, sentencepiece, tiny_lm

from tests.support.plainly import CLOSE, asked_of, scanned
from toolformer_core.errors import ContextError
from toolformer_core.lm.base import DrawRequest
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import Prompt

FAMILIES = ["llama", "gptj"]  # `test_plain.py` compares all families with `PlainLM`, which is held to this


def sequence(lm: TransformersLM, text: str, position: int) -> list[int]:
    """[bos] P(x) x_1:i-1, as tokens, for a text that fits into one window."""
    head = PROMPT.head.removesuffix(" ")
    whole = encode(lm, " " + text)
    ends = lm.hf_model.tokenizer(" " + text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    before = 0 if position == 0 else 1 + max(j for j, (_, end) in enumerate(ends) if end == position + 1)
    return [0, *encode(lm, head), *encode(lm, " " + text), *encode(lm, PROMPT.tail), *whole[:before]]


@pytest.mark.parametrize("family", FAMILIES)
def test_scan_equals_the_plain_computation(family: str) -> None:
    lm = tiny_lm(family)
    (trigger,) = encode(lm, " [")
    seen = scanned(lm, TEXTS)
    assert seen.keys() == set(range(len(TEXTS)))
    for index, (positions, log_probs) in seen.items():
        whole = sequence(lm, TEXTS[index], len(TEXTS[index]))
        table = plain_log_probs(lm, whole)  # row j: what follows token j, as the model is causal
        assert positions[0] == 0
        assert (np.diff(positions) > 0).all()
        for position, log_p in zip(positions, log_probs, strict=True):
            ids = sequence(lm, TEXTS[index], position)
            assert whole[: len(ids)] == ids
            assert abs(float(table[len(ids) - 1, trigger]) - log_p) < CLOSE


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_equal_the_plain_computation(family: str) -> None:
    lm = tiny_lm(family, token_budget=256)
    requests = asked_of(TEXTS)
    for request, got in zip(requests, lm.log_probs(requests), strict=True):
        ids = encode(lm, request.text)
        coded = lm.hf_model.tokenizer(request.text, add_special_tokens=False, return_offsets_mapping=True)
        ends = [0, *(end for _, end in coded["offset_mapping"])]  # in front of each token, and of the end
        starts = [start for start, _ in coded["offset_mapping"]]
        usable = (j for j in range(len(ids)) if ends[j] >= request.position and (not j or starts[j] >= ends[j]))
        first = next(usable, len(ids))
        lead = [0, *encode(lm, request.prefix)] if request.prefix else [0]
        table = plain_log_probs(lm, [*lead, *ids])
        wanted = [float(table[len(lead) + j - 1, ids[j]]) for j in range(first, min(first + 5, len(ids)))]
        assert len(got) == len(wanted)
        assert np.abs(got - np.asarray(wanted, dtype=np.float32)).max(initial=0) < CLOSE


@pytest.mark.parametrize("words", [5, 30])
def test_a_prompt_that_leaves_no_room_is_an_error_a_user_can_mend(words: int) -> None:
    lm = tiny_lm(context=64)
    with pytest.raises(ContextError, match="shorter prompt or a model with a longer context"):
        list(lm.scan(Prompt("qa", "word " * words, "\nOutput:"), ["x"]))


def test_nothing_to_do_is_nothing_done() -> None:
    lm = tiny_lm()
    assert lm.log_probs([]) == []
    assert list(lm.scan(PROMPT, [])) == []


def test_a_tokenizer_that_puts_a_space_in_front_of_texts() -> None:
    lm = tiny_lm(coded=sentencepiece())
    text = TEXTS[0]
    (scan,) = lm.scan(PROMPT, [text])
    whole = PROMPT.head + text + PROMPT.tail + " " + text  # in one piece: nothing is put in front of its parts
    ids = [0, *encode(lm, whole)]
    ids_before_draw = encode(lm, whole + " [")
    assert ids_before_draw[:-1] == ids[1:]
    table = plain_log_probs(lm, ids)
    ends = lm.hf_model.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    shift = len(whole) - len(text)
    for position, log_p in zip(scan.positions[0].tolist(), scan.log_probs[0].tolist(), strict=True):
        before = next(j for j, (_, end) in enumerate(ends) if end == (shift + position if position else shift - 1))
        assert abs(float(table[before + 1, ids_before_draw[-1]]) - log_p) < CLOSE


def test_a_draw_has_its_own_room_whoever_else_is_drawn() -> None:
    lm = tiny_lm(context=256)
    texts = ["Short.", TEXTS[0]]
    drawn = []
    for chosen in ([0], [0, 1]):
        (scan,) = lm.scan(PROMPT, [texts[i] for i in chosen])
        requests = [DrawRequest(i, 0, seed) for i in range(len(chosen)) for seed in range(8)]
        drawn.append(scan.draw(requests, max_tokens=200, temperature=1.0)[:8])
    assert drawn[0] == drawn[1]
