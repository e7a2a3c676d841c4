"""A model behind a server against the same model here: what is told is equal, what is not lies below its bound."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import PROMPT, TEXTS, tiny_lm

from tests.support import plainly
from tests.support.fake_vllm import SERVED, FakeVllm, fake_vllm
from tests.support.plain_lm import PlainLM
from toolformer_core.errors import ModelError
from toolformer_core.lm.base import Draw, DrawRequest, Insertion, LanguageModel, ScoreRequest, tokens_passed
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.load import LoadedTokenizer
from toolformer_core.lm.remote.engine import RemoteLM, _bound
from toolformer_core.lm.remote.identity import RemoteModel, probe_of, tokenizer_for
from toolformer_core.lm.vllm_server import VllmServer

CLOSE = 1e-5
LONG = " ".join(f"In {1900 + i} there were {i} of them." for i in range(30))


def remote_of(server: FakeVllm, local: TransformersLM, logprobs: int = 20) -> RemoteLM:
    """The server's model, with the tokenizer of the model here."""
    hf_model, client = local.hf_model, VllmServer(server.url, SERVED)
    loaded = LoadedTokenizer(hf_model.tokenizer, hf_model.bos, hf_model.tokenizer.eos_token_id, "tokenizer")
    context = hf_model.context_length
    probe = probe_of(client, tokenizer_for(loaded, "m", context))
    model = RemoteModel(SERVED, SERVED, context, logprobs, "here", "tokenizer", probe)
    return RemoteLM(client, model, loaded, name="m")


@contextmanager
def remote(local: TransformersLM, logprobs: int = 20) -> Iterator[RemoteLM]:
    with fake_vllm(lm=local, max_logprobs=logprobs) as server:
        yield remote_of(server, local, logprobs)


Seen = dict[int, tuple[list[int], np.ndarray, np.ndarray]]


def scanned(lm: LanguageModel, texts: Sequence[str | Insertion]) -> Seen:
    """Per text: positions, log p(" ["), bounds."""
    out: Seen = {}
    for scan in lm.scan(PROMPT, texts):
        bounds = scan.bounds or scan.log_probs
        for text, positions, log_probs, bound in zip(scan.texts, scan.positions, scan.log_probs, bounds, strict=True):
            out[text] = positions.tolist(), log_probs, bound
    return dict(sorted(out.items()))


def assert_below_or_equal(seen: Seen, all_of_them: Seen, logprobs: int) -> None:
    """Positions are the same; what is seen is equal; what is not is no more likely than its bound."""
    assert seen.keys() == all_of_them.keys()
    for text, (positions, log_probs, bounds) in seen.items():
        there, real, _ = all_of_them[text]
        assert positions == there
        known = np.isfinite(log_probs)
        np.testing.assert_allclose(log_probs[known], real[known], atol=CLOSE)
        assert (bounds[known] == log_probs[known]).all()
        assert (real[~known] <= bounds[~known] + CLOSE).all()
        assert (bounds[~known] <= -math.log(logprobs + 1) + CLOSE).all()  # N + 1 tokens as likely fill the whole of 1


@pytest.mark.parametrize("merged_trigger", [True, False])
def test_with_all_the_vocabulary_a_scan_is_that_of_the_model_here(merged_trigger: bool) -> None:
    local = tiny_lm("gpt2", context=256, merged_trigger=merged_trigger)
    assert len(local.hf_model.trigger) == (1 if merged_trigger else 2)
    # the long one in several windows; with two tokens there is a request for each position
    texts = [*TEXTS[:3], LONG] if merged_trigger else [TEXTS[1], TEXTS[4]]
    with remote(local, local.hf_model.lm_head.size) as lm:
        seen, here = scanned(lm, texts), scanned(local, texts)
        read = tokens_passed(lm)
    assert all(np.isfinite(log_probs).all() for _, log_probs, _ in seen.values())
    assert_below_or_equal(seen, here, 0)
    assert read > sum(len(local.hf_model.encode(text)) for text in texts)


