"""The shape of a model, from its config.json: beside what transformers itself counts, and worked out by hand."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from flows.cost.shapes import KNOWN_SHAPES, ModelShape, config_of, shape_of
from toolformer_core.errors import ModelError, UsageError

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}


def test_a_llama_by_hand() -> None:
    # attention: q and o 2 x 64 x 64, k and v 2 x 64 x (2 heads of 16): 8,192 + 4,096; gated MLP 3 x 64 x 160 = 30,720
    # three layers: 3 x 43,008 = 129,024
    shape = shape_of(LLAMA)
    assert shape.matrix_parameters == 129_024
    assert shape.kv_width == 32
    # 2 x 129,024 and, of 10 tokens looked back at, 4 x 3 x 64 x 10 = 7,680; the output layer 2 x 64 x 100 = 12,800
    assert shape.flops_per_token(10, 0.0) == 258_048 + 7_680
    assert shape.flops_per_token(10) == 258_048 + 7_680 + 12_800
    assert shape.weight_bytes() == 2 * (129_024 + 6_400)
    assert shape.kv_bytes_per_token() == 2 * 2 * 3 * 32


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}
SMALL_GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300}
QWEN = {"intermediate_size": 160, "num_key_value_heads": 2, "tie_word_embeddings": True}


@pytest.mark.parametrize(
    "settings",
    [
        LLAMA,
        {"model_type": "gpt2", **SMALL_GPT, "n_positions": 32},
        {"model_type": "gptj", **SMALL_GPT, "rotary_dim": 8},
        {"model_type": "gpt_neox", **SMALL, "intermediate_size": 256},
        {"model_type": "opt", **SMALL, "ffn_dim": 256, "word_embed_proj_dim": 64, "max_position_embeddings": 32},
        {"model_type": "qwen2", **SMALL, **QWEN},
    ],
    ids=lambda settings: settings["model_type"],
)
def test_matrices_are_those_that_transformers_counts(settings: dict[str, object]) -> None:
    config = AutoConfig.for_model(**settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    tables = ("wte", "wpe", "lm_head", "embed_in", "embed_out", "embed_tokens", "embed_positions")
    named = [(name, p) for name, p in model.named_parameters() if p.dim() > 1]
    matrices = sum(p.numel() for name, p in named if not any(table in name for table in tables))
    assert shape_of({**config.to_dict(), **settings}).matrix_parameters == matrices


def test_the_papers_models_have_the_sizes_that_are_known_of_them() -> None:
    def parameters(name: str) -> int:
        shape = shape_of(config_of(name))
        return shape.matrix_parameters + 2 * shape.hidden * shape.vocabulary

    assert parameters("gpt-j-6b") == pytest.approx(6_050_882_784, rel=1e-3)
    assert parameters("huggyllama/llama-7b") == pytest.approx(6_738_415_616, rel=1e-3)
    assert config_of("EleutherAI/gpt-j-6B") is KNOWN_SHAPES["gpt-j-6b"]


def test_a_folder_needs_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    for name in (tmp_path, tmp_path / "config.json"):
        assert shape_of(config_of(str(name))) == shape_of(LLAMA)
    assert isinstance(shape_of(config_of("embedded")), ModelShape)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config.json of 'nosuch' here: give .* gpt-j-6b"):
        config_of("nosuch")
    for text in ("[1]", "{"):
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
        with pytest.raises(ModelError, match="cannot be read"):
            config_of(str(tmp_path))
    with pytest.raises(UsageError, match="no hidden_size or n_embd"):
        shape_of({"vocab_size": 10})
