"""Rows of tokens into tensors: padding, batches cut by a token budget, and forks of a cache of keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

__all__ = ["KeyValues", "by_budget", "fork", "key_values", "one_row", "pad"]

KeyValues = list[tuple[torch.Tensor, torch.Tensor]]  # per layer, (B, H, T, D) each


def key_values(cache: DynamicCache) -> KeyValues:
    """Return the keys and values a cache holds, per layer."""
    layers: list[Any] = list(cache.layers)
    return [(layer.keys, layer.values) for layer in layers]


def pad(rows: Sequence[NDArray[np.int64]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows on the right: ids and mask, (B, T) each."""
    ids = np.zeros((len(rows), max(len(r) for r in rows)), dtype=np.int64)
    mask = np.zeros_like(ids)
    for b, r in enumerate(rows):
        ids[b, : len(r)] = r
        mask[b, : len(r)] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def by_budget(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Cut the indices of lengths, best ascending, into batches of at most `budget` tokens, padding included."""
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


def fork(
    prefixes: Sequence[KeyValues], rows: Sequence[int], lengths: Sequence[int]
) -> tuple[DynamicCache, torch.Tensor]:
    """Copy the first `lengths[r]` keys and values of prefix `rows[r]` into a new cache, aligned to the right.

    Returns:
        The cache of R rows and max(lengths) columns, and its mask (R, max(lengths)).
    """
    longest = max(lengths)
    mask = torch.zeros(len(rows), longest, dtype=torch.long, device=prefixes[0][0][0].device)
    for r, length in enumerate(lengths):
        mask[r, longest - length :] = 1
    layers = []
    for held in zip(*prefixes, strict=True):  # one layer of every prefix
        both = []
        for side in (0, 1):  # keys, values
            like = held[0][side]  # (1, H, T, D)
            copied = like.new_zeros(len(rows), like.shape[1], longest, like.shape[3])
            for r, (row, length) in enumerate(zip(rows, lengths, strict=True)):
                copied[r, :, longest - length :] = held[row][side][0, :, :length]
            both.append(copied)
        layers.append((both[0], both[1]))
    return DynamicCache(ddp_cache_data=layers), mask


def one_row(kv: KeyValues, row: int) -> KeyValues:
    """The keys and values of one row, (1, H, T, D) per layer; nothing is copied."""
    return [(keys[row : row + 1], values[row : row + 1]) for keys, values in kv]
