"""Continues many short rows from few long prefixes: with the prefixes shared, or with a copy for every row.

A prefix is the keys and values of a prompt and a document. `SharedPrefix` stores only the tokens that a row adds, and a
step reads the prefix once, as one matrix product for all its rows. It plugs into Hugging Face's attention interface
(importing this module registers it by name); `CopiedPrefix` serves models that need more than masking (`prefix_trial`).

Axes of tensors: R rows, Hq heads of queries, H heads of keys and values (Hq / H queries share one), T tokens of a
prefix, S tokens that rows have added, D numbers a head (hidden states: numbers a token), n rows of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import DynamicLayer

from toolformer_core.lm.hf.batches import KeyValues, fork, key_values
from toolformer_core.lm.hf.model import HFModel

_ATTENTION = "toolformer_shared_prefix"
# Prefixes in one product. On a GPU starting a product takes longer than computing it; on a CPU padding costs more.
_TOGETHER = {"cpu": 1, "cuda": 64}


class CopiedPrefix:
    """Rows that each continue a copy of their prefix and may add `capacity` tokens.

    An origin is (index of a row's prefix, how many of the prefix's tokens it continues).
    """

    def __init__(
        self, hf_model: HFModel, prefixes: Sequence[KeyValues], origins: Sequence[tuple[int, int]], capacity: int
    ) -> None:
        self.hf_model = hf_model
        self.prefixes = prefixes
        self.capacity = capacity
        self.origins = list(origins)
        self.cache: DynamicCache | None = None  # copied at the first token, for the rows that remain by then
        self.position = torch.tensor([n for _, n in origins], device=hf_model.device)

    def feed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Add one token to every row (R,); return the hidden states after it (R, D)."""
        if self.cache is None:
            copied, self.mask = fork(self.prefixes, [b for b, _ in self.origins], [n for _, n in self.origins])
            self.cache = DynamicCache()
            self.cache.layers = [_AddedLayer(self.capacity, *layer) for layer in key_values(copied)]
            self.cache.layer_class_to_replicate = None
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
        hidden = self.hf_model.hidden(tokens[:, None], self.mask, self.position[:, None], self.cache)
        self.position = self.position + 1
        return hidden[:, -1]

    def select(self, rows: torch.Tensor) -> None:
        """Keep these rows, by index; a row may be repeated."""
        self.position = self.position[rows]
        if self.cache is None:
            self.origins = [self.origins[row] for row in rows.tolist()]
            return
        layers: Any = self.cache.layers
        for layer in layers:
            layer.select(rows)
        self.mask = self.mask[rows]


class _AddedLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values, (R, H, S, D), of tokens that are `there` and of up to `capacity` added ones, in place."""

    keys: Any
    values: Any

    def __init__(self, capacity: int, *there: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = capacity
        self.filled = 0
        if there:
            self.capacity += there[0].shape[-2]
            self.update(*there)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        rows, heads, _, width = key_states.shape
        self.keys = key_states.new_empty(rows, heads, self.capacity, width)
        self.values = value_states.new_empty(rows, heads, self.capacity, value_states.shape[-1])
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
            self.keys, self.values = (self._selected(x, rows.to(x.device)) for x in (self.keys, self.values))

    def _selected(self, buffer: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return a new buffer with the selected rows; only the filled part is copied."""
        selected = buffer.new_empty(len(rows), *buffer.shape[1:])
        selected[:, :, : self.filled] = buffer[rows, :, : self.filled]
        return selected


class _Bundle(NamedTuple):
    """Prefixes that rows attend to in one product: columns from `start` on, padded to the longest."""

    prefixes: list[int]
    start: int
    layers: list[tuple[torch.Tensor, torch.Tensor]]  # keys and values, (P, H, T - start, D) each


class _RowGroup(NamedTuple):
    """Rows that attend to a bundle's columns up to `end`; some do not see all of them. P prefixes have n rows each."""

    bundle: _Bundle
    rows: torch.Tensor  # (N,)
    slots: torch.Tensor  # (N,) where each of them stands among P n
    row_of_slot: torch.Tensor  # (P n,): of a slot that no row has, any row
    end: int
    mask: torch.Tensor | None  # added to the scores (P, 1, n, 1, end - start): -inf where a row must not see a column


class _PartialAttention(NamedTuple):
    """Attention over a part of what rows see: largest score, sum of weights and weighted sum of values per query."""

    top: torch.Tensor  # (R, H, Hq / H, 1)
    total: torch.Tensor  # (R, H, Hq / H, 1)
    mixed: torch.Tensor  # (R, H, Hq / H, D)

    def empty(self) -> _PartialAttention:
        nothing = torch.full_like(self.top, torch.finfo(self.top.dtype).min)
        return _PartialAttention(nothing, torch.zeros_like(self.total), torch.zeros_like(self.mixed))


