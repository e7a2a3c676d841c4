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
    """Where the pieces of a micro-batch lie in its B x T tokens, and where in blocks of pieces of like length."""

    shapes: tuple[tuple[int, int], ...]  # (N, L) of every block; S is the sum of N x L
    source: torch.Tensor  # (S,) which token lies at each place of the blocks, one block behind the other
    real: torch.Tensor  # (S,) whether it is a token, and not what fills a piece up
    place: torch.Tensor  # (B T,) the place of each token

    def to(self, device: torch.device) -> Layout:
        return Layout(self.shapes, self.source.to(device), self.real.to(device), self.place.to(device))


def layout_of(positions: torch.Tensor) -> Layout | None:
    """Find the pieces of rows (B, T) by their positions; None where every row is one piece.

    A block holds the pieces of up to a power of two tokens, right-padded with the piece's own first token.
    """
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


class _Moved(torch.autograd.Function):
    """Rows x[there] of x (n, ...), whose gradients are found by an index too: `back` says where each row of x went.

    What fills a piece up comes behind it, where no token looks, and its own result is thrown away: its gradient is
    zero, so that a token's is found at its one place. Adding up all gradients of a token took longer than attention.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, there: torch.Tensor, back: torch.Tensor, went: torch.Tensor | None
    ) -> torch.Tensor:
        """Take the rows; `went` (n,) says which rows of x went anywhere, None: all."""
        ctx.back, ctx.went = back, went
        return x.index_select(0, there)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        found = grad.index_select(0, ctx.back)
        if ctx.went is not None:
            found.masked_fill_(~ctx.went.view(-1, *[1] * (grad.ndim - 1)), 0.0)
        return found, None, None, None


_moved: Any = _Moved.apply


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
    sizes = [n * long for n, long in layout.shapes]
    q, k, v = (
        _moved(x.transpose(1, 2).flatten(0, 1), layout.source, layout.place, None).split(sizes)
        for x in (query, key, value)
    )
    found = []
    for *block, shape in zip(q, k, v, layout.shapes, strict=True):
        laid = (x.view(*shape, *x.shape[1:]).transpose(1, 2) for x in block)  # (N, H, L, D)
        found.append(scaled_dot_product_attention(*laid, **how).transpose(1, 2).flatten(0, 1))
    out = _moved(torch.cat(found), layout.place, layout.source, layout.real)
    return out.view(batch, length, heads, -1), None


AttentionInterface.register(PACKED, _attention)
