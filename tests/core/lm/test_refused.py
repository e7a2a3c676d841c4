"""Models that a user might bring and that cannot be worked with: each is refused in a line that says how to mend it."""

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import PROMPT, TEXTS, tiny_lm, tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, GPT2ForSequenceClassification, LlamaForSequenceClassification

from tests.core.lm.test_families import GPT, LLAMA
from toolformer_core.errors import ModelError
from toolformer_core.lm.base import ScoreRequest
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.load import load_model

V = len(tokenizer())
ENDS = {"vocab_size": V, "bos_token_id": 0, "eos_token_id": 0}


def coded(**changes: Any) -> Any:
    """The tokenizer of the tiny models, a copy to be changed."""
    out = copy.deepcopy(tokenizer())
    for name, value in changes.items():
        setattr(out, name, value)
    return out


def lm_of(kind: str, tokens: Any = None, **fields: Any) -> TransformersLM:
    """A random model of a kind of configuration."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **fields, **ENDS)).eval().requires_grad_(False)
    return lm_with(model, coded() if tokens is None else tokens)


def lm_with(model: Any, tokens: Any) -> TransformersLM:
    return TransformersLM(model, tokens, name="given", digest="x")


def saved(folder: Path, model: Any, tokens: Any) -> Path:
    model.save_pretrained(folder)
    if tokens is not None:
        tokens.save_pretrained(folder)
    return folder


def refusal(folder: Path | str) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(str(folder), device="cpu")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_added_tokens_without_an_embedding_are_plain_text(caplog: pytest.LogCaptureFixture) -> None:
    """The very numbers of the tokenizer before anything was added, also of texts that hold what was."""
    tokens = coded()
    tokens.add_tokens(["<tool>", " [", "<b>"])
    lm, plain = lm_with(tiny_lm().hf_model.model, tokens), tiny_lm()
    assert "has no embedding for '<tool>', ' [', '<b>', which were added to its tokenizer only" in caplog.text
    texts = ["He said <tool> twice [1].", TEXTS[0]]
    asked = [ScoreRequest(prefix, text, 3, 5) for text in texts for prefix in ("", " [QA(<b>) -> <tool>]")]
    for got, wanted in zip(lm.log_probs(asked), plain.log_probs(asked), strict=True):
        assert got.tolist() == wanted.tolist()
    for one, other in zip(lm.scan(PROMPT, texts), plain.scan(PROMPT, texts), strict=True):
        assert [x.tolist() for x in one.log_probs] == [x.tolist() for x in other.log_probs]


def test_an_added_end_or_padding_token_without_an_embedding_is_none() -> None:
    tokens = coded()
    tokens.add_special_tokens({"pad_token": "<pad>", "eos_token": "<stop>"})
    hf_model = lm_with(tiny_lm().hf_model.model, tokens).hf_model
    assert (hf_model.tokenizer.pad_token_id, hf_model.tokenizer.eos_token_id) == (None, None)
    assert hf_model.end_ids == {0}  # the start token, which ends a text as well
    assert (tokens.pad_token_id, tokens.eos_token_id) == (V, V + 1)  # the user's own is as it was


def test_a_tokenizer_of_another_model() -> None:
    with pytest.raises(ModelError, match=r"no embedding for token 409 .*: its tokenizer has 410 tokens, the model 400"):
        lm_with(tiny_lm().hf_model.model, tokenizer(vocabulary=410))


def test_a_start_token_behind_the_embedding() -> None:
    tokens = coded()
    tokens.add_special_tokens({"bos_token": "<s>"})
    with pytest.raises(ModelError, match=rf"no embedding for token {V} \('<s>'\)"):
        lm_with(tiny_lm().hf_model.model, tokens)


def test_a_start_token_of_the_configuration_alone() -> None:
    """A tokenizer without bos and eos, and a config.json of another vocabulary: GPT-2's own ends at 50256."""
    model = tiny_lm("gpt2").hf_model.model
    model.config.bos_token_id = 50256
    with pytest.raises(ModelError, match=r"names token 50256 \(bos_token_id\); set"):
        lm_with(model, coded(bos_token=None, eos_token=None))