class SharedPrefix:
    """Rows that continue prefixes in place, by sorted origins; all prefixes begin with `common` equal tokens."""

    def __init__(
        self,
        hf_model: HFModel,
        prefixes: Sequence[KeyValues],
        origins: Sequence[tuple[int, int]],
        capacity: int,
        common: int = 0,
    ) -> None:
        self.hf_model = hf_model
        self.prefixes = prefixes
        self.common = common
        self.prefix_of = [b for b, _ in origins]
        self.length = torch.tensor([n for _, n in origins], device=hf_model.device)  # (R,) of the prefix, per row
        self.cache = DynamicCache()
        self.cache.layers = [_AddedLayer(capacity) for _ in prefixes[0]]
        self.cache.layer_class_to_replicate = None
        self.step = 0
        self.bundles = [self._bundle([0], 0, common)] if common else []
        present = sorted(set(self.prefix_of))
        together = _TOGETHER.get(hf_model.device.type, 1)
        for at in range(0, len(present), together):
            self.bundles.append(self._bundle(present[at : at + together], common, None))
        self._group_rows()

    def _bundle(self, prefixes: list[int], start: int, end: int | None) -> _Bundle:
        layers = []
        for of_prefixes in zip(*(self.prefixes[b] for b in prefixes), strict=True):  # one layer
            keys, values = (_padded([x[:, :, start:end] for x in side]) for side in zip(*of_prefixes, strict=True))
            layers.append((keys, values))
        return _Bundle(prefixes, start, layers)

    def _group_rows(self) -> None:
        """Find the rows of each bundle; all of them see the common tokens, which the first one holds."""
        of_prefix: dict[int, list[int]] = {}
        for row, prefix in enumerate(self.prefix_of):
            of_prefix.setdefault(prefix, []).append(row)
        self.groups = []
        for n, bundle in enumerate(self.bundles):
            is_common = n == 0 and self.common > 0
            rows = [[*range(len(self.prefix_of))]] if is_common else [of_prefix.get(b, []) for b in bundle.prefixes]
            if any(rows) and (group := self._group(bundle, rows, self.common if is_common else None)):
                self.groups.append(group)

    def _group(self, bundle: _Bundle, rows: list[list[int]], end: int | None) -> _RowGroup | None:
        """Return the group of a bundle's rows, by prefix; None: they see none of its columns."""
        device, n = self.length.device, max(map(len, rows))
        at = torch.tensor([row for of_one in rows for row in of_one], device=device)
        slots = torch.tensor([p * n + i for p, of_one in enumerate(rows) for i in range(len(of_one))], device=device)
        if (end := int(self.length[at].max()) if end is None else end) <= bundle.start:
            return None
        row_of_slot = torch.full((len(rows) * n,), int(at[0]), device=device)
        row_of_slot[slots] = at
        unseen = torch.arange(bundle.start, end, device=device) >= self.length[row_of_slot, None]
        mask = torch.zeros(unseen.shape, device=device).masked_fill_(unseen, -torch.inf)
        mask = mask.view(len(rows), 1, n, 1, -1)
        return _RowGroup(bundle, at, slots, row_of_slot, end, mask if bool(unseen.any()) else None)

    def feed(self, tokens: torch.Tensor) -> torch.Tensor:
        position = self.length + self.step
        config = self.hf_model.model.config.get_text_config()
        original = config._attn_implementation
        config._attn_implementation = _ATTENTION
        try:
            hidden = self.hf_model.hidden(tokens[:, None], None, position[:, None], self.cache, shared_prefix=self)
        finally:
            config._attn_implementation = original
        self.step += 1
        return hidden[:, -1]

    def select(self, rows: torch.Tensor) -> None:
        """See `CopiedPrefix.select`. The rows must stay sorted by prefix."""
        self.prefix_of = [self.prefix_of[row] for row in rows.tolist()]
        self.length = self.length[rows]
        layers: Any = self.cache.layers
        for layer in layers:
            layer.select(rows)
        self._group_rows()

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scaling: float,
        window: int | None,
    ) -> torch.Tensor:
        """Return the attention (R, Hq, D) of a new token per row, `query`, over its prefix and what the row has added.

        Keys and values are those of the added tokens, (R, H, S, D). A query sees `window` tokens back, itself included.
        """
        rows, q_heads, width = query.shape
        heads, added = keys.shape[1], keys.shape[2]
        shared_by = q_heads // heads  # queries that share a head of keys
        q = (query * scaling).view(rows, heads, shared_by, width)
        scores = (q @ keys.transpose(2, 3)).float()  # (R, H, Hq / H, S)
        if window is not None and added > window:
            scores[..., : added - window] = -torch.inf
        top = scores.amax(dim=-1, keepdim=True)
        weights = scores.sub_(top).exp_()
        over_added = _PartialAttention(
            top, weights.sum(dim=-1, keepdim=True), (weights.to(values.dtype) @ values).float()
        )
        over_common, over_prefix = over_added.empty(), over_added.empty()
        for bundle, row, slot, row_of_slot, end, mask in self.groups:
            k, v = (x[:, :, : end - bundle.start] for x in bundle.layers[layer])  # (P, H, T, D)
            count, device = len(k), k.device
            of_slots = q[row_of_slot.to(device)].view(count, -1, heads, shared_by, width)
            queries = of_slots.transpose(1, 2).reshape(count, heads, -1, width)  # (P, H, n Hq / H, D)
            scores = (queries @ k.transpose(2, 3)).float()
            by_row = scores.view(count, heads, -1, shared_by, end - bundle.start)
            if mask is not None:
                by_row += mask.to(device)
            if window is not None:
                last = (self.length + added - 1)[row_of_slot].view(count, 1, -1, 1, 1)
                column = torch.arange(bundle.start, end, device=last.device)
                by_row.masked_fill_((last - column >= window).to(device), -torch.inf)
            top = scores.amax(dim=-1, keepdim=True).clamp_min_(torch.finfo(scores.dtype).min)
            weights = scores.sub_(top).exp_()
            mixed = (weights.to(v.dtype) @ v).float()
            target = over_common if bundle.start < self.common else over_prefix
            of_group = (top, weights.sum(dim=-1, keepdim=True), mixed)
            for of_all, own in zip(target, of_group, strict=True):
                by_slot = own.view(count, heads, -1, shared_by, own.shape[-1]).transpose(1, 2).flatten(0, 1)
                of_all[row.to(device)] = by_slot[slot.to(device)]
        joined = _join([over_added, over_common, over_prefix])
        return joined.to(values.dtype).reshape(rows, q_heads, -1)


