"""The shape of a causal language model, from its config.json alone: FLOPs a token, bytes a token.

Two FLOPs for each weight and token (a product and a sum), and four for each layer, width and token looked back at.
Norms and biases, under a thousandth of it, are left out; an unknown family is taken for one without a gated MLP.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolformer_core.errors import ModelError, UsageError
from toolformer_core.lm.reference import ModelRef

_GATED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "olmo", "olmo2", "stablelm", "smollm3")

# Of the papers' models, whose files nobody needs to have for a plan; figures of their published configurations.
KNOWN_SHAPES: Mapping[str, Mapping[str, Any]] = {
    "gpt-j-6b": {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400},
    "llama-7b": {
        "model_type": "llama",
        "n_embd": 4096,
        "n_inner": 11008,
        "n_layer": 32,
        "n_head": 32,
        "vocab_size": 32000,
    },
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    layers: int
    hidden: int  # width of the residual stream
    vocabulary: int
    kv_width: int  # of keys, and of values: heads that keep some, times their width
    matrix_parameters: int  # those that each token is multiplied with, without embeddings and output layer

    def flops_per_token(self, looked_back: float, logits_share: float = 1.0) -> float:
        """FLOPs of a token's forward pass that attends to `looked_back` others; `logits_share` have an output layer."""
        output = 2.0 * self.hidden * self.vocabulary * logits_share
        return 2.0 * self.matrix_parameters + 4.0 * self.layers * self.hidden * looked_back + output

    def weight_bytes(self) -> float:
        """Bytes that one step of decoding reads, in bf16."""
        return 2.0 * (self.matrix_parameters + self.hidden * self.vocabulary)

    def kv_bytes_per_token(self) -> float:
        """Return the bytes of the keys and values of one token, in bf16."""
        return 4.0 * self.layers * self.kv_width


def config_of(model: str) -> Mapping[str, Any]:
    """Return the configuration of a model: `embedded`, a folder, a config.json, a cached hub name, or a known shape."""
    path, known = Path(model).expanduser(), model.lower().rpartition("/")[2]
    file = path if path.suffix == ".json" and path.is_file() else ModelRef.of(model).local_file("config.json")
    if file is None and known in KNOWN_SHAPES:
        return KNOWN_SHAPES[known]
    if file is None:
        raise ModelError(
            f"no config.json of {model!r} here: give a folder or a config.json, a hub name that is cached, or one "
            f"of {', '.join(KNOWN_SHAPES)}"
        )
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as exc:
        raise ModelError(f"{file} cannot be read ({exc}); give a model's config.json") from exc


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape that a configuration describes."""

    def figure(*names: str, default: int = 0) -> int:
        if found := next((config[name] for name in names if config.get(name)), default):
            return int(found)
        raise UsageError(f"the model's config.json has no {' or '.join(names)}")

    hidden = figure("hidden_size", "n_embd", "d_model")
    layers = figure("num_hidden_layers", "n_layer", "num_layers")
    heads = figure("num_attention_heads", "n_head", "num_heads", default=max(1, hidden // 64))
    kv_heads = figure("num_key_value_heads", default=heads)
    head_width = figure("head_dim", default=hidden // heads)
    inner = figure("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
    attention = 2 * hidden * heads * head_width + 2 * hidden * kv_heads * head_width
    gated = config.get("model_type") in _GATED
    return ModelShape(
        layers=layers,
        hidden=hidden,
        vocabulary=figure("vocab_size"),
        kv_width=kv_heads * head_width,
        matrix_parameters=layers * (attention + (3 if gated else 2) * hidden * inner),
    )
