"""A GGUF file written here with a tiny Llama's weights is read as that model; other files are refused in one line."""

import json
from pathlib import Path

import pytest
import torch
from tiny import TEXTS, tiny_lm, tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from toolformer_core.errors import ModelError
from toolformer_core.lm import gguf
from toolformer_core.lm.load import load_model, model_folder

HEADS, WIDTH, LAYERS = 4, 32, 2


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    gguf._converted.cache_clear()


def _llama() -> LlamaForCausalLM:
    torch.manual_seed(3)
    config = tiny_lm(context=256).hf_model.model.config  # WIDTH, LAYERS and HEADS are those of the tiny models
    config.num_key_value_heads = HEADS
    return LlamaForCausalLM(config).eval()


def _interleaved(weights: torch.Tensor) -> torch.Tensor:
    """Return the rows of a query or key matrix as GGUF orders them: the two halves of a head take turns."""
    return weights.reshape(HEADS, 2, WIDTH // HEADS // 2, WIDTH).transpose(1, 2).reshape(weights.shape)


def _write(file: Path, model: LlamaForCausalLM) -> None:
    from gguf import GGUFWriter, TokenType

    writer = GGUFWriter(str(file), "llama")
    writer.add_context_length(model.config.max_position_embeddings)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(model.config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokenizer()))
    bpe = json.loads(tokenizer().backend_tokenizer.to_str())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL, *[TokenType.NORMAL] * (len(tokens) - 1)])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    names = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for name, weights in model.state_dict().items():
        layer, _, part = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
        in_layer = name.startswith("model.layers.")
        theirs = f"blk.{layer}.{names[part]}" if in_layer else names[name.removesuffix(".weight")]
        if part in ("self_attn.q_proj", "self_attn.k_proj"):
            weights = _interleaved(weights)
        writer.add_tensor(f"{theirs}.weight", weights.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_is_the_model_that_was_written_into_it(tmp_path: Path) -> None:
    llama, file = _llama(), tmp_path / "tiny.gguf"
    _write(file, llama)
    folder = model_folder(str(file))
    read, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        ids = words(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        assert words.decode(ids[0]) == text
        torch.testing.assert_close(read(ids).logits, llama(ids).logits, atol=1e-5, rtol=1e-5)
    made = (folder / "model.safetensors").stat().st_mtime_ns
    gguf._converted.cache_clear()  # as in another process
    assert model_folder(str(file)) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made, "the folder is found, not made again"
    assert load_model(str(file), device="cpu").name == str(file)
    read.save_pretrained(tmp_path / "again")  # transformers refuses this of a model that it read from GGUF itself


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_a_missing_package_is_named_with_the_extra_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(gguf, "is_installed", lambda name: name != package)
    with pytest.raises(ModelError, match=rf"needs the package {package}: .*\[gguf\]"):
        model_folder(str(file))


def test_what_is_no_gguf_file_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    _write(tmp_path / "whole.gguf", _llama())
    broken = (tmp_path / "whole.gguf").read_bytes()[:2_000]
    for content, says in ((b"<html>not found</html>", "is no GGUF file"), (broken, "cannot be read as a causal LM")):
        file.write_bytes(content)
        with pytest.raises(ModelError, match=says):
            model_folder(str(file))
    assert not list((tmp_path / "cache" / "gguf").iterdir())