Continuation = CopiedPrefix | SharedPrefix


def rest_of_trigger(
    hf_model: HFModel, prefixes: Sequence[KeyValues], origins: Sequence[tuple[int, int]]
) -> Iterator[tuple[slice, int, torch.Tensor]]:
    """Yield, for some origins at a time, each token of " [" but the first, and the hidden states (n, D) before it."""
    per = max(1, hf_model.budget.tokens // max((n for _, n in origins), default=1))
    for at in range(0, len(origins), per):
        rows = CopiedPrefix(hf_model, prefixes, origins[at : at + per], len(hf_model.trigger))
        for token, following in pairwise(hf_model.trigger):
            fed = torch.full((len(rows.origins),), token, device=hf_model.device)
            yield slice(at, at + per), following, rows.feed(fed)


def _padded(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return tensors (1, H, T, D) as one (P, H, T, D), with zeros after the shorter ones."""
    if len(parts) == 1:
        return parts[0]
    longest = max(x.shape[2] for x in parts)
    return torch.cat([torch.nn.functional.pad(x, (0, 0, 0, longest - x.shape[2])) for x in parts])


def _join(parts: Sequence[_PartialAttention]) -> torch.Tensor:
    """Combine attention over several parts into attention over all of them (one softmax over all scores)."""
    top = torch.stack([p.top for p in parts]).amax(dim=0)
    shares = [(p.top - top).exp_() for p in parts]
    total = sum(share * p.total for share, p in zip(shares, parts, strict=True))
    return cast(torch.Tensor, sum(share * p.mixed for share, p in zip(shares, parts, strict=True)) / total)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    shared_prefix: SharedPrefix | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Hugging Face's attention interface: (R, Hq, 1, D) in, (R, 1, Hq, D) out."""
    unsupported = attention_mask is not None or kwargs.get("softcap") or kwargs.get("s_aux") is not None
    if shared_prefix is None or unsupported:
        raise NotImplementedError("this model needs more from its attention than a shared prefix offers")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = shared_prefix.attend(module.layer_idx, query[:, :, 0], key, value, scale, sliding_window)
    return out[:, None], None


AttentionInterface.register(_ATTENTION, _attention)
