"""Attention for packed rows: tokens attend only within their own piece.

The pieces of a micro-batch lie in blocks of similar length, with causal attention and no mask. Other models than those
that `supports` names use Hugging Face's (T, T) mask per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

PACKED = "toolformer_packed"  # the name of this attention in a model's config


@dataclass(frozen=True, slots=True)
class Layout:
    """A mapping between the B x T tokens of a micro-batch and places in blocks of pieces of similar length."""

    shapes: tuple[tuple[int, int], ...]  # (N, L) of every block; S is the sum of N x L
    source: torch.Tensor  # (S,) the token at each place of the blocks, one block after the other
    real: torch.Tensor  # (S,) False for padding
    place: torch.Tensor  # (B T,) the place of each token

    def to(self, device: torch.device) -> Layout:
        return Layout(self.shapes, self.source.to(device), self.real.to(device), self.place.to(device))


def layout_of(positions: torch.Tensor) -> Layout | None:
    """Find the pieces of rows (B, T) by their positions, in blocks of like length; None if all rows are one piece."""
    starts = torch.nonzero(positions.flatten() == 0).flatten()
    if len(starts) == len(positions):
        return None
    lengths = torch.diff(starts, append=starts.new_tensor([positions.numel()]))
    size = torch.ceil(torch.log2(lengths.double())).long()
    shapes, sources, reals = [], [], []
    for bits in sorted(set(size.tolist())):
        first, n = starts[size == bits, None], lengths[size == bits, None]
        offset = torch.arange(int(n.max()), device=positions.device)[None]
        shapes.append((len(first), offset.shape[1]))
        sources.append((first + offset * (offset < n)).flatten())
        reals.append((offset < n).flatten())
    source, real = torch.cat(sources), torch.cat(reals)
    place = torch.empty(positions.numel(), dtype=torch.long, device=positions.device)
    place[source[real]] = torch.nonzero(real).flatten()
    return Layout(tuple(shapes), source, real, place)


class _Permute(torch.autograd.Function):
    """Select rows x[forward_index] of x (n, ...), with a gradient that is a selection, too.

    `backward_index` holds the place to which each row of x was moved. No token attends to padding, so its gradient is
    zero, and the gradient of a token is found at one place.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward_index: Any, backward_index: Any, moved: Any) -> torch.Tensor:
        """Select the rows; `moved` (n,) is False for rows of x that are not selected at all, None: all are."""
        ctx.backward_index, ctx.moved = backward_index, moved
        return x.index_select(0, forward_index)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        selected = grad.index_select(0, ctx.backward_index)
        if ctx.moved is not None:
            selected.masked_fill_(~ctx.moved.view(-1, *[1] * (grad.ndim - 1)), 0.0)
        return selected, None, None, None


_permute: Any = _Permute.apply


def supports(model: Any, length: int) -> bool:
    """Return whether this attention works for a model (Hugging Face's interface, causal) over pieces of this length."""
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    allowed = {"full_attention"} if window is not None and window < length else {"full_attention", "sliding_attention"}
    layers = set(getattr(config, "layer_types", None) or (["sliding_attention"] if window else []))
    extras = any(getattr(config, name, None) for name in ("attn_logit_softcapping", "attention_chunk_size"))
    has_interface = getattr(model, "_supports_attention_backend", False) and getattr(model, "_supports_sdpa", False)
    return bool(has_interface) and not extras and layers <= allowed


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    layout: Layout | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Implement Hugging Face's interface: query (B, Hq, T, D), key and value (B, H, T, D) in, (B, T, Hq, D) out."""
    if attention_mask is not None or kwargs.get("softcap") or kwargs.get("s_aux") is not None:
        raise NotImplementedError(
            "this model needs more from its attention than packed rows support; set packing to false"
        )
    batch, heads, length, _ = query.shape
    options: dict[str, Any] = {"is_causal": True, "scale": scaling, "dropout_p": dropout}
    options["enable_gqa"] = heads != key.shape[1]
    if layout is None:
        return scaled_dot_product_attention(query, key, value, **options).transpose(1, 2), None
    sizes = [n * long for n, long in layout.shapes]
    q, k, v = (
        _permute(x.transpose(1, 2).flatten(0, 1), layout.source, layout.place, None).split(sizes)
        for x in (query, key, value)
    )
    blocks = []
    for *block, shape in zip(q, k, v, layout.shapes, strict=True):
        shaped = (x.view(*shape, *x.shape[1:]).transpose(1, 2) for x in block)  # (N, H, L, D)
        blocks.append(scaled_dot_product_attention(*shaped, **options).transpose(1, 2).flatten(0, 1))
    out = _permute(torch.cat(blocks), layout.place, layout.source, layout.real)
    return out.view(batch, length, heads, -1), None


AttentionInterface.register(PACKED, _attention)
