"""Turns rows of tokens into tensors: padding, batches within a token budget, and copies of a key-value cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

if TYPE_CHECKING:
    from toolformer_core.lm.hf.model import HFModel

KeyValues = list[tuple[torch.Tensor, torch.Tensor]]  # per layer, (B, H, T, D) each


def key_values(cache: DynamicCache) -> KeyValues:
    layers: list[Any] = list(cache.layers)
    return [(layer.keys, layer.values) for layer in layers]


def pad(rows: Sequence[NDArray[np.int64]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    ids = np.zeros((len(rows), max(len(r) for r in rows)), dtype=np.int64)
    mask = np.zeros_like(ids)
    for b, r in enumerate(rows):
        ids[b, : len(r)] = r
        mask[b, : len(r)] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def by_budget(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Split the indices of lengths into batches of at most `budget` tokens, padding included, of at least one row."""
    batch: list[int] = []
    longest = 0
    for i, length in enumerate(lengths):
        if batch and (len(batch) + 1) * max(longest, length) > budget:
            yield batch
            batch, longest = [], 0
        batch.append(i)
        longest = max(longest, length)
    if batch:
        yield batch


def hidden_states(hf_model: HFModel, rows: Sequence[NDArray[np.int64]]) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Yield batches of rows (their indices) with their hidden states (B, T, D); the caller holds the model's lock."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for batch in by_budget([len(rows[i]) for i in order], hf_model.budget.tokens):
        chosen = [order[b] for b in batch]
        ids, mask = pad([rows[i] for i in chosen], hf_model.device)
        position = torch.arange(ids.shape[1], device=hf_model.device).expand(len(chosen), -1)
        yield chosen, hf_model.hidden(ids, mask, position, None)


def fork(
    prefixes: Sequence[KeyValues], rows: Sequence[int], lengths: Sequence[int]
) -> tuple[DynamicCache, torch.Tensor]:
    """Copy the first `lengths[r]` keys and values of prefix `rows[r]` into row r of a new cache, aligned right."""
    longest = max(lengths)
    mask = torch.zeros(len(rows), longest, dtype=torch.long, device=prefixes[0][0][0].device)
    for r, length in enumerate(lengths):
        mask[r, longest - length :] = 1

    def copied(of_prefixes: Sequence[torch.Tensor]) -> torch.Tensor:
        _, heads, _, width = of_prefixes[0].shape
        copy = of_prefixes[0].new_zeros(len(rows), heads, longest, width)
        for r, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            copy[r, :, longest - length :] = of_prefixes[row][0, :, :length]
        return copy

    # the same layer of every prefix; its keys, its values
    layers = [tuple(map(copied, zip(*layer, strict=True))) for layer in zip(*prefixes, strict=True)]
    return DynamicCache(ddp_cache_data=layers), mask


def one_row(kv: KeyValues, row: int) -> KeyValues:
    return [(keys[row : row + 1], values[row : row + 1]) for keys, values in kv]
