"""However a sequence is decoded (batched, cached, interrupted, streamed), it is what the plain computation gives."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from writers import FAMILIES, Double, Late, after, call_edges, writing_lm

from tests.fakes import FakeTool
from tests.tiny import TEXTS, plain_log_probs, sentencepiece, tiny_lm, tokenizer
from toolformer_core.decode.choice import choose
from toolformer_core.decode.records import CallFinished, CallStarted, Finished, GenerationSettings, TextDelta
from toolformer_core.decode.sequence import DecodeSequence, ModelInfo
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.tokens import encode_following
from toolformer_core.syntax import OPEN, parse, strip

CLOSE = 1e-4
# Two quite different ones: that every pass gives the numbers of a fresh one is tested of all, and `make test-slow` has
# the others.
SOME_FAMILIES = [f if f in ("gpt2", "mistral") else pytest.param(f, marks=pytest.mark.slow) for f in FAMILIES]
CALLS = GenerationSettings(max_new_tokens=20, top_k=120, max_calls=3, max_call_tokens=16)


def caller(family: str) -> TransformersLM:
    return writing_lm(family, tokenizer(), call_edges(tokenizer()))


def prompt_ids(lm: TransformersLM, text: str) -> list[int]:
    return [0, *lm.hf_model.encode(text)]


def plainly(
    lm: TransformersLM, prompt: str, s: GenerationSettings, tools: dict[str, FakeTool]
) -> tuple[list[int], int]:
    """Decode greedily without cache, batch or thread, every " [" a call; return the new tokens and how many calls."""
    start = prompt_ids(lm, prompt)
    ids, new, left, made = list(start), 0, s.max_calls, 0
    (trigger,) = lm.hf_model.trigger
    least = min(s.trigger.get(tool.key, 0.0) for tool in tools.values())
    while new < s.max_new_tokens:
        scores = plain_log_probs(lm, ids)[-1]
        p = float(scores[trigger].exp())
        if left and int((scores > scores[trigger]).sum()) < s.top_k and p >= least:
            named = int(plain_log_probs(lm, [*ids, trigger])[-1].argmax())
            if p >= s.trigger.get(tools[lm.hf_model.tokenizer.decode([named])].key, 0.0):
                left -= 1
                called = plain_call(lm, [*ids, trigger], s, tools)
                if called is not None:
                    ids, made = called, made + 1
                    continue
        scores[trigger] = -torch.inf
        token = int(scores.argmax())
        if token == 0:
            break
        ids.append(token)
        new += 1
    return ids[len(start) :], made


def plain_call(
    lm: TransformersLM, ids: list[int], s: GenerationSettings, tools: dict[str, FakeTool]
) -> list[int] | None:
    opened = len(ids)
    for _ in range(s.max_call_tokens):
        ids = [*ids, int(plain_log_probs(lm, ids)[-1].argmax())]
        body = lm.hf_model.tokenizer.decode(ids[opened:])
        if body.endswith(") ->"):
            call, _ = parse(body)
            response = tools[call.tool].run(call.input).text  # type: ignore[union-attr]
            return ids + encode_following(lm.hf_model.tokenizer, f" {response}]")
    return None


@pytest.mark.parametrize("family", SOME_FAMILIES)
def test_calls_in_a_batch_are_the_plain_computation(family: str) -> None:
    lm = caller(family)
    tools = [Double(), Late()]
    free = Toolformer(lm, tools).generate(TEXTS, CALLS)
    made = fewer = 0
    # p(" [") is .001 to .04 where calls are made
    for trigger in ({}, {"double": 0.003, "late": 0.006}, {"late": 0.004}):
        settings = replace(CALLS, trigger=trigger)
        for text, g, without in zip(TEXTS, Toolformer(lm, tools).generate(TEXTS, settings), free, strict=True):
            ids, calls = plainly(lm, text, settings, {t.name: t for t in tools})
            assert (list(g.ids), len(g.calls)) == (ids, calls)
            made += calls
            fewer += g.ids != without.ids
    assert made >= 8  # or this test would show little
    assert fewer >= 3


@pytest.mark.parametrize("family", SOME_FAMILIES)
@pytest.mark.parametrize("how", [{}, {"temperature": 1.2, "top_p": 0.7}, {"trigger": {"double": 0.001, "late": 0.002}}])
def test_a_batch_is_its_sequences_one_by_one(family: str, how: dict[str, Any]) -> None:
    lm = caller(family)
    each = [
        GenerationSettings(max_new_tokens=12 + 5 * i, top_k=120, max_calls=2, seed=i, **how) for i in range(len(TEXTS))
    ]
    together = Toolformer(lm, [Double(), Late()], tool_workers=2).generate(TEXTS, each)
    crowded = Toolformer(lm, [Double(), Late()], max_rows=2).generate(TEXTS, each)
    alone = [Toolformer(lm, [Double(), Late()]).generate([t], s)[0] for t, s in zip(TEXTS, each, strict=True)]
    for a, b, c in zip(together, crowded, alone, strict=True):
        assert a.ids == b.ids == c.ids
        assert a.text == b.text == c.text
    assert sum(len(g.calls) for g in alone) >= 3


def test_draws_from_the_smallest_set_that_is_likely_enough() -> None:
    vocabulary = ModelInfo(tokenizer(), (5,), frozenset(), 512, {})
    p = torch.tensor([0.2, 0.5, 0.0, 0.3])

    def drawn(seed: int, **how: float) -> int:
        row = DecodeSequence(vocabulary, [1], GenerationSettings(top_k=0, seed=seed, **how), lambda event: None, 0)
        ((own, *_),) = choose(torch.cat([p.log(), torch.full((2,), -torch.inf)])[None], [row])
        return own

    def share(token: int, **how: float) -> float:
        return sum(drawn(seed, **how) == token for seed in range(1000)) / 1000

    # .5 is less than .7, .5 + .3 is not: the third is left out, and the first has .5 / .8 = .625
    assert {drawn(seed, temperature=1.0, top_p=0.7) for seed in range(200)} == {1, 3}
    assert share(1, temperature=1.0, top_p=0.7) == pytest.approx(0.625, abs=0.05)
    assert share(1, temperature=1.0) == pytest.approx(0.5, abs=0.05)
    # at half the temperature p becomes p^2: .25 / (.04 + .25 + .09) = .658
    assert share(1, temperature=0.5) == pytest.approx(0.658, abs=0.05)
    assert drawn(3, temperature=0.0) == 1


def plain_generate(lm: TransformersLM, text: str, n: int, **more: Any) -> list[int]:
    ids = torch.tensor([prompt_ids(lm, text)])
    out = lm.hf_model.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, do_sample=False, pad_token_id=0, **more
    )[0, ids.shape[1] :].tolist()
    return out[: out.index(0)] if 0 in out else out


@pytest.mark.parametrize("family", SOME_FAMILIES)
@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("k", [0, 1])
def test_k_of_one_is_greedy_and_k_of_zero_has_no_trigger(family: str, merged: bool, k: int) -> None:
    lm = tiny_lm(family, merged_trigger=merged)
    trigger = lm.hf_model.trigger
    assert len(trigger) == (1 if merged else 2)
    found = Toolformer(lm, [Double()]).generate(TEXTS, GenerationSettings(max_new_tokens=40, top_k=k))
    more = {} if k else {"bad_words_ids": [trigger]}
    assert [list(g.ids) for g in found] == [plain_generate(lm, t, 40, **more) for t in TEXTS]


def test_k_of_one_is_greedy_with_brackets_in_the_text() -> None:
    coded = tokenizer()
    (trigger,), x, (bang,) = after(coded, " ["), coded.convert_tokens_to_ids(["x"]), after(coded, "!")
    lm = writing_lm("llama", coded, [([bang], [trigger]), ([trigger], x), (x, [bang])])
    (g,) = Toolformer(lm, [Double()]).generate(["Well!"], GenerationSettings(max_new_tokens=17, top_k=1))
    assert list(g.ids) == plain_generate(lm, "Well!", 17)
    assert g.text == g.clean == " [x!" * 5 + " [x"  # 17 = 5 * 3 + 2 tokens
    assert (g.new_tokens, g.calls, g.taken_back) == (17, (), 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_pass_gives_the_numbers_of_a_fresh_one(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = caller(family)
    engine = Toolformer(lm, [Double(), Late()]).engine()
    passes: list[int] = []  # tokens fed to a row in each pass
    feed = engine._cache.feed

    def compared(rows: list[int], starts: list[int], tokens: list[list[int]]) -> torch.Tensor:
        hidden = feed(rows, starts, tokens)
        got = torch.log_softmax(lm.hf_model.logits(hidden), -1)
        for i, (cache_row, start, fed) in enumerate(zip(rows, starts, tokens, strict=True)):
            sequence = engine._running[cache_row].sequence
            assert sequence.ids[start : start + len(fed)] == fed
            wanted = plain_log_probs(lm, sequence.ids[: start + len(fed)])[-1]
            assert float((got[i] - wanted).abs().max()) < CLOSE
            passes.append(len(fed))
        return hidden

    monkeypatch.setattr(engine._cache, "feed", compared)
    handles = [engine.submit(text, CALLS) for text in TEXTS]
    while not all(h.done for h in handles):
        if not engine.step():
            engine.wait()
    prefills = [n for n in passes if n > 1]
    assert max(prefills) == max(len(prompt_ids(lm, text)) for text in TEXTS)
    assert len(prefills) >= len(TEXTS)  # and responses went through in one pass each
    assert sum(passes) < 1500


@pytest.mark.parametrize("coded", [tokenizer(), sentencepiece()], ids=["bytes", "pieces"])
@pytest.mark.parametrize("stop", [(), ("e", "an")])
def test_the_stream_adds_up(coded: Any, stop: tuple[str, ...]) -> None:
    lm = writing_lm("mistral", coded, call_edges(tokenizer()) if coded is tokenizer() else [])
    settings = GenerationSettings(max_new_tokens=30, top_k=120, max_calls=2, stop=stop, max_call_tokens=12)
    events = list(Toolformer(lm, [Double(), Late()]).stream(TEXTS, settings))
    for i in range(len(TEXTS)):
        mine = [e for e in events if e.index == i]
        *before, last = mine
        assert [isinstance(e, Finished) for e in mine].index(True) == len(before)
        g = last.generation
        assert "".join(e.text for e in before if isinstance(e, TextDelta)) == g.clean
        assert "".join(e.text for e in before if isinstance(e, TextDelta | CallStarted | CallFinished)) == g.text
        assert tuple(e.call for e in before if isinstance(e, CallFinished)) == g.calls
        assert strip(g.text, [(c.start, c.end) for c in g.calls]) == g.clean
        for call in g.calls:
            shown = g.text[call.start : call.end]
            assert shown.startswith(OPEN)
            assert shown.endswith(f"-> {call.response}]")
        assert not any(s in e.text for e in before if isinstance(e, TextDelta) for s in stop)
    if not stop and coded is tokenizer():
        assert any(isinstance(e, CallFinished) for e in events)


def test_a_row_never_leaves_the_models_context() -> None:
    lm = writing_lm("gpt2", tokenizer(), call_edges(tokenizer()), context=48)  # positions beyond 47 would raise
    settings = GenerationSettings(max_new_tokens=100, top_k=120, max_calls=9, max_call_tokens=20)
    texts = [text[:30] for text in TEXTS]
    for text, g in zip(texts, Toolformer(lm, [Double(), Late()]).generate(texts, settings), strict=True):
        assert g.finish in ("length", "stop")
        assert len(prompt_ids(lm, text)) + len(g.ids) <= 48
