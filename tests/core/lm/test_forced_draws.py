"""Draws that are given their beginning, and samples that can no longer become a call of the wanted tool."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tiny import PROMPT, TEXTS, encode, plain_log_probs, sentencepiece, tiny_lm
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.support import plainly
from tests.support.fake_vllm import SERVED, fake_vllm
from tests.support.plain_lm import PlainLM
from tests.support.plainly import CLOSE
from toolformer_core.errors import ContextError, TokenizerError
from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel, uniform
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.tokens import encode_opened
from toolformer_core.lm.vllm import VllmLM
from toolformer_core.lm.vllm_server import VllmServer
from toolformer_core.syntax import name_begun

BEGIN = "WikiSearch("  # several tokens of every tokenizer here
LONG = " ".join(f"In {1900 + i} there were {i} of them." for i in range(30))


def drawn(lm: LanguageModel, texts: Sequence[str], temperature: float, **more: str) -> dict[DrawRequest, Draw]:
    return plainly.drawn(lm, texts, temperature, 16, each=3, **({"begin": BEGIN} | more))  # type: ignore[arg-type]


def assert_alike(ours: dict[DrawRequest, Draw], theirs: dict[DrawRequest, Draw], begin: str = BEGIN) -> None:
    assert ours.keys() == theirs.keys() != set()
    for request, draw in theirs.items():
        got = ours[request]
        assert got[:2] == draw[:2]
        assert got.text.startswith(begin)
        assert draw.log_p_begin is not None
        assert got.log_p_begin == pytest.approx(draw.log_p_begin, abs=CLOSE)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("family", ["gpt2", "gptj", "llama", "mistral"])
def test_the_engine_draws_what_the_plain_computation_draws(family: str, temperature: float) -> None:
    """GPT-J's samples have a copy each of what they continue; all others share it."""
    lm = tiny_lm(family)
    assert_alike(drawn(lm, TEXTS, temperature), drawn(PlainLM(lm.hf_model), TEXTS, temperature))


@pytest.mark.parametrize("how", ["two tokens", "windows", "wanted"])
def test_the_same_of_other_triggers_windows_and_names(how: str) -> None:
    """A " [" of two tokens; windows whose keys and values are computed anew; samples that end where no call is left."""
    lm = tiny_lm(merged_trigger=how != "two tokens", context=256, **({"cache_budget": 1} if how == "windows" else {}))
    more = {"name": "WikiSearch"} if how == "wanted" else {}
    ours, plain = (drawn(one, [TEXTS[1], LONG], 1.0, **more) for one in (lm, PlainLM(lm.hf_model)))
    assert_alike(ours, plain)


def test_the_limit_counts_the_given_tokens() -> None:
    lm = tiny_lm()
    given, allowed = lm.hf_model.beginning(BEGIN)
    name = lm.hf_model.text(given)
    assert allowed == [lm.hf_model.encode("(")[0]]
    for model in (lm, PlainLM(lm.hf_model)):
        (scan,) = model.scan(PROMPT, [TEXTS[0]])
        for room, ids in ((-1, 0), (0, 0), (1, 1), (2, 2)):
            (draw,) = scan.draw([DrawRequest(0, 0, 3)], max_tokens=len(given) + room, temperature=1.0, begin=BEGIN)
            assert draw.log_p_begin is not None
            assert not draw.ended
            assert draw.text.startswith(BEGIN if ids else name)
            assert len(lm.hf_model.encode(draw.text.removeprefix(name))) == ids


