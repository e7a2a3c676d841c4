"""Attention within the pieces of packed rows, and nowhere else.

Hugging Face's own way builds a (T, T) mask per row and pays for every pair of tokens. This one lays the pieces of a
micro-batch below each other in blocks of like length, runs causal attention without a mask, and lays the results back.
Models that do not use the attention interface, or ask it for more than causality, go Hugging Face's way, which is
correct too: `supports` says which. It knows no texts and no loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

__all__ = ["PACKED", "Layout", "layout_of", "supports"]

PACKED = "toolformer_packed"  # the name under which a model's config asks for this attention


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the pieces of a micro-batch lie in its B x T tokens, in blocks of pieces of like length."""

    blocks: tuple[tuple[torch.Tensor, torch.Tensor], ...]  # per block: source (N, L), and which of it are tokens (N, L)

    def to(self, device: torch.device) -> Layout:
        return Layout(tuple((source.to(device), real.to(device)) for source, real in self.blocks))


def layout_of(positions: torch.Tensor) -> Layout | None:
    """Find the pieces of rows (B, T) by their positions; None where every row is one piece.

    A block holds the pieces of up to a power of two tokens, right-padded with the piece's own first token.
    """
    starts = torch.nonzero(positions.flatten() == 0).flatten()
    if len(starts) == len(positions):
        return None
    lengths = torch.diff(starts, append=starts.new_tensor([positions.numel()]))
    size = torch.ceil(torch.log2(lengths.double())).long()
    blocks = []
    for bits in sorted(set(size.tolist())):
        first, n = starts[size == bits, None], lengths[size == bits, None]
        offset = torch.arange(int(n.max()), device=positions.device)[None]
        blocks.append((first + offset * (offset < n), offset < n))
    return Layout(tuple(blocks))


def supports(model: Any, length: int) -> bool:
    """Say whether a model's attention over pieces of at most `length` tokens may go this way.

    It must ask Hugging Face's interface, and only for causality; a window at least as long as a piece never shows.
    """
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    seen = {"full_attention"} if window is not None and window < length else {"full_attention", "sliding_attention"}
    layers = set(getattr(config, "layer_types", None) or (["sliding_attention"] if window else []))
    more = any(getattr(config, name, None) for name in ("attn_logit_softcapping", "attention_chunk_size"))
    asks = getattr(model, "_supports_attention_backend", False) and getattr(model, "_supports_sdpa", False)
    return bool(asks) and not more and layers <= seen


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
    """Hugging Face's attention interface: query (B, Hq, T, D), key and value (B, H, T, D) in, (B, T, Hq, D) out."""
    if attention_mask is not None or kwargs.get("softcap") or kwargs.get("s_aux") is not None:
        raise NotImplementedError(
            "this model asks its attention for more than packed rows can do; set packing to false"
        )
    batch, heads, length, _ = query.shape
    how: dict[str, Any] = {"is_causal": True, "scale": scaling, "dropout_p": dropout}
    how["enable_gqa"] = heads != key.shape[1]
    if layout is None:
        return scaled_dot_product_attention(query, key, value, **how).transpose(1, 2), None
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))  # (B T, H, D)
    out = v.new_zeros(batch * length, heads, v.shape[-1])
    for source, real in layout.blocks:
        flat = source.flatten()
        block_q, block_k, block_v = (  # (N, H, L, D)
            x.index_select(0, flat).view(*source.shape, *x.shape[1:]).transpose(1, 2) for x in (q, k, v)
        )
        found = scaled_dot_product_attention(block_q, block_k, block_v, **how)
        out = out.index_copy(0, source[real], found.transpose(1, 2)[real])
    return out.view(batch, length, heads, -1), None


AttentionInterface.register(PACKED, _attention)
