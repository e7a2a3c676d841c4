"""QK-Clip: attention's logits kept small while a model trains, by scaling queries and keys when they grow too long.

Muon's steps lengthen matrices without end, and attention is where that hurts: logits of a thousand make every head look
at one token alone. Such a model copies as well as another, but its gradient jumps at a breath (finetuned from it, two
runs that differ in the seventh digit end 3 % apart), and its small attention weights are denormal numbers. After Kimi
K2 (2025), with a bound in place of the largest logit itself, for which attention's own kernels need no change.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["QKClip"]


class QKClip:
    """Keeps every head's logits within a limit, from what the last forward pass has shown.

    A logit is q.k / sqrt(d), and by Cauchy and Schwarz no larger than |q| |k| / sqrt(d); rotation (RoPE) keeps lengths.

    Args:
        model: a Llama shape with as many key heads as query heads, whose projections have no bias.
        limit: for max |q| max |k| / sqrt(d) of a head, over all positions of a pass.
    """

    def __init__(self, model: Any, limit: float) -> None:
        self._limit = limit
        self._width = int(model.config.head_dim)
        self._pairs = [(a.q_proj, a.k_proj) for a in (layer.self_attn for layer in model.model.layers)]
        self._longest: dict[Any, torch.Tensor] = {}
        for pair in self._pairs:
            for projection in pair:
                projection.register_forward_hook(self._measure)

    def _measure(self, projection: Any, _: Any, out: torch.Tensor) -> None:
        heads = out.detach().view(*out.shape[:-1], -1, self._width)  # (B, T, heads, d)
        self._longest[projection] = heads.float().norm(dim=-1).amax((0, 1))

    @torch.no_grad()
    def clip(self) -> float:
        """Scale down the heads above the limit, queries and keys alike; return the largest bound there was."""
        largest = 0.0
        for queries, keys in self._pairs:
            bound = self._longest[queries] * self._longest[keys] / self._width**0.5  # (heads,)
            factor = (self._limit / bound.clamp(min=self._limit)).sqrt().repeat_interleave(self._width)[:, None]
            queries.weight.mul_(factor)
            keys.weight.mul_(factor)
            largest = max(largest, float(bound.max()))
        return largest