@pytest.mark.parametrize("family", ["llama", "gptj"])
def test_given_tokens_pass_through_the_model_once_a_position(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two positions of eight samples each: " [" and every given token pass in two rows, not in sixteen."""
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
    given = lm.hf_model.beginning(BEGIN).given
    scan.draw(asked, max_tokens=len(given) + 1, temperature=1.0, begin=BEGIN)
    assert rows == [2] * (1 + len(given))


def merging_tokenizer(before: str = "", *words: str) -> PreTrainedTokenizerFast:
    """A tokenizer that knows " [QA(", " [" and some words as tokens, and puts `before` in front of every text."""
    bpe = Tokenizer(models.BPE())
    if before:
        bpe.normalizer = normalizers.Prepend(before)
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options: dict[str, Any] = {"special_tokens": ["<end>"], "initial_alphabet": alphabet, "show_progress": False}
    bpe.train_from_iterator([" [QA(", *words] * 9 + [" ["] * 99, trainers.BpeTrainer(vocab_size=290, **options))
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<end>", eos_token="<end>")


def test_where_a_tokenizer_merges_across_the_bracket_the_name_is_written_by_itself() -> None:
    coded = merging_tokenizer()
    trigger, both = (coded(text, add_special_tokens=False)["input_ids"] for text in (" [", " [QA("))
    assert (len(trigger), len(both)) == (1, 1)
    given = encode_opened(coded, "QA(")
    assert coded.decode([*trigger, *given]) == " [QA("
    lm = tiny_lm(coded=coded)
    assert lm.hf_model.beginning("QA(").given == given[:-1]
    ours, plain = (drawn(one, TEXTS[:2], 1.0, begin="QA(") for one in (lm, PlainLM(lm.hf_model)))
    assert_alike(ours, plain, "QA(")


def test_a_tokenizer_that_puts_a_space_in_front_of_texts() -> None:
    lm = tiny_lm(coded=sentencepiece())
    given, allowed = lm.hf_model.beginning(BEGIN)
    (bracket,) = allowed  # not the byte 0x28, which with a wrong byte behind it is no bracket
    assert [*lm.hf_model.trigger, *given, bracket] == encode(lm, "x [" + BEGIN)[len(encode(lm, "x")) :]
    assert_alike(drawn(lm, TEXTS[:2], 1.0), drawn(PlainLM(lm.hf_model), TEXTS[:2], 1.0))


def test_what_cannot_be_given_is_an_error_a_user_can_mend() -> None:
    with pytest.raises(TokenizerError, match=r"cannot write 'QA\(' after ' \['"):
        tiny_lm(coded=merging_tokenizer(" ", "aQA(", "1QA(", "\nQA(")).hf_model.beginning("QA(")
    with pytest.raises(ContextError, match="tokens of 'llama', of 64 for a call"):
        drawn(tiny_lm(), TEXTS[:1], 1.0, begin="N" * 200 + "(")


CALENDAR = "Calendar("


def calendar_lm() -> TransformersLM:
    """A model whose tokenizer also knows "()]", "(x" and " (" as tokens."""
    return tiny_lm(coded=merging_tokenizer("", "()]", "(x", " ("))


def before_the_first_position(lm: TransformersLM) -> list[int]:
    """The tokens in front of a call at the beginning of the first text."""
    lead = [0, *encode(lm, PROMPT.head.removesuffix(" ")), *encode(lm, " " + TEXTS[0]), *encode(lm, PROMPT.tail)]
    return [*lead, *lm.hf_model.trigger]


def test_the_name_is_given_and_any_token_that_opens_its_bracket_may_follow() -> None:
    lm = calendar_lm()
    given, allowed = lm.hf_model.beginning(CALENDAR)
    assert lm.hf_model.text(given) == "Calendar"
    assert {lm.hf_model.text([t]) for t in allowed} == {"(", "()", "()]", "(x"}  # not " (": that is "Calendar ("
    tokens = range(1, len(lm.hf_model.tokenizer))
    assert allowed == [t for t in tokens if lm.hf_model.text([*given, t]).startswith(CALENDAR)]


def test_forced_samples_are_the_free_samples_that_begin_so() -> None:
    """All free samples of the name's tokens and one more are enumerated: filtered and normalised, they are the forced.

    p(forced t) = p(name, t) / sum over allowed t' of p(name, t'), and that sum is what log_p_begin tells. Which t a
    seed draws is where its first number, in [0, 1), falls among the cumulative p(forced t).
    """
    lm = calendar_lm()
    given, allowed = lm.hf_model.beginning(CALENDAR)
    (scan,) = lm.scan(PROMPT, [TEXTS[0]])
    ids = before_the_first_position(lm)
    table = plain_log_probs(lm, [*ids, *given]).double()
    log_p_name = sum(float(table[len(ids) - 1 + j, token]) for j, token in enumerate(given))
    free = {lm.hf_model.text([*given, t]): log_p_name + float(table[-1, t]) for t in range(table.shape[1])}
    filtered = {text: np.exp(log_p) for text, log_p in free.items() if text.startswith(CALENDAR)}
    assert len(filtered) == len(allowed) == 4
    total = sum(filtered.values())

    seeds = range(400)
    asked = [DrawRequest(0, 0, seed) for seed in seeds]
    got = scan.draw(asked, max_tokens=len(given) + 1, temperature=1.0, begin=CALENDAR)
    u = uniform(np.asarray(seeds, dtype=np.uint64), 0)
    edges = np.cumsum([filtered[lm.hf_model.text([*given, t])] for t in allowed]) / total
    texts = [lm.hf_model.text([*given, t]) for t in allowed]
    wanted = [texts[at] for at in np.searchsorted(edges, u, "right")]
    assert [draw.text + "]" * draw.ended for draw in got] == wanted
    assert len(set(wanted)) > 1
    for draw in got:
        assert draw.log_p_begin == pytest.approx(np.log(total), abs=CLOSE)


@pytest.mark.parametrize("room", [0, 1, 12])
def test_a_server_goes_on_behind_the_token_that_is_drawn_here(room: int) -> None:
    """A seed's first number draws the restricted token here; the server's draw behind it is one of its own.

    So at `room` 0 there is the name alone, at 1 the restricted token as well, and a call that this token closes
    (Calendar plus "()]") is not sent to the server.
    """
    with fake_vllm(lm=calendar_lm()) as server:
        served = VllmLM(server.lm, VllmServer(server.url, SERVED, timeout_s=60), name="served", digest="served")
        given = served.hf_model.beginning(CALENDAR).given
        (scan,) = served.scan(PROMPT, [TEXTS[0]])
        asked = [DrawRequest(0, 0, seed) for seed in range(12)]
        server.asked.clear()
        got = scan.draw(asked, max_tokens=len(given) + room, temperature=1.0, begin=CALENDAR)
        sent = list(server.asked)
    lm = served.hf_model
    (scan,) = PlainLM(lm).scan(PROMPT, [TEXTS[0]])
    local = scan.draw(asked, max_tokens=len(given) + min(room, 1), temperature=1.0, begin=CALENDAR)
    for draw, start in zip(got, local, strict=True):
        assert draw.text.startswith(start.text)
        assert draw.log_p_begin == pytest.approx(start.log_p_begin, abs=CLOSE)
        assert draw[:2] == start[:2] or not (start.ended or room < 2)
    left = [r.seed for r, start in zip(asked, local, strict=True) if not start.ended] if room > 1 else []
    assert {body["seed"] for body in sent} == set(left)
    for body in sent:
        assert body["prompt"][:-1] == [*before_the_first_position(served), *given]
        assert body["prompt"][-1] in lm.beginning(CALENDAR).allowed
        assert body["max_tokens"] == room - 1


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_hopeless_draw_is_cut_where_the_plain_computation_cuts_it(family: str) -> None:
    lm = tiny_lm(family)
    whole, cut = plainly.drawn(lm, TEXTS[:3], 1.0, 10), plainly.drawn(lm, TEXTS[:3], 1.0, 10, name="QA")
    assert cut == plainly.drawn(PlainLM(lm.hf_model), TEXTS[:3], 1.0, 10, name="QA")
    hopeless = [at for at, draw in cut.items() if draw != whole[at]]
    assert hopeless  # a random model writes no calls
    for at in hopeless:
        assert not cut[at].ended
        assert whole[at].text.startswith(cut[at].text.rstrip("\ufffd"))
        assert name_begun(cut[at].text.rstrip("\ufffd")) not in ("", "QA")
