"""The engine answers what `PlainLM` answers, for every shape of model and every kind of batch."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import PROMPT, TEXTS, encode, plain_log_probs, tiny_lm
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.plain_lm import PlainLM
from tests.support.plainly import CLOSE, PREFIXES, asked_of, assert_alike, assert_scans_alike, drawn, scanned
from toolformer_core.errors import ModelError
from toolformer_core.lm.base import DrawRequest, Insertion, ScoreRequest
from toolformer_core.lm.hf import prefixes
from toolformer_core.lm.hf.memory import _available, _below_limit, free_bytes
from toolformer_core.lm.windowing import score_start, windows_of

FAMILIES = ["gpt2", "gptj", "gpt_neox", "llama", "qwen2", "mistral", "qwen2_mixed"]
LONG = " ".join(f"In {1900 + i} there were {i} of them." for i in range(30))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_shape_in_ragged_batches(family: str) -> None:
    """Texts of one token and of sixty together; a window of 24 tokens (Mistral, Qwen2) is shorter than the prompt.

    GPT-J's attention is its own, so its samples have a copy each of what they continue; all others share it.
    """
    lm = tiny_lm(family)
    assert_alike(lm, TEXTS)
    assert lm.hf_model.shares_prefixes is (family != "gptj")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_shape_with_a_text_longer_than_the_context(family: str) -> None:
    lm = tiny_lm(family, context=256)
    assert len(lm.hf_model.encode(LONG)) > 256
    assert len(windows_of(lm.hf_model, PROMPT, [LONG])[0]) > 2
    assert_alike(lm, [TEXTS[1], LONG], [*PREFIXES, " [QA(" + "why " * 50 + ") -> ]"])


@pytest.mark.parametrize(
    ("family", "budgets"),
    [("gpt2", {"token_budget": 1}), ("gpt2", {"cache_budget": 1}), ("mistral", {"token_budget": 300})],
)
def test_batches_change_nothing(family: str, budgets: dict[str, int]) -> None:
    assert_alike(tiny_lm(family, context=256, **budgets), [TEXTS[1], LONG])


def test_samples_of_two_documents_in_one_product_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(prefixes._TOGETHER, "cpu", 2)
    assert_alike(tiny_lm(), TEXTS[:3])


def test_a_model_whose_attention_cannot_be_shared() -> None:
    lm = tiny_lm("mistral")
    lm.hf_model.shares_prefixes = False
    assert_alike(lm, TEXTS[:3])


def test_a_trigger_of_two_tokens_and_no_cache_by_the_configuration() -> None:
    """MPT's says so by default, and any that was saved in training with gradient checkpointing."""
    lm = tiny_lm(merged_trigger=False)
    lm.hf_model.model.config.use_cache = False
    assert len(lm.hf_model.trigger) == 2
    assert_alike(lm, TEXTS[:2])


def test_without_a_first_token() -> None:
    lm = tiny_lm("gpt2")
    lm.hf_model.bos = None
    assert_alike(lm, TEXTS[:3])


