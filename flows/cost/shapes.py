"""The shape of a causal language model, from its config.json alone: FLOPs a token, bytes a token.

Two FLOPs for each weight and token (a product and a sum), and four for each layer, width and token looked back at.
Norms and biases, under a thousandth of it, are left out; a family that is not known is taken for one without a gated
MLP. No weights are read, and neither torch nor transformers is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import ModelError, UsageError
from toolformer_core.lm.reference import ModelRef
from toolformer_core.prompts.load import load_prompt

_GATED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "olmo", "olmo2", "stablelm", "smollm3")

# Of the papers' models, whose files nobody needs to have for a plan; figures of their published configurations.
KNOWN_SHAPES: Mapping[str, Mapping[str, Any]] = {
    "gpt-j-6b": {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400},
    "llama-7b": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    },
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's shape."""

    layers: int
    hidden: int  # width of the residual stream
    vocabulary: int
    kv_width: int  # of keys, and of values: heads that keep some, times their width
    matrix_parameters: int  # those that each token is multiplied with, without embeddings and output layer

    def flops_per_token(self, looked_back: float, logits_share: float = 1.0) -> float:
        """Return the FLOPs of a token's forward pass, on average over some tokens.

        Args:
            looked_back: tokens that one of them attends to.
            logits_share: of them, for which the output layer is computed.
        """
        output = 2.0 * self.hidden * self.vocabulary * logits_share
        return 2.0 * self.matrix_parameters + 4.0 * self.layers * self.hidden * looked_back + output

    def weight_bytes(self) -> float:
        """Return the bytes of the weights that one step of decoding reads, in bf16."""
        return 2.0 * (self.matrix_parameters + self.hidden * self.vocabulary)

    def kv_bytes_per_token(self) -> float:
        """Return the bytes of the keys and values of one token, in bf16."""
        return 4.0 * self.layers * self.kv_width


def config_of(model: str) -> Mapping[str, Any]:
    """Return a model's configuration.

    Args:
        model: `embedded`, a folder with a config.json, such a file, a name in the hub's cache, or of `KNOWN_SHAPES`.

    Raises:
        ModelError: there is no configuration, or it cannot be read.
    """
    path, known = _file(model, "config.json"), model.lower().rpartition("/")[2]
    if path is None and known in KNOWN_SHAPES:
        return KNOWN_SHAPES[known]
    if path is None:
        raise ModelError(
            f"no config.json of {model!r} here: give a folder or a config.json, a hub name that is cached, or one "
            f"of {', '.join(KNOWN_SHAPES)}"
        )
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ModelError(f"{path} cannot be read ({exc}); give a model's config.json") from exc
    if not isinstance(value, dict):
        raise ModelError(f"{path} is no JSON object; give a model's config.json")
    return value


def _file(model: str, name: str) -> Path | None:
    """Return a file of a model that is on this machine; of a config.json, one beside it."""
    path = Path(model).expanduser()
    if path.suffix == ".json" and path.is_file():
        return file if (file := path if name == "config.json" else path.with_name(name)).is_file() else None
    return ModelRef.of(model).local_file(name)


@lru_cache(maxsize=16)
def characters_a_token(model: str) -> float | None:
    """Return the characters of a model's token, on the shipped prompts of the tools; None without a tokenizer.json."""
    file = _file(model, "tokenizer.json")
    if file is None:
        return None
    from tokenizers import Tokenizer

    prompts = [load_prompt(tool) for tool in TOOL_NAMES]
    texts = [prompt.head + prompt.tail for prompt in prompts]
    tokenizer = Tokenizer.from_file(str(file))
    return sum(map(len, texts)) / sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape that a configuration describes.

    Raises:
        UsageError: a figure is missing.
    """
    kind = str(config.get("model_type", ""))
    hidden = _figure(config, "hidden_size", "n_embd", "d_model")
    layers = _figure(config, "num_hidden_layers", "n_layer", "num_layers")
    vocabulary = _figure(config, "vocab_size")
    heads = _figure(config, "num_attention_heads", "n_head", "num_heads", default=max(1, hidden // 64))
    kv_heads = _figure(config, "num_key_value_heads", default=heads)
    head_width = _figure(config, "head_dim", default=hidden // heads)
    inner = _figure(config, "intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
    attention = 2 * hidden * heads * head_width + 2 * hidden * kv_heads * head_width
    return ModelShape(
        layers=layers,
        hidden=hidden,
        vocabulary=vocabulary,
        kv_width=kv_heads * head_width,
        matrix_parameters=layers * (attention + (3 if kind in _GATED else 2) * hidden * inner),
    )


def _figure(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    for name in names:
        if isinstance(value := config.get(name), int) and not isinstance(value, bool) and value > 0:
            return value
    if default is None:
        raise UsageError(f"the model's config.json has no {' or '.join(names)}")
    return default
