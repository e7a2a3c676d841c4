"""Greedy writing with an encoder-decoder model, many inputs at a time. It knows no prompts and no languages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolformer_core.tools.hf.batches import padded
from toolformer_core.tools.hf.checkpoint import Loaded


def write_greedily(
    loaded: Loaded, inputs: Sequence[Sequence[int]], max_tokens: int | Sequence[int], first: int | None = None
) -> list[list[int]]:
    """Return the token ids that an encoder-decoder model writes for each input, always its most probable token.

    What the checkpoint says of sampling, beams, least lengths and repetitions is not followed.

    Args:
        loaded: model and tokenizer, whose lock the caller holds.
        inputs: token ids.
        max_tokens: the most tokens of each text, or of all.
        first: a token that every text begins with, e.g. the code of its language; else what the checkpoint names.

    Returns:
        The ids behind the token that starts the decoder, `first` included; an end and padding may follow.
    """
    import torch
    import transformers

    settings: Any = transformers.GenerationConfig
    limits = [max_tokens] * len(inputs) if isinstance(max_tokens, int) else list(max_tokens)
    model, tokenizer = loaded.model, loaded.tokenizer
    own, config = model.generation_config, model.config
    special = {
        name: getattr(own, name, None) if getattr(own, name, None) is not None else getattr(config, name, None)
        for name in ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id", "forced_bos_token_id")
    }
    # `generate` fills what is not set from the model's own configuration; there, nothing else is set from now on
    model.generation_config = settings(**special)
    if first is not None:
        special["forced_bos_token_id"] = first
    extra = int(special["forced_bos_token_id"] is not None)
    with torch.inference_mode():
        ids = model.generate(
            input_ids=padded(inputs, tokenizer.pad_token_id, loaded.device),
            attention_mask=padded([[1] * len(row) for row in inputs], 0, loaded.device),
            generation_config=settings(**special, max_new_tokens=max(limits) + extra, num_beams=1, do_sample=False),
        )
    # a text has as many tokens as it may have alone
    return [row[1 : 1 + limit + extra] for row, limit in zip(ids.tolist(), limits, strict=True)]
