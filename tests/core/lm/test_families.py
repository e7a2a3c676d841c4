"""Models of many families, each with attention, positions or experts of its own, against the definition (`PlainLM`)."""

from typing import Any

import pytest
import transformers
from tiny import TEXTS, random_lm, tokenizer

from tests.support.plainly import assert_alike

ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SIZES, "max_position_embeddings": 512}
GROUPED: dict[str, Any] = {**LLAMA, "num_key_value_heads": 2}
GPT: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
FAMILIES: dict[str, dict[str, Any]] = {
    "BioGpt": LLAMA,
    "Bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "seq_length": 512},
    "CodeGen": {**GPT, "rotary_dim": 4},
    "Cohere2": {**GROUPED, "logit_scale": 1.0, "sliding_window": 24},
    "DeepseekV3": {
        **LLAMA,
        **EXPERTS,
        **{"num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1},
        # keys and values through a bottleneck, keys longer than values
        **{"q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8},
    },
    "Falcon": {**LLAMA, "multi_query": False, "alibi": True},
    "GPTBigCode": GPT,
    "GPTNeo": {**LLAMA, "attention_types": [[["global", "local"], 1]], "window_size": 24},
    "Gemma": {**GROUPED, "head_dim": 8},
    "Gemma3Text": {**GROUPED, "head_dim": 8, "sliding_window": 24},
    "Glm": {**GROUPED, "head_dim": 8},
    "GptOss": {**GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 24},
    "Mixtral": {**GROUPED, "num_local_experts": 4},
    "Mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 512},
    "Nemotron": GROUPED,
    "OPT": {**LLAMA, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "Olmo2": GROUPED,
    "Phi": LLAMA,
    "Phi3": GROUPED,
    "Qwen2Moe": {**GROUPED, **EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 16},
    "Qwen3": {**GROUPED, "head_dim": 8},
    "SmolLM3": GROUPED,
    "StableLm": GROUPED,
    "Starcoder2": GROUPED,
    "XGLM": {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48, "max_position_embeddings": 512},
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_engine_equals_the_definition(family: str) -> None:
    made = getattr(transformers, f"{family}Config")(vocab_size=len(tokenizer()), **FAMILIES[family], **ENDS)
    assert_alike(random_lm(family, made, tokenizer()), TEXTS)
