"""Rows of tokens into tensors: padding, batches cut by a token budget, and forks of a cache of keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

__all__ = ["KeyValues", "by_budget", "fork", "key_values", "pad"]

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
    """Cut the indices of ascending lengths into batches of at most `budget` tokens, padding included."""
    batch: list[int] = []
    for i, length in enumerate(lengths):
        if batch and (len(batch) + 1) * length > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def fork(kv: KeyValues, rows: Sequence[int], lengths: Sequence[int]) -> tuple[DynamicCache, torch.Tensor]:
    """Copy the first `lengths[r]` keys and values of row `rows[r]` into a new cache, aligned to the right.

    Returns:
        The cache of R rows and max(lengths) columns, and its mask (R, max(lengths)).
    """
    device = kv[0][0].device
    longest = max(lengths)
    row = torch.tensor(rows, device=device)[:, None]
    column = torch.arange(longest, device=device)[None] - (longest - torch.tensor(lengths, device=device)[:, None])
    mask = (column >= 0).long()
    column = column.clamp_min(0)
    layers = []
    for keys, values in kv:  # (B, H, T, D) -> (R, H, L, D)
        k, v = (x.transpose(1, 2)[row, column].transpose(1, 2) for x in (keys, values))
        layers.append((k, v))
    return DynamicCache(ddp_cache_data=layers), mask
