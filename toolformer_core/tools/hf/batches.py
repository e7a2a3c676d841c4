"""Token rows of different lengths, put together so that little of a batch is padding. It knows no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield batches of rows as lists of their numbers, the longest rows first.

    Args:
        lengths: tokens of each row.
        tokens: the most tokens of a batch, padding included; a longer row is a batch of its own.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda n: (-lengths[n], n)):
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens:  # the first row is the longest
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def padded(rows: Sequence[Sequence[int]], filler: int, device: Any) -> Any:
    """Return rows of token ids as one integer tensor (rows, longest row), filled up on the right."""
    import torch

    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows], device=device)
