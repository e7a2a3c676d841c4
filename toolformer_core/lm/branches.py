"""Many short continuations of few long prefixes: attention that reads each prefix once, however many rows share it.

Drawing m calls at k positions of a document gives k m rows that share the document's keys and values up to their own
position. Here those stay where the scan left them; a row adds only the tokens it writes. A step reads the prefix once
per document instead of once per row, as one matrix product for all of the document's rows.

It plugs into Hugging Face's attention interface, so the model's own layers run unchanged. Models that do not use that
interface, or ask for more than masking (soft caps, sinks), are found out by `works_for` and go the plain way. It does
not sample and knows no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import DynamicLayer

from toolformer_core.lm.batches import KeyValues, fork, key_values
from toolformer_core.lm.network import Network

__all__ = ["Branches", "works_for"]

_NAME = "toolformer_branches"


class _OwnLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """The tokens that rows have written themselves, in a buffer that is filled in place.  (R, H, S, D)"""

    keys: Any
    values: Any

    def __init__(self, room: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.room = room
        self.filled = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        rows, heads, _, width = key_states.shape
        self.keys = key_states.new_empty(rows, heads, self.room, width)
        self.values = value_states.new_empty(rows, heads, self.room, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.filled + key_states.shape[-2]
        self.keys[:, :, self.filled : end] = key_states
        self.values[:, :, self.filled : end] = value_states
        self.filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.filled

    def select(self, rows: torch.Tensor) -> None:
        if self.is_initialized:
            self.keys, self.values = (self._moved(x, rows) for x in (self.keys, self.values))

    def _moved(self, held: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Rows into a buffer of their own; only what is filled is copied."""
        moved = held.new_empty(len(rows), *held.shape[1:])
        moved[:, :, : self.filled] = held[rows, :, : self.filled]
        return moved


