"""Tries on a few tokens whether a model can draw from a shared prefix (`SharedPrefix`) with the plain way's numbers."""

from __future__ import annotations

import logging

import torch
from transformers import DynamicCache

from toolformer_core.lm.hf.agreement import agree, difference, tolerance
from toolformer_core.lm.hf.batches import fork, key_values
from toolformer_core.lm.hf.memory import out_of_memory
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.lm.hf.prefixes import SharedPrefix

__all__ = ["can_share_prefix"]

_LOG = logging.getLogger(__name__)
_PREFIX = 8  # tokens of the prefix
_SHORT = 5  # tokens of the prefix that one of the two rows sees
_STEPS = 4  # tokens that each row adds


def can_share_prefix(hf_model: HFModel) -> bool:
    """Return whether a model's logits are the same with `SharedPrefix` as with copies; if not, log a warning.

    Raises:
        torch.OutOfMemoryError, RuntimeError, MemoryError: memory ran out during the trial, so there is no answer.
    """
    vocabulary = hf_model.model.config.get_text_config().vocab_size
    device = hf_model.device
    ids = torch.arange(1, _PREFIX + 1, device=device)[None] % vocabulary
    # a different token for each row and step: with equal keys and values it would not show which of them are seen
    tokens = (torch.arange(2 * _STEPS, device=device).view(_STEPS, 2) + _PREFIX + 1) % vocabulary
    prefix = DynamicCache()
    position = torch.arange(_PREFIX, device=device)[None]
    with torch.inference_mode():
        hf_model.hidden(ids, torch.ones_like(ids), position, prefix)
        kv = key_values(prefix)
        places = [(0, _SHORT), (0, _PREFIX)]
        try:
            shared = SharedPrefix(hf_model, [kv], places, capacity=_STEPS, common=_SHORT - 2)
            shared_logits = [hf_model.logits(shared.feed(step_tokens)) for step_tokens in tokens]
        except (NotImplementedError, TypeError, AttributeError, RuntimeError, ValueError, KeyError) as exc:
            if out_of_memory(exc):
                raise
            return _refuse(hf_model, f"its attention does not support it: {type(exc).__name__}")
        plain, mask = fork([kv], [0, 0], [_SHORT, _PREFIX])
        for step, logits in enumerate(shared_logits):
            mask = torch.cat([mask, mask.new_ones(2, 1)], dim=1)
            at = torch.tensor([[_SHORT + step], [_PREFIX + step]], device=device)
            expected = hf_model.logits(hf_model.hidden(tokens[step][:, None], mask, at, plain)[:, -1])
            if not agree(logits, expected, hf_model.model.dtype):
                measured, allowed = difference(logits, expected), tolerance(hf_model.model.dtype)
                return _refuse(
                    hf_model, f"in a trial its logits differ by {measured:.2g} of their size, {allowed:.2g} allowed"
                )
    return True


def _refuse(hf_model: HFModel, reason: str) -> bool:
    _LOG.warning(
        "model %r: the calls drawn from a document cannot share its keys and values (%s); each draw copies them "
        "instead, which gives the same results but is slower and takes more memory",
        hf_model.name,
        reason,
    )
    return False
