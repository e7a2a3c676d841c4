"""QK-Clip: keeps attention's logits small during training, by scaling down queries and keys that have grown too long.

Muon's steps lengthen matrices without limit, which harms attention: with logits of a thousand, every head looks at only
one token. Such a model copies as well as any other, but its gradient is unstable (two runs finetuned from it that
differ in the seventh digit end 3 % apart), and its small attention weights are denormal numbers. The method follows
Kimi K2 (2025), but uses an upper bound instead of the largest logit itself, so attention's kernels need no change.
"""

from __future__ import annotations

from typing import Any

import torch


class QKClip:
    """Keeps every head's logits within a limit, based on the last forward pass.

    A logit is q.k / sqrt(d). By the Cauchy-Schwarz inequality it is at most |q| |k| / sqrt(d); rotation (RoPE) does not
    change lengths.

    Args:
        model: a model of Llama's shape with as many key heads as query heads, whose projections have no bias.
        limit: the largest max |q| max |k| / sqrt(d) of a head, over all positions of a pass.
    """

    def __init__(self, model: Any, limit: float) -> None:
        self._limit = limit
        self._head_dim = int(model.config.head_dim)
        self._pairs = [(a.q_proj, a.k_proj) for a in (layer.self_attn for layer in model.model.layers)]
        self._max_norms: dict[Any, torch.Tensor] = {}  # by projection; one value per head
        for pair in self._pairs:
            for projection in pair:
                projection.register_forward_hook(self._measure)

    def _measure(self, projection: Any, _: Any, out: torch.Tensor) -> None:
        heads = out.detach().view(*out.shape[:-1], -1, self._head_dim)  # (B, T, heads, d)
        self._max_norms[projection] = heads.float().norm(dim=-1).amax((0, 1))

    @torch.no_grad()
    def clip(self) -> float:
        """Scale down queries and keys of the heads above the limit; return the largest bound before that."""
        largest = 0.0
        for queries, keys in self._pairs:
            bound = self._max_norms[queries] * self._max_norms[keys] / self._head_dim**0.5  # (heads,)
            factor = (self._limit / bound.clamp(min=self._limit)).sqrt().repeat_interleave(self._head_dim)[:, None]
            queries.weight.mul_(factor)
            keys.weight.mul_(factor)
            largest = max(largest, float(bound.max()))
        return largest