@settings(max_examples=15)
@given(st.lists(st.text(min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=4))
def test_any_texts(texts: list[str]) -> None:
    assert_alike(tiny_lm("gpt2"), texts, PREFIXES[:2])


def test_each_window_holds_the_same_piece_of_the_text_twice() -> None:
    lm = tiny_lm(context=256)
    tail = lm.hf_model.encode(PROMPT.tail)
    (windows,) = windows_of(lm.hf_model, PROMPT, [LONG])
    head = len(lm.hf_model.head_ids(PROMPT))
    seen = []
    for w in windows:
        one, other = lm.hf_model.text(w.ids.tolist()).split(lm.hf_model.text(tail))
        assert one.strip() == other.strip()
        assert one.strip() in LONG
        assert head + len(w.ids) + len(lm.hf_model.trigger) + 64 <= 256  # and 64 tokens are left for a call
        seen += w.positions.tolist()
    assert seen == sorted(set(seen))


def test_whether_a_call_can_be_scored_does_not_depend_on_the_others() -> None:
    """Of a context of 128, 64 are for a window of the text; [bos] and a prefix may use what it leaves.

    Tokens 5 and 55 share the window from 0. With a prefix of 75 tokens the first takes 1 + 75 + 5 + 5 = 86, which fit,
    and the second 1 + 75 + 55 + 5 = 136, which do not.
    """
    lm = tiny_lm(context=128)
    text = "xy" * 40
    (scan,) = tiny_lm(context=4096).scan(PROMPT, [text])
    starts = [int(p) for p in scan.positions[0]]
    assert score_start(5, 5, 64) == score_start(55, 5, 64) == 0
    prefix = next(p for n in range(200) if len(lm.hf_model.encode(p := " [QA(" + "?" * n + "]")) == 75)
    both = [ScoreRequest(prefix, text, starts[at], 5) for at in (5, 55)]
    alone = [lm.log_probs([r])[0] for r in both]
    assert np.isfinite(alone[0]).all()
    assert np.isnan(alone[1]).all()
    for got, wanted in zip(lm.log_probs(both), alone, strict=True):
        np.testing.assert_allclose(got, wanted, atol=CLOSE)


def test_no_tensor_of_a_scan_grows_with_vocabulary_times_length() -> None:
    """20,000 words and about 300 tokens: their product is 6 million numbers, and a scan never holds a quarter of it."""
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple) else (out,):
                if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in held:
                    largest = max(largest, tensor.untyped_storage().nbytes() // tensor.element_size())
            return out

    lm = tiny_lm("gpt2", context=2048, vocabulary=20_000)
    held = {p.untyped_storage().data_ptr() for p in lm.hf_model.model.parameters()}
    lm.hf_model.head(PROMPT)
    with Watch():
        (scan,) = lm.scan(PROMPT, [LONG])
    assert len(scan.positions[0]) > 250
    assert 0 < largest < 20_000 * len(scan.positions[0]) / 4


def test_of_the_prompts_heads_only_the_last_is_kept_where_there_is_room_for_none() -> None:
    lm, other = tiny_lm("gpt2", cache_budget=1), replace(PROMPT, tool="other")
    for prompt in (PROMPT, other):
        list(lm.scan(prompt, TEXTS[:1]))
    assert list(lm.hf_model._heads) == [other.digest]


def test_a_scan_gives_its_memory_back_when_the_next_is_asked_for() -> None:
    scans = tiny_lm("gpt2", token_budget=1).scan(PROMPT, TEXTS[:2])
    first = next(scans)
    assert kept_bytes(first) > 0
    next(scans)
    assert kept_bytes(first) == 0


def kept_bytes(scan: Any) -> int:
    return sum(2 * keys.numel() * keys.element_size() for row in scan._rows for keys, _ in row.kv or ())


@pytest.mark.parametrize("times", [2, 4])
def test_what_a_long_text_takes_does_not_grow_with_its_length(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four passes of 300 tokens are kept at most: 1,200 tokens, each of 2 layers x 2 sides x 2 heads x 8 x 4 bytes.

    The cache budget of a gibibyte would hold the whole text's. Draws come from windows that were kept and from others.
    """
    text = " ".join([LONG] * times)
    lm = tiny_lm(context=256, token_budget=300, cache_budget=1 << 30)
    rows: list[int] = []
    usual = lm.hf_model.hidden

    def recorded(ids: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
        if ids.shape[1] > 1:  # a pass over windows, not a step of samples
            rows.append(ids.numel())
        return usual(ids, *more, **named)

    monkeypatch.setattr(lm.hf_model, "hidden", recorded)
    (scan,) = lm.scan(PROMPT, [text])
    assert len(scan._rows) > 4 * times
    assert 0 < kept_bytes(scan) <= 4 * 300 * 2 * 2 * 2 * 8 * 4
    assert any(row.kv is None for row in scan._rows)
    positions = scan.positions[0].tolist()
    asked = [DrawRequest(0, p, p) for p in positions[:: len(positions) // 12]]
    drawn_from = scan.draw(asked, max_tokens=8, temperature=1.0)
    assert max(rows) <= 300
    scan.release()
    assert scan.draw(asked, max_tokens=8, temperature=1.0) == drawn_from
    (plain,) = PlainLM(lm.hf_model).scan(PROMPT, [text])
    few = slice(None, None, 4 * times)
    assert plain.draw(asked[few], max_tokens=8, temperature=1.0) == drawn_from[few]


class TestBudget:
    def test_it_is_taken_from_the_memory_that_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two layers of 32, MLP 128, float32: a token takes 2 x 128 keys and values, 8 x 32 and 4 x 128 more: 4 KiB.

        A quarter of 4 MiB holds 256 of these; a quarter of 4 GiB more than are of use: 2^21 / 128 = 16,384.
        """
        for free, tokens, cache in ((4 << 20, 256, 1 << 20), (4 << 30, 16_384, 1 << 30), (1 << 10, 64, 1 << 20)):
            monkeypatch.setattr("toolformer_core.lm.hf.memory.free_bytes", lambda _, free=free: free)
            budget = tiny_lm("gpt2").hf_model.budget
            assert (budget.tokens, budget.cache) == (tokens, cache)

    def test_what_is_free(self, tmp_path: Path) -> None:
        """A container that may hold 1,000 bytes and holds 400 has 600 left."""
        assert 1 << 20 < free_bytes(torch.device("cpu")) < 1 << 50
        (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    7 kB\n", encoding="ascii")
        assert _available(tmp_path / "meminfo") == 7 * 1024
        assert _below_limit(tmp_path) is None
        (tmp_path / "memory.current").write_text("400\n", encoding="ascii")
        for limit, left in (("1000\n", 600), ("max\n", None)):
            (tmp_path / "memory.max").write_text(limit, encoding="ascii")
            assert _below_limit(tmp_path) == left

    def test_out_of_memory_halves_the_batch_and_says_so(self, caplog: pytest.LogCaptureFixture) -> None:
        lm = tiny_lm("gpt2", token_budget=4096)

        def scores() -> list[Any]:
            return [float(log_p) for one in lm.log_probs(asked_of(TEXTS)) for log_p in one]

        def scans() -> list[Any]:
            return [x for positions, log_probs in scanned(lm, TEXTS).values() for x in (*positions, *log_probs)]

        def samples() -> list[Any]:
            return [*drawn(lm, TEXTS, 1.0).values()]

        full = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
        for run, error in ((scores, torch.OutOfMemoryError("")), (scans, full), (samples, MemoryError())):
            wanted = run()
            before, usual, failed = lm.hf_model.budget.tokens, lm.hf_model.hidden, []

            def hidden(*a: Any, usual: Any = usual, error: Any = error, failed: Any = failed, **k: Any) -> torch.Tensor:
                if not failed and len(a[0]) > 1:
                    failed.append(len(a[0]))
                    raise error
                return usual(*a, **k)  # type: ignore[no-any-return]

            lm.hf_model.hidden = hidden  # type: ignore[method-assign]
            with caplog.at_level(logging.WARNING, logger="toolformer_core.lm.hf.memory"):
                caplog.clear()
                got = run()
            lm.hf_model.hidden = usual  # type: ignore[method-assign]
            assert failed
            assert lm.hf_model.budget.tokens == before // 2
            (said,) = caplog.messages
            assert said.startswith("out of memory with a batch of")
            assert f"holds at most {before // 2} tokens" in said
            assert got == (wanted if run is samples else pytest.approx(wanted, abs=CLOSE, nan_ok=True))

    def test_one_sequence_that_does_not_fit_is_an_error_a_user_can_mend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lm = tiny_lm("gpt2")
        for error, told, says in (
            (torch.OutOfMemoryError("CUDA"), ModelError, "memory with a single sequence; use a smaller"),
            (RuntimeError("shapes do not match"), RuntimeError, "shapes do not match"),  # another one
        ):
            monkeypatch.setattr(lm.hf_model, "hidden", lambda *_, error=error, **__: (_ for _ in ()).throw(error))
            with pytest.raises(told, match=says):
                lm.log_probs(asked_of(TEXTS))


FIRST = " [QA(Since when?) -> 1820]"
LONGER = " ".join([LONG, LONG])


@pytest.mark.parametrize("family", ["gpt2", "gptj", "mistral"])
def test_p_of_a_bracket_behind_a_call_is_that_of_the_sequence_written_out(family: str) -> None:
    lm = tiny_lm(family)
    text, at = LONGER[:60], LONGER.index(" there")
    (scan,) = lm.scan(PROMPT, [Insertion(text, at, FIRST)])
    assert [positions.tolist() for positions in scan.positions] == [[at]]
    head, tail = PROMPT.head.removesuffix(" "), PROMPT.tail
    ids = [0, *encode(lm, head), *encode(lm, " " + text), *encode(lm, tail), *encode(lm, " " + text[:at] + FIRST)]
    wanted = float(plain_log_probs(lm, ids)[-1, lm.hf_model.trigger[0]])
    assert abs(float(scan.log_probs[0][0]) - wanted) < CLOSE


@pytest.mark.parametrize("family", ["gpt2", "gptj", "mistral"])
def test_scans_and_samples_beside_plain_texts_equal_the_plain_computation(family: str) -> None:
    lm = tiny_lm(family, context=256)
    middle, end = LONGER.index(" there", len(LONGER) // 2), len(LONGER)
    longs = [Insertion(LONGER, middle, FIRST), Insertion(LONGER, middle, FIRST * 2), Insertion(LONGER, end, FIRST)]
    assert_scans_alike(lm, [TEXTS[1], Insertion(TEXTS[1], 0, FIRST), *longs])


def test_of_a_long_text_the_window_around_the_position_is_read_twice() -> None:
    lm = tiny_lm(context=256)
    at = LONGER.index(" there", len(LONGER) // 2)
    ((window,),) = windows_of(lm.hf_model, PROMPT, [Insertion(LONGER, at, FIRST)])
    first, second = lm.hf_model.text(window.ids.tolist()).split(lm.hf_model.text(lm.hf_model.encode(PROMPT.tail)))
    assert first.strip() in LONGER
    assert second.endswith(FIRST)
    assert first.strip().startswith(second.removesuffix(FIRST).strip())
    assert len(lm.hf_model.head_ids(PROMPT)) + len(window.ids) + len(lm.hf_model.trigger) + 64 <= 256
    assert window.positions.tolist() == [at]
    assert window.before.tolist() == [len(window.ids) - 1]


def test_calls_that_leave_no_room_are_in_no_scan() -> None:
    lm = tiny_lm(context=256)
    texts = [Insertion(LONGER, 7, FIRST * 20), TEXTS[1]]
    for model in (lm, PlainLM(lm.hf_model)):
        assert [index for scan in model.scan(PROMPT, texts) for index in scan.texts] == [1]
    (scan,) = lm.scan(PROMPT, texts)
    with pytest.raises(ValueError, match="no position"):
        scan.draw([DrawRequest(0, 7, 1)], max_tokens=3, temperature=1.0)
