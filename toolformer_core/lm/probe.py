"""Whether a model can be worked with at all, found out before anything is measured with it.

Its weights are numbers; it reads from left to right; a pass keeps keys and values of what it read, in every layer; its
output layer alone makes its logits; and it goes on from rows of unequal length. The last four are seen in four passes
over a few tokens: what a model does says more than its configuration, in which decoders and encoders often look alike.
It knows no tokenizer and no texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import DynamicCache

from toolformer_core.errors import ModelError
from toolformer_core.lm.agreement import REFUSING, agree, difference
from toolformer_core.lm.batches import KeyValues, fork, key_values

__all__ = ["check_passes", "check_weights", "embedding_rows"]

_TOKENS = 8  # of a row
_PLAIN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)  # not those that quantised weights come in


def embedding_rows(model: Any) -> int:
    """Return how many tokens a model has an embedding for."""
    embeddings = model.get_input_embeddings()
    # ZeRO-3 splits the weights themselves, and leaves a process none of them here
    return int(getattr(embeddings, "num_embeddings", None) or embeddings.weight.shape[0])


def check_weights(model: torch.nn.Module, name: str) -> None:
    """See that all weights are numbers; one that is not makes nearly all that a model says NaN.

    Each parameter is read once and nothing is copied: some 10 GB/s of a CPU, so three seconds for 7B in float32, where
    `torch.isfinite(...).all()` takes thirty times as long. Weights that are kept elsewhere are not looked at.

    Args:
        name: what the user calls the model.

    Raises:
        ModelError: a weight is NaN or infinite.
    """
    for parameter, weight in model.named_parameters():
        if weight.is_meta or weight.dtype not in _PLAIN or not weight.numel():
            continue
        least, largest = weight.detach().aminmax()  # both are NaN if one weight is
        if not bool((least.isfinite() & largest.isfinite()).all()):
            raise ModelError(
                f"model {name!r} cannot be used: its weights hold NaN or infinity ({parameter}): the checkpoint is "
                "damaged; fetch or save it again"
            )


def check_passes(model: Any, hidden: Callable[..., torch.Tensor], device: torch.device, name: str) -> None:
    """See that a model reads from left to right, keeps what it read and goes on from it, and what makes its logits.

    Args:
        model: an `AutoModelForCausalLM`, in evaluation mode.
        hidden: `Network.hidden`.
        device: where tokens go in.
        name: what the user calls the model.

    Raises:
        ModelError: it does not; the message says which.
    """
    size = embedding_rows(model)
    first = torch.arange(1, _TOKENS + 1, device=device) % size
    ids = torch.stack([first, torch.cat([first[:1], (first[1:] + _TOKENS) % size])])  # alike in one token alone
    cache = DynamicCache()
    with torch.inference_mode():
        whole = model(input_ids=ids, use_cache=False).logits.to(device).float()  # (2, T, V)
        _check_order(model, whole, name)
        states = _cached(model, hidden, ids, cache, name)
        ours = _logits(model, states)
        alone = _logits(model, hidden(ids, None, _counted(ids), None))  # the very pass that made `whole`
    apart = difference(alone, whole)
    # the same hidden states through the same layer: no more lies between them than the rounding of a logit, which is
    # wrong by half an epsilon at most; a cap of 30 on logits of 10 takes 0.04 of them away, five epsilons of bfloat16
    if not apart <= max(1e-4, torch.finfo(model.dtype).eps / 2):
        raise ModelError(
            f"model {name!r} changes its logits behind the output layer (by {apart:.2g} of their size); "
            "models with scaled or capped logits are not supported yet"
        )
    if not agree(ours, whole, model.dtype, slack=REFUSING):
        raise _no_cache(model, name, f"with a cache its logits differ by {difference(ours, whole):.2g} of their size")
    _check_positions(model, hidden, ids, key_values(cache), whole, name)


def _check_order(model: Any, logits: torch.Tensor, name: str) -> None:
    """The two rows begin with the same token: of what follows it a causal model says the same, whatever stands behind.

    In half precision rows that differ elsewhere may be rounded differently here, as experts see them in other batches.
    """
    if not agree(logits[1, :1], logits[0, :1], model.dtype, slack=REFUSING):
        apart = difference(logits[1, :1], logits[0, :1])
        unset = getattr(model.config, "is_decoder", None) is False
        raise ModelError(
            f"model {name!r} reads both ways, as an encoder does: what stands behind a token changes what it says of it"
            f" (logits differ by {apart:.2g} of their size); a causal LM is needed"
            + (", or is_decoder: true in the config.json of one that was trained as such" if unset else "")
        )


def _cached(
    model: Any, hidden: Callable[..., torch.Tensor], ids: torch.Tensor, cache: DynamicCache, name: str
) -> torch.Tensor:
    """Hidden states (2, T, D) of a pass that fills a cache, as the engine's passes do."""
    try:
        states = hidden(ids, torch.ones_like(ids), _counted(ids), cache)
    # a model that keeps a state of another kind stumbles over a cache of this one in ways of its own
    except (TypeError, ValueError, AttributeError, LookupError, NotImplementedError) as exc:
        raise _no_cache(model, name, f"with a cache it ends in {type(exc).__name__}") from exc
    held = key_values(cache)
    if not held:
        raise _no_cache(model, name, "its cache is empty")
    for i, layer in enumerate(held):
        # keys of another length are no keys of tokens; a layer that keeps nothing has None
        if any(side is None or side.ndim != 4 or side.shape[2] != _TOKENS for side in layer):
            raise _no_cache(model, name, f"layer {i} has none")
    return states


def _check_positions(
    model: Any, hidden: Callable[..., torch.Tensor], ids: torch.Tensor, held: KeyValues, logits: torch.Tensor, name: str
) -> None:
    """Go on from the whole of the first row and from less of it, side by side, as draws do: the shorter is padded."""
    short = _TOKENS - 2
    cache, mask = fork([held], [0, 0], [_TOKENS, short])
    mask = torch.cat([mask, mask.new_ones(2, 1)], dim=1)
    where = torch.tensor([[_TOKENS], [short]], device=ids.device)
    with torch.inference_mode():
        states = hidden(ids[0, [0, short]][:, None], mask, where, cache)[1]  # (1, D), behind `short` tokens and one
        ours = _logits(model, states)
    wanted = logits[0, short : short + 1]
    if not agree(ours, wanted, model.dtype, slack=REFUSING):
        raise ModelError(
            f"model {name!r} takes no notice of the positions it is given ({type(model).__name__}: behind padding, "
            f"logits differ by {difference(ours, wanted):.2g} of their size); decoders of encoder-decoder models are "
            "not supported"
        )


def _no_cache(model: Any, name: str, why: str) -> ModelError:
    return ModelError(
        f"model {name!r} keeps no keys and values of what it read ({type(model).__name__}: {why}); recurrent and "
        "hybrid models, and decoders of encoder-decoder models, are not supported"
    )


def _counted(ids: torch.Tensor) -> torch.Tensor:
    return torch.arange(ids.shape[1], device=ids.device).expand(len(ids), -1)


def _logits(model: Any, states: torch.Tensor) -> torch.Tensor:
    return model.get_output_embeddings()(states).to(states.device).float()  # type: ignore[no-any-return]
