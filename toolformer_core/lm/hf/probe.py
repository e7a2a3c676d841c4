"""Checks that a model can be used at all, by four passes over a few tokens, because configurations do not tell.

It must read from left to right, keep keys and values in every layer, compute its logits in the output layer alone, and
be able to continue rows of unequal length; its weights must be finite.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache

from toolformer_core.errors import ModelError
from toolformer_core.lm.hf.agreement import agree, difference
from toolformer_core.lm.hf.batches import KeyValues, fork, key_values

_TOKENS = 8  # per row
PROBED = 2 * _TOKENS - 1  # in all: both rows begin with the same
_FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)  # not the types of quantised weights


def embedding_rows(model: Any) -> int:
    embeddings = model.get_input_embeddings()
    # under ZeRO-3 the weights are partitioned, and this process may hold none of them here
    return int(getattr(embeddings, "num_embeddings", None) or embeddings.weight.shape[0])


def check_weights(model: torch.nn.Module, name: str) -> None:
    """Raise a `ModelError` if a weight is NaN or infinite; offloaded ones are skipped, and nothing is copied."""
    for parameter, weight in model.named_parameters():
        if weight.is_meta or weight.dtype not in _FLOATS or not weight.numel():
            continue
        least, largest = weight.detach().aminmax()  # both are NaN if one weight is
        if not bool((least.isfinite() & largest.isfinite()).all()):
            raise ModelError(
                f"model {name!r} cannot be used, because its weights hold NaN or infinity ({parameter}): the "
                "checkpoint is damaged; download or save it again"
            )


def check_passes(model: Any, hidden: Callable[..., torch.Tensor], tokens: torch.Tensor, name: str) -> None:
    """Raise a ModelError unless a model reads from left to right, caches and continues, and has plain logits.

    `hidden` is `HFModel.hidden`; of the tokens there are `PROBED`, none special, as a model may not know those.
    """
    ids = torch.stack([tokens[:_TOKENS], torch.cat([tokens[:1], tokens[_TOKENS:]])])  # equal in the first token only
    cache = DynamicCache()
    with torch.inference_mode():
        plain = model(input_ids=ids, use_cache=False).logits.to(ids.device).float()  # (2, T, V)
        if not agree(plain[1, :1], plain[0, :1], model.dtype):  # both rows begin with the same token
            raise ModelError(
                f"model {name!r} reads in both directions, as an encoder does: later tokens change the logits of "
                f"earlier ones (by {difference(plain[1, :1], plain[0, :1]):.2g} of their size); a causal LM is needed, "
                "or is_decoder: true in the config.json of a model that was trained as a decoder"
            )
        cached = _logits(model, _run_with_cache(model, hidden, ids, cache, name))
        uncached = _logits(model, hidden(ids, None, _positions(ids), None))  # the same pass as for `plain`
    change = difference(uncached, plain)
    # The same hidden states go through the same layer, so only the rounding of a logit may differ: at most half an
    # epsilon. A cap of 30 on logits of 10 takes 0.04 of them away, which is five epsilons of bfloat16.
    if not change <= max(1e-4, torch.finfo(model.dtype).eps / 2):
        raise ModelError(
            f"model {name!r} changes its logits after the output layer (by {change:.2g} of their size); "
            "models with scaled or capped logits are not supported yet"
        )
    if not agree(cached, plain, model.dtype):
        raise _no_cache(model, name, f"with a cache its logits differ by {difference(cached, plain):.2g} of their size")
    _check_positions(model, hidden, ids, key_values(cache), plain, name)


def _run_with_cache(
    model: Any, hidden: Callable[..., torch.Tensor], ids: torch.Tensor, cache: DynamicCache, name: str
) -> torch.Tensor:
    try:
        states = hidden(ids, torch.ones_like(ids), _positions(ids), cache)
    # a model that keeps another kind of state fails on this kind of cache, each in its own way
    except (TypeError, ValueError, AttributeError, LookupError, NotImplementedError) as exc:
        raise _no_cache(model, name, f"with a cache it raises {type(exc).__name__}") from exc
    layers = key_values(cache)
    if not layers:
        raise _no_cache(model, name, "its cache is empty")
    for i, layer in enumerate(layers):
        # keys of another length do not belong to tokens; a layer that keeps nothing has None
        if any(side is None or side.ndim != 4 or side.shape[2] != _TOKENS for side in layer):
            raise _no_cache(model, name, f"layer {i} has none")
    return states


def _check_positions(
    model: Any, hidden: Callable[..., torch.Tensor], ids: torch.Tensor, kv: KeyValues, logits: torch.Tensor, name: str
) -> None:
    """Continue the first row and a shorter, padded part of it side by side, as samples do; check the shorter one."""
    short = _TOKENS - 2
    cache, mask = fork([kv], [0, 0], [_TOKENS, short])
    mask = torch.cat([mask, mask.new_ones(2, 1)], dim=1)
    position = torch.tensor([[_TOKENS], [short]], device=ids.device)
    with torch.inference_mode():
        states = hidden(ids[0, [0, short]][:, None], mask, position, cache)[1]  # (1, D), after `short` tokens and one
        continued = _logits(model, states)
    expected = logits[0, short : short + 1]
    if not agree(continued, expected, model.dtype):
        raise ModelError(
            f"model {name!r} ignores the positions it is given ({type(model).__name__}: after padding, its logits "
            f"differ by {difference(continued, expected):.2g} of their size); decoders of encoder-decoder models are "
            "not supported"
        )


def _no_cache(model: Any, name: str, reason: str) -> ModelError:
    return ModelError(
        f"model {name!r} keeps no keys and values of what it read ({type(model).__name__}: {reason}); recurrent and "
        "hybrid models, and decoders of encoder-decoder models, are not supported"
    )


def _positions(ids: torch.Tensor) -> torch.Tensor:
    return torch.arange(ids.shape[1], device=ids.device).expand(len(ids), -1)


def _logits(model: Any, states: torch.Tensor) -> torch.Tensor:
    return model.get_output_embeddings()(states).to(states.device).float()  # type: ignore[no-any-return]