def test_behind_calls_it_is_the_same() -> None:
    local = tiny_lm("gpt2", context=256)
    calls = " [QA(Since when?) -> 1820]"
    texts = [Insertion(LONG, 200, calls), Insertion(LONG, 7, calls * 40), LONG[:50]]  # the second one is too long
    with remote(local, local.hf_model.lm_head.size) as lm:
        seen, here = scanned(lm, texts), scanned(local, texts)
    assert_below_or_equal(seen, here, 0)
    assert seen[0][0] == [200]
    assert 1 not in seen


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=2), st.sampled_from([1, 5, 20])
)
def test_with_a_few_tokens_told_what_is_seen_is_equal_and_the_rest_below_the_bound(texts: list[str], n: int) -> None:
    local = tiny_lm("gpt2")
    with remote(local, n) as lm:
        assert_below_or_equal(scanned(lm, [*texts, TEXTS[2]]), scanned(local, [*texts, TEXTS[2]]), n)


def test_a_bound_is_the_least_of_the_most_likely_and_never_above_what_is_left() -> None:
    told = {1: math.log(0.4), 2: math.log(0.2), 3: math.log(0.1)}
    assert _bound(told, 3) == math.log(0.1)  # 1 / (3 + 1) is more
    assert _bound({**told, 9: math.log(0.01)}, 3) == math.log(0.1)  # the text's own, likely or not
    even = dict.fromkeys(range(3), math.log(1 / 3))
    assert _bound(even, 3) == math.log(1 / 4)  # a fourth as likely as these would make 4/3
    assert _bound(told, 4) == -math.inf  # three tokens are all there are


def test_scores_are_those_of_the_model_here() -> None:
    local = tiny_lm("gpt2", context=256)
    prefixes = ["", " [QA(x) -> ]", " [QA(x) -> y]", " [QA(" + "why " * 300 + ") -> ]"]  # the last is too long
    requests = [ScoreRequest(z, text, at, 5) for text in (TEXTS[0], LONG) for at in (0, 20) for z in prefixes]
    with remote(local) as lm:
        for got, wanted in zip(lm.log_probs(requests), local.log_probs(requests), strict=True):
            np.testing.assert_allclose(got, wanted, atol=CLOSE)
        assert lm.log_probs([]) == []


def drawn(lm: LanguageModel, temperature: float, tokens: int = 8, begin: str = "") -> dict[DrawRequest, Draw]:
    """Draws with seeds that are below 0 as signed numbers."""
    return plainly.drawn(lm, TEXTS[:2], temperature, tokens, seed=2**64 - 999, begin=begin)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_samples_are_those_of_the_model_here(temperature: float) -> None:
    local = tiny_lm("gpt2")
    with remote(local) as lm:
        assert drawn(lm, temperature) == drawn(PlainLM(local.hf_model), temperature)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_given_beginning_and_the_token_behind_it_are_those_of_the_model_here(temperature: float) -> None:
    """The server goes on with the seed's first number, the model here with its second; so samples end before that."""
    local = tiny_lm("gpt2")
    room = len(local.hf_model.beginning("QA(").given) + 1
    with remote(local, local.hf_model.lm_head.size) as lm:
        got, wanted = (drawn(one, temperature, room, "QA(") for one in (lm, PlainLM(local.hf_model)))
    for request, draw in wanted.items():
        assert got[request][:2] == draw[:2]
        assert got[request].log_p_begin == pytest.approx(draw.log_p_begin, abs=CLOSE)
    with remote(local, 1) as lm:  # `(` alone is told, or what is likelier: less than all that would do
        less = drawn(lm, temperature, room, "QA(")
    assert all(draw.text.startswith("QA(") for draw in less.values())
    assert all((less[r].log_p_begin or 0) <= (wanted[r].log_p_begin or 0) + CLOSE for r in wanted)


def test_a_model_that_takes_the_place_of_another_is_found_out_before_a_result_is_given() -> None:
    local, other = tiny_lm("gpt2"), tiny_lm("gpt2")
    with torch.no_grad():
        other.hf_model.model.transformer.wte.weight.mul_(1.5)
    with fake_vllm(lm=local) as server:
        lm = remote_of(server, local)
        lm.verify()
        (scan,) = lm.scan(PROMPT, [TEXTS[0]])
        server.lm = other  # restarted, with another model under the same name
        says = r"another model under the name 'folder/served'.*differ by \d.*nothing of it is stored"
        with pytest.raises(ModelError, match=says):
            scan.draw([DrawRequest(0, 0, 1)], max_tokens=2, temperature=1.0)
        with pytest.raises(ModelError, match=says):
            next(iter(lm.scan(PROMPT, [TEXTS[0]])))
        with pytest.raises(ModelError, match=says):
            lm.log_probs([ScoreRequest("", TEXTS[0], 0, 5)])