NO_CACHE = r"keeps no keys and values of what it read \(.*not supported"
BOTH_WAYS = r"reads in both directions.*a causal LM is needed"
OWN_POSITIONS = r"ignores the positions it is given .*not supported"  # samples of unequal length would go astray
DECODER = {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48}
CONVOLUTIONS = {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]}


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        ("mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}, NO_CACHE),
        ("lfm2", {**LLAMA, **CONVOLUTIONS}, NO_CACHE),
        ("bert", LLAMA, BOTH_WAYS),
        ("bert-generation", LLAMA, BOTH_WAYS),
        ("xlnet", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}, BOTH_WAYS),
        ("bart", DECODER, OWN_POSITIONS),
        ("trocr", DECODER, OWN_POSITIONS),
    ],
)
def test_a_model_that_is_no_causal_lm_with_a_cache_for_each_token(kind: str, fields: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        lm_of(kind, **fields)


@pytest.mark.parametrize("family", ["cohere", "gemma2", "granite"])
def test_a_model_that_changes_its_logits(family: str) -> None:
    with pytest.raises(ModelError, match="changes its logits"):
        tiny_lm(family)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_one_weight_that_is_no_number(tmp_path: Path, family: str, value: str) -> None:
    model = tiny_lm(family).hf_model.model
    name, weight = list(model.named_parameters())[-3]
    weight.view(-1)[3] = float(value)
    assert f"hold NaN or infinity ({name}): the checkpoint is damaged" in refusal(saved(tmp_path, model, coded()))


def test_a_tokenizer_or_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    told = refusal(saved(tmp_path / "no tokenizer", tiny_lm().hf_model.model, None))
    assert told.endswith("has no readable tokenizer; save it beside the model (tokenizer.save_pretrained)")
    folder = saved(tmp_path / "broken", tiny_lm().hf_model.model, coded())
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")
    assert "has no readable tokenizer (" in refusal(folder)
    (folder / "config.json").write_text('{"model_type": "nothing known"}', encoding="utf-8")
    assert "cannot be loaded as a causal LM" in refusal(folder)  # it is not the tokenizer's fault


def test_an_adapter_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    tiny_lm().hf_model.model.config.save_pretrained(tmp_path)
    assert "is a LoRA adapter, not a model: merge it (merge_and_unload)" in refusal(tmp_path)


def test_a_model_that_does_not_tell_its_context() -> None:
    bloom = {"hidden_size": 32, "n_layer": 2, "n_head": 4}
    with pytest.raises(ModelError, match=r"does not say how long its context is.*set tokenizer\.model_max_length"):
        lm_of("bloom", **bloom)
    assert lm_of("bloom", coded(model_max_length=300), **bloom).hf_model.context_length == 300
    assert lm_of("bloom", **bloom, seq_length=200).hf_model.context_length == 200
    assert lm_of("mpt", d_model=32, n_layers=2, n_heads=4, max_seq_len=400).hf_model.context_length == 400


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (64, r"64 tokens \(model_max_length of its tokenizer; the model's own is 512\), of which"),
        (128, "a context of 96 tokens, of which"),
    ],
)
def test_which_limit_it_is_that_leaves_no_room(limit: int, says: str) -> None:
    model = tiny_lm(context=512 if limit == 64 else 96).hf_model.model
    lm = lm_with(model, coded(model_max_length=limit))
    with pytest.raises(ModelError, match=says):
        list(lm.scan(PROMPT, TEXTS[:1]))


def test_a_report_is_shown_of_what_was_loaded_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier's head is left over in both; Llama's lacks an output layer besides, GPT-2's has it in its input."""
    monkeypatch.setattr(logging.getLogger("transformers"), "handlers", [caplog.handler])
    llama = AutoConfig.for_model("llama", **LLAMA, **ENDS, tie_word_embeddings=False, pad_token_id=0)
    assert "lacks 1 of its weights" in refusal(
        saved(tmp_path / "llama", LlamaForSequenceClassification(llama), coded())
    )
    assert "LOAD REPORT" not in caplog.text
    gpt2 = GPT2ForSequenceClassification(AutoConfig.for_model("gpt2", **GPT, **ENDS))
    load_model(str(saved(tmp_path / "gpt2", gpt2, coded())), device="cpu")
    assert "LOAD REPORT" in caplog.text
    assert "score.weight" in caplog.text
