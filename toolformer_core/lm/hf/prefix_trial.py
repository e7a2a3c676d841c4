"""Tries on a few tokens whether a model can draw from a shared prefix (`SharedPrefix`) with the plain way's numbers.

In half precision sharing may differ from a pass in float32 by twice what copying differs. Measured with random models
of 2 to 30 layers: 0.8 to 1.5 times; from 3.5 times on where attention omits a token, or sees one it should not.
"""

import logging
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from transformers import DynamicCache

from toolformer_core.lm.hf.agreement import difference, tolerance
from toolformer_core.lm.hf.batches import key_values
from toolformer_core.lm.hf.memory import out_of_memory
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.lm.hf.prefixes import Continuation, CopiedPrefix, SharedPrefix
from toolformer_core.lm.hf.probe import embedding_rows
from toolformer_core.lm.tokens import ordinary_tokens

_LOG = logging.getLogger(__name__)
_PREFIX = 8  # tokens of the prefix
_SHORT = 5  # tokens of the prefix that one of the two rows sees
_STEPS = 4  # tokens that each row adds
_SLACK = 2.0  # the largest error of sharing, in errors of copying
_HALF = (torch.bfloat16, torch.float16)
_UNSUPPORTED = (TypeError, AttributeError, RuntimeError, ValueError, KeyError)


class _InFloat32(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every operation reads and writes float32 where it would half precision; weights are converted one at a time."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def widened(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return value.float() if value.dtype in _HALF else value
            return torch.float32 if value in _HALF else value

        return func(*tree_map(widened, args), **tree_map(widened, kwargs or {}))


def can_share_prefix(hf_model: HFModel) -> bool:
    """Return whether a model's logits are the same with `SharedPrefix` as with copies; if not, log a warning."""
    # a different token for each row and step: with equal keys and values it would not show which of them are seen
    ids = ordinary_tokens(hf_model.tokenizer, embedding_rows(hf_model.model), _PREFIX + 2 * _STEPS)
    prefix_ids = torch.tensor(ids[:_PREFIX], device=hf_model.device)
    tokens = torch.tensor(ids[_PREFIX:], device=hf_model.device).view(_STEPS, 2)
    places = [(0, _SHORT), (0, _PREFIX)]
    with torch.inference_mode():
        cache = DynamicCache()
        hf_model.read(prefix_ids, cache)
        kv = key_values(cache)
        try:
            shared = _logits(hf_model, SharedPrefix(hf_model, [kv], places, capacity=_STEPS, common=_SHORT - 2), tokens)
        except _UNSUPPORTED as exc:
            if out_of_memory(exc):
                raise  # which is no answer
            return _refuse(hf_model, f"its attention does not support it: {type(exc).__name__}")
        copied = _logits(hf_model, CopiedPrefix(hf_model, [kv], places, _STEPS), tokens)
        measured, allowed = difference(shared, copied), tolerance(hf_model.model.dtype)
        if hf_model.model.dtype in _HALF:
            try:
                with _InFloat32():  # type: ignore[no-untyped-call]
                    rows = [torch.cat([prefix_ids[:n], tokens[:, row]]) for row, (_, n) in enumerate(places)]
                    exact = torch.cat([hf_model.logits(hf_model.read(row)[0, -_STEPS:]) for row in rows])
            except _UNSUPPORTED as exc:  # e.g. kernels for one precision only: then `tolerance` decides
                if out_of_memory(exc):
                    raise
            else:
                measured, allowed = difference(shared, exact), _SLACK * difference(copied, exact)
    if not measured <= allowed:
        return _refuse(hf_model, f"in a trial its logits differ by {measured:.2g} of their size, {allowed:.2g} allowed")
    return True


def _logits(hf_model: HFModel, rows: Continuation, tokens: torch.Tensor) -> torch.Tensor:
    """Return the logits (R * S, V) after tokens (S, R) that are fed to R rows, row by row."""
    logits = torch.stack([hf_model.logits(rows.feed(step)) for step in tokens], dim=1)
    return logits.flatten(0, 1)


def _refuse(hf_model: HFModel, reason: str) -> bool:
    _LOG.warning(
        f"model {hf_model.name!r}: the calls drawn from a document cannot share its keys and values ({reason}); each "
        "draw copies them instead, which gives the same results but is slower and takes more memory"
    )
    return False
