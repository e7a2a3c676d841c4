"""Token rows of different lengths, put together so that little of a batch is padding. It knows no model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from toolformer_core.tools.base import ToolLimits
from toolformer_core.tools.hf.checkpoint import find_checkpoint

T = TypeVar("T")


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


class BatchedModel(ABC, Generic[T]):
    """A checkpoint that is loaded on first use and works on one batch at a time; threads take turns.

    What is pickled are the arguments; each process loads the checkpoint itself.

    Args:
        model: a folder or a hub name.
        batch: texts that are worked on together, at most.

    Raises:
        ModelError: the model's files are not found.
    """

    def __init__(self, model: str, *, batch: int) -> None:
        self.model = model
        self.batch = batch
        self._checkpoint = find_checkpoint(model)
        self._loaded: T | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "batch": self.batch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def limits(self) -> ToolLimits:
        """One batch at a time: the model is busy with it."""
        return ToolLimits(at_once=1, batch=self.batch, timeout_s=600.0)

    def load(self) -> None:
        """Load the model, if it is not loaded yet.

        Raises:
            ModelError: it cannot be loaded.
        """
        self._ready()

    def _ready(self) -> T:
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    @abstractmethod
    def _load(self) -> T:
        """Load the checkpoint."""