class Branches:
    """Rows that continue prefixes held elsewhere.

    Args:
        network: the model.
        prefixes: keys and values of each, per layer (1, H, T, D); not changed and not copied.
        places: per row (index of its prefix, how many of the prefix's tokens it continues), sorted by index.
        room: tokens a row may add.
    """

    def __init__(
        self, network: Network, prefixes: Sequence[KeyValues], places: Sequence[tuple[int, int]], room: int
    ) -> None:
        self.network = network
        self.prefixes = prefixes
        self.owner = [b for b, _ in places]
        self.length = torch.tensor([n for _, n in places], device=network.device)  # (R,)
        self.cache = DynamicCache()
        self.cache.layers = [_OwnLayer(room) for _ in prefixes[0]]
        self.cache.layer_class_to_replicate = None
        self.step = 0
        self._group()

    def _group(self) -> None:
        """Runs of rows with the same prefix: (prefix, first row, last row, columns they need)."""
        self.groups: list[tuple[int, int, int, int]] = []
        start = 0
        for row in range(1, len(self.owner) + 1):
            if row == len(self.owner) or self.owner[row] != self.owner[start]:
                self.groups.append((self.owner[start], start, row, int(self.length[start:row].max())))
                start = row
        self.columns = max(columns for *_, columns in self.groups)

    def feed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Add one token to every row (R,); return the hidden states after it (R, D)."""
        where = self.length + self.step
        config = self.network.model.config.get_text_config()
        usual = config._attn_implementation
        config._attn_implementation = _NAME
        try:
            hidden = self.network.hidden(tokens[:, None], None, where[:, None], self.cache, branches=self)
        finally:
            config._attn_implementation = usual
        self.step += 1
        return hidden[:, -1]

    def select(self, rows: torch.Tensor) -> None:
        """Keep these rows (repeats allowed); they must stay sorted by prefix."""
        kept = rows.tolist()
        self.owner = [self.owner[row] for row in kept]
        self.length = self.length[rows]
        layers: Any = self.cache.layers
        for layer in layers:
            layer.select(rows)
        self._group()

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scaling: float,
        window: int | None,
    ) -> torch.Tensor:
        """Attention of one new token per row over its prefix and its own tokens.

        Args:
            query: (R, Hq, D). keys, values: the rows' own, (R, H, S, D); Hq is a multiple of H.
            window: tokens a query may look back at, itself included; None: all.

        Returns:
            (R, Hq, D).
        """
        rows, q_heads, width = query.shape
        heads, own = keys.shape[1], keys.shape[2]
        length = self.length.to(query.device)
        t = self.columns
        q = (query * scaling).view(rows, heads, q_heads // heads, width)
        scores = query.new_empty(rows, heads, q_heads // heads, t + own)
        for b, first, last, columns in self.groups:
            part = q[first:last].permute(1, 0, 2, 3).reshape(heads, -1, width)  # (H, n g, D)
            found = part @ self.prefixes[b][layer][0][0, :, :columns].transpose(1, 2)  # (H, n g, columns)
            scores[first:last, ..., :columns] = found.view(heads, last - first, -1, columns).permute(1, 0, 2, 3)
            scores[first:last, ..., columns:t] = 0
        scores[..., t:] = q @ keys.transpose(2, 3)
        column = torch.arange(t, device=query.device)
        hidden = column >= length[:, None]  # (R, t)
        if window is not None:
            now = length + own - 1
            hidden = hidden | (now[:, None] - column >= window)
            mine = length[:, None] + torch.arange(own, device=query.device)
            scores[..., t:].masked_fill_((now[:, None] - mine >= window)[:, None, None], -torch.inf)
        scores[..., :t].masked_fill_(hidden[:, None, None], -torch.inf)
        weights = torch.softmax(scores.float(), dim=-1).to(values.dtype)
        out = weights[..., t:] @ values  # (R, H, g, D)
        for b, first, last, columns in self.groups:
            part = weights[first:last, ..., :columns].permute(1, 0, 2, 3).reshape(heads, -1, columns)
            found = part @ self.prefixes[b][layer][1][0, :, :columns]
            out[first:last] += found.view(heads, last - first, -1, width).permute(1, 0, 2, 3)
        return out.reshape(rows, q_heads, -1)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    branches: Branches | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Hugging Face's attention interface: (R, Hq, 1, D) in, (R, 1, Hq, D) out."""
    if branches is None or attention_mask is not None or kwargs.get("softcap") or kwargs.get("s_aux") is not None:
        raise NotImplementedError("this model asks its attention for more than branches can do")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = branches.attend(module.layer_idx, query[:, :, 0], key, value, scale, sliding_window)
    return out[:, None], None


AttentionInterface.register(_NAME, _attention)


def works_for(network: Network) -> bool:
    """Say whether a model's next tokens are the same this way as the plain way, by trying it on a few tokens."""
    ids = torch.arange(1, 9, device=network.device)[None] % network.model.config.get_text_config().vocab_size
    prefix = DynamicCache()
    where = torch.arange(8, device=network.device)[None]
    with torch.inference_mode():
        network.hidden(ids, torch.ones_like(ids), where, prefix)
        kv = key_values(prefix)
        places = [(0, 5), (0, 8)]
        tokens = torch.tensor([1, 2], device=network.device)
        try:
            branches = Branches(network, [kv], places, room=2)
            got = [network.logits(branches.feed(tokens)) for _ in range(2)]
        except (NotImplementedError, TypeError, AttributeError, RuntimeError, ValueError, KeyError):
            return False
        plain, mask = fork([kv], [0, 0], [5, 8])
        for step, logits in enumerate(got):
            mask = torch.cat([mask, mask.new_ones(2, 1)], dim=1)
            at = torch.tensor([[5 + step], [8 + step]], device=network.device)
            wanted = network.logits(network.hidden(tokens[:, None], mask, at, plain)[:, -1])
            close = 1e-4 if wanted.dtype == network.model.dtype else 0.2  # bfloat16 rounds differently in other orders
            if (torch.log_softmax(logits, -1) - torch.log_softmax(wanted, -1)).abs().max() > close:
                return False
    return True
