"""Draws that are given their beginning: what the model draws behind it, how likely it was, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tiny import PROMPT, TEXTS, encode, plain_log_probs, sentencepiece, tiny_lm
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.support.fake_vllm import SERVED, fake_vllm
from toolformer_core.errors import ContextError, TokenizerError
from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.hf.plain import PlainLM
from toolformer_core.lm.hf.sampling import uniform
from toolformer_core.lm.tokens import encode_behind
from toolformer_core.lm.vllm import VllmLM, VllmServer
from toolformer_core.syntax import find_close

BEGIN = "WikiSearch("  # several tokens of every tokenizer here
CLOSE = 1e-4  # largest difference of log-probabilities allowed in float32
LONG = " ".join(f"In {1900 + i} there were {i} of them." for i in range(30))


def requests_of(scan: Any) -> list[DrawRequest]:
    """Three draws each at the first, a middle and the last position of every text."""
    return [
        DrawRequest(text, int(positions[at]), 77 * text + 7 * at + n)
        for text, positions in zip(scan.texts, scan.positions, strict=True)
        for at in sorted({0, len(positions) // 2, len(positions) - 1})
        for n in range(3)
    ]


def drawn(
    lm: LanguageModel, texts: Sequence[str], temperature: float, tokens: int = 16, **more: str
) -> dict[DrawRequest, Draw]:
    out: dict[DrawRequest, Draw] = {}
    for scan in lm.scan(PROMPT, texts):
        asked = requests_of(scan)
        got = scan.draw(asked, max_tokens=tokens, temperature=temperature, **({"begin": BEGIN} | more))  # type: ignore[arg-type]
        out.update(zip(asked, got, strict=True))
    return out


def assert_alike(ours: dict[DrawRequest, Draw], theirs: dict[DrawRequest, Draw]) -> None:
    assert ours.keys() == theirs.keys() != set()
    for request, draw in theirs.items():
        got = ours[request]
        assert (got.text, got.ended) == (draw.text, draw.ended)
        assert got.text.startswith(BEGIN)
        assert got.log_p_begin is not None
        assert draw.log_p_begin is not None
        assert abs(got.log_p_begin - draw.log_p_begin) < CLOSE


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("family", ["gpt2", "gptj", "llama", "mistral"])
def test_the_engine_draws_what_the_plain_computation_draws(family: str, temperature: float) -> None:
    """GPT-J's draws have a copy each of what they continue; all others share it."""
    lm = tiny_lm(family)
    assert_alike(drawn(lm, TEXTS, temperature), drawn(PlainLM(lm.hf_model), TEXTS, temperature))


@pytest.mark.parametrize("how", ["two tokens", "windows", "wanted"])
def test_the_same_of_other_triggers_windows_and_names(how: str) -> None:
    """A " [" of two tokens; windows whose keys and values are computed again; draws that end where they are no call."""
    lm = tiny_lm(merged_trigger=how != "two tokens", context=256, **({"cache_budget": 1} if how == "windows" else {}))
    texts, more = [TEXTS[1], LONG], {"name": "WikiSearch"} if how == "wanted" else {}
    assert_alike(drawn(lm, texts, 1.0, **more), drawn(PlainLM(lm.hf_model), texts, 1.0, **more))


def by_hand(lm: TransformersLM, ids: list[int], given: list[int], seed: int, max_tokens: int) -> Draw:
    """Return a draw by the definition: log p of one given token after another, then a draw from what follows them."""
    log_p = 0.0
    for token in given:
        log_p += float(plain_log_probs(lm, ids)[-1, token])
        ids = [*ids, token]
    written = list(given)
    for step in range(max_tokens - len(given)):  # the first drawn token uses the seed's first number
        edges = plain_log_probs(lm, ids)[-1].exp().double().cumsum(0)
        u = float(uniform(np.asarray([seed], dtype=np.uint64), step)[0]) * float(edges[-1])
        token = int(torch.searchsorted(edges, torch.tensor(u, dtype=torch.float64), right=True))
        if token == 0:
            break
        ids, written = [*ids, token], [*written, token]
        text = lm.hf_model.text(written)
        if (close := find_close(text)) is not None:
            return Draw(text[:close], True, log_p)
    return Draw(lm.hf_model.text(written), False, log_p)


def test_a_draw_follows_the_tokens_that_were_given() -> None:
    lm = tiny_lm()
    given = encode(lm, " [" + BEGIN)[1:]  # " [" is one token here, and nothing merges with it
    assert len(given) > 1
    (scan,) = lm.scan(PROMPT, [TEXTS[0]])
    lead = [0, *encode(lm, PROMPT.head.removesuffix(" ")), *encode(lm, " " + TEXTS[0]), *encode(lm, PROMPT.tail)]
    asked = [DrawRequest(0, 0, seed) for seed in range(6)]
    got = scan.draw(asked, max_tokens=len(given) + 5, temperature=1.0, begin=BEGIN)
    for request, draw in zip(asked, got, strict=True):
        wanted = by_hand(lm, [*lead, *lm.hf_model.trigger], given, request.seed, len(given) + 5)
        assert (draw.text, draw.ended) == (wanted.text, wanted.ended)
        assert draw.log_p_begin == pytest.approx(wanted.log_p_begin, abs=CLOSE)
    assert len({draw.text for draw in got}) > 1


