"""A plain text's log-probabilities from each of its tokens on: those of the plain computation, in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import PROMPT, TEXTS, encode, sentencepiece, tiny_lm

from toolformer_core.annotate.losses import plain_losses, weights
from toolformer_core.lm.base import ScoreRequest
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.hf.plain import PlainLM

CLOSE = 1e-4  # largest difference of log-probabilities allowed in float32
LONG = " ".join(f"In {1900 + i} there were {i} of them." for i in range(30))


def assert_alike(lm: TransformersLM, texts: list[str]) -> None:
    """Engine, plain computation and `log_probs` of the engine agree on every token."""
    ours, theirs = lm.token_log_probs(texts, 5), PlainLM(lm.hf_model).token_log_probs(texts, 5)
    for text, (offsets, rows), (plain_offsets, plain_rows) in zip(texts, ours, theirs, strict=True):
        assert offsets.tolist() == plain_offsets.tolist()
        assert offsets[0] == 0
        assert (np.diff(offsets) > 0).all()
        np.testing.assert_allclose(rows, plain_rows, atol=CLOSE)
        scored = lm.log_probs([ScoreRequest("", text, offset, 5) for offset in offsets.tolist()])
        for row, log_probs in zip(rows, scored, strict=True):
            np.testing.assert_allclose(row, np.pad(log_probs, (0, 5 - len(log_probs))), atol=CLOSE)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gptj", "mistral"])
def test_every_token_of_ragged_texts(family: str) -> None:
    assert_alike(tiny_lm(family), [*TEXTS, TEXTS[0]])


@pytest.mark.parametrize("budget", [1, 300])
def test_a_text_longer_than_the_context(budget: int) -> None:
    lm = tiny_lm(context=128, token_budget=budget)
    assert len(encode(lm, LONG)) > 2 * 128
    assert_alike(lm, [TEXTS[1], LONG])


def test_without_a_first_token_only_the_first_row_has_an_unknown() -> None:
    lm = tiny_lm()
    lm.hf_model.bos = None
    assert_alike(lm, TEXTS[:1])
    ((_, rows),) = lm.token_log_probs(TEXTS[:1], 5)
    assert np.isnan(rows).tolist() == [[True] + 4 * [False], *[5 * [False]] * (len(rows) - 1)]


def test_a_text_passes_through_the_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two texts is one row of [bos] and its tokens; an equal text is no third one."""
    lm = tiny_lm()
    shapes: list[tuple[int, ...]] = []
    usual = lm.hf_model.hidden

    def recorded(ids: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
        shapes.append(tuple(ids.shape))
        return usual(ids, *more, **named)

    monkeypatch.setattr(lm.hf_model, "hidden", recorded)
    before = lm.tokens
    lm.token_log_probs([TEXTS[0], TEXTS[2], TEXTS[0]], 5)
    longest = 1 + max(len(encode(lm, text)) for text in (TEXTS[0], TEXTS[2]))
    assert shapes == [(2, longest)]
    assert lm.tokens - before == 2 * longest


@pytest.mark.parametrize("coded", ["bytes", "sentencepiece"])
def test_a_position_of_a_scan_has_the_loss_that_scoring_gives_it(coded: str) -> None:
    """A scan reads " x" behind a prompt, so its first tokens may be others than those of the plain text."""
    lm = tiny_lm(coded=sentencepiece() if coded == "sentencepiece" else None)
    found = plain_losses(lm, TEXTS)
    w, seen, elsewhere = weights(), 0, 0
    for scan in lm.scan(PROMPT, TEXTS):
        for text, positions in zip(scan.texts, scan.positions, strict=True):
            losses = found[text].at(positions)
            scored = lm.log_probs([ScoreRequest("", TEXTS[text], at, 5) for at in positions.tolist()])
            np.testing.assert_allclose(losses, [-(w[: len(one)] @ one) for one in scored], atol=CLOSE)
            elsewhere += int((~np.isin(positions, found[text].offsets)).sum())
            seen += len(positions)
    assert seen > 60
    assert elsewhere < seen / 4  # most positions are offsets of the plain text, too


@settings(max_examples=15)
@given(st.lists(st.text(min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=4))
def test_any_texts(texts: list[str]) -> None:
    assert_alike(tiny_lm("gpt2"), texts)


def test_no_texts() -> None:
    assert tiny_lm().token_log_probs([], 5) == []