def test_the_limit_counts_the_given_tokens() -> None:
    lm = tiny_lm()
    given = lm.hf_model.begin_ids(BEGIN)
    for model in (lm, PlainLM(lm.hf_model)):
        (scan,) = model.scan(PROMPT, [TEXTS[0]])
        for room, ids in ((-1, 0), (0, 0), (1, 1), (2, 2)):
            (draw,) = scan.draw([DrawRequest(0, 0, 3)], max_tokens=len(given) + room, temperature=1.0, begin=BEGIN)
            assert draw.log_p_begin is not None
            assert not draw.ended
            assert draw.text.startswith(BEGIN)
            assert len(lm.hf_model.encode(draw.text.removeprefix(BEGIN))) == ids


def test_a_free_draw_has_no_beginning() -> None:
    assert {draw.log_p_begin for draw in drawn(tiny_lm(), TEXTS[:2], 1.0, begin="").values()} == {None}


@pytest.mark.parametrize("family", ["llama", "gptj"])
def test_given_tokens_pass_through_the_model_once_a_position(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two positions of eight draws each: " [" and every given token pass in two rows, not in sixteen."""
    lm = tiny_lm(family)
    (scan,) = lm.scan(PROMPT, [TEXTS[0]])
    asked = [DrawRequest(0, int(scan.positions[0][at]), n) for at in (0, 5) for n in range(8)]
    scan.draw(asked[:1], max_tokens=2, temperature=1.0)  # what only the first draw costs: can prefixes be shared?
    rows: list[int] = []
    usual = lm.hf_model.hidden

    def recorded(ids: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
        rows.append(ids.numel())
        return usual(ids, *more, **named)

    monkeypatch.setattr(lm.hf_model, "hidden", recorded)
    given = lm.hf_model.begin_ids(BEGIN)
    scan.draw(asked, max_tokens=len(given) + 1, temperature=1.0, begin=BEGIN)
    assert rows == [2] * (1 + len(given))


def merging_tokenizer(before: str = "", *words: str) -> PreTrainedTokenizerFast:
    """A tokenizer that knows " [QA(" as one token, as well as " [".

    Args:
        before: put in front of every text, as older tokenizers of the Llama kind do.
        words: what it knows as a token besides.
    """
    bpe = Tokenizer(models.BPE())
    if before:
        bpe.normalizer = normalizers.Prepend(before)
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([" [QA(", *words] * 9 + [" ["] * 99, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<end>", eos_token="<end>")


def test_where_a_tokenizer_merges_across_the_bracket_the_name_is_written_by_itself() -> None:
    coded = merging_tokenizer()
    trigger, both = (coded(text, add_special_tokens=False)["input_ids"] for text in (" [", " [QA("))
    assert (len(trigger), len(both)) == (1, 1)
    given = encode_behind(coded, " [", "QA(")
    assert coded.decode(given) == "QA("
    assert coded.decode([*trigger, *given]) == " [QA("
    lm = tiny_lm(coded=coded)
    texts = TEXTS[:2]
    for request, draw in drawn(lm, texts, 1.0, begin="QA(").items():
        (plain,) = (d for r, d in drawn(PlainLM(lm.hf_model), texts, 1.0, begin="QA(").items() if r == request)
        assert (draw.text, draw.ended) == (plain.text, plain.ended)
        assert draw.text.startswith("QA(")


def test_a_tokenizer_that_puts_a_space_in_front_of_texts() -> None:
    lm = tiny_lm(coded=sentencepiece())
    given = lm.hf_model.begin_ids(BEGIN)
    assert [*lm.hf_model.trigger, *given] == encode(lm, "x [" + BEGIN)[len(encode(lm, "x")) :]
    assert_alike(drawn(lm, TEXTS[:2], 1.0), drawn(PlainLM(lm.hf_model), TEXTS[:2], 1.0))


def test_what_cannot_be_given_is_an_error_a_user_can_mend() -> None:
    with pytest.raises(TokenizerError, match=r"cannot write 'QA\(' behind ' \['"):
        tiny_lm(coded=merging_tokenizer(" ", "a [QA(", "aQA(")).hf_model.begin_ids("QA(")
    with pytest.raises(ContextError, match="tokens of 'llama', of 64 for a call"):
        drawn(tiny_lm(), TEXTS[:1], 1.0, begin="N" * 200 + "(")


@pytest.fixture
def served() -> Iterator[VllmLM]:
    with fake_vllm() as server:
        yield VllmLM(tiny_lm("gpt2"), VllmServer(server.url, SERVED, timeout_s=60), name="served", digest="served")


@pytest.mark.parametrize("tokens", [16, 3])
def test_a_server_draws_what_follows_and_the_beginnings_log_probability_is_computed_here(
    served: VllmLM, tokens: int
) -> None:
    """Of three tokens the name takes all, so the server is not asked."""
    assert len(served.hf_model.begin_ids(BEGIN)) >= 3
    texts = TEXTS[:2]
    assert_alike(drawn(served, texts, 1.0, tokens), drawn(PlainLM(served.hf_model), texts, 1.0, tokens))
