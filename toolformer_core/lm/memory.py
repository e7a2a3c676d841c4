"""How much a pass may hold: budgets taken from the memory that is free, and half of a batch where it was too much.

A budget is a guess before the first pass. Where a pass runs out of memory its batch is cut in two, the budget halved
for all that come after, and a warning says so; one sequence alone that does not fit is an error a user can mend. How a
batch is cut changes no answer. It knows no models beyond the sizes in their configuration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from toolformer_core.errors import ModelError

__all__ = ["Budget", "free_bytes", "out_of_memory"]

_LOG = logging.getLogger(__name__)
_CPU_ACTIVATIONS = 1 << 21  # a layer's widest, in numbers: more makes no processor faster, and memory slower
_GPU_TOKENS = 131_072
_CPU_CACHE = 1 << 30
_SMALLEST = 64
_FULL_WORDS = ("can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")  # of a plain RuntimeError

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class Budget:
    """What one pass may hold; halved when that was too much."""

    tokens: int  # of a batch, padding included
    cache: int  # bytes of keys and values that the draws of one round may hold

    @classmethod
    def automatic(cls, model: Any, device: torch.device) -> Budget:
        """A budget of half the memory that is free on a device, for a model that is loaded there."""
        free = free_bytes(device)
        gpu = device.type != "cpu"
        most = _GPU_TOKENS if gpu else max(512, _CPU_ACTIVATIONS // _widest(model))
        return cls(
            max(_SMALLEST, min(free // 4 // _bytes_per_token(model), most)),
            max(1 << 20, free // 4 if gpu else min(free // 4, _CPU_CACHE)),
        )

    def in_parts(self, items: Sequence[Item], run: Callable[[Sequence[Item]], Result]) -> Iterator[Result]:
        """Run over all items at once, or over halves of them, and halves of those, where memory does not suffice.

        Args:
            items: at least one.
            run: gives the same answers however the items are cut, and may be begun again.

        Raises:
            ModelError: one item alone is too much.
        """
        try:
            done = run(items)
        except (RuntimeError, MemoryError) as exc:
            if not out_of_memory(exc):
                raise
            if len(items) == 1:
                raise ModelError(
                    "out of memory with one sequence alone; take a smaller model, another device, or shorter texts"
                ) from exc
            full = True
        else:
            full = False
        if not full:
            yield done
            return
        self._halve(len(items))  # outside the handler: its traceback would hold the batch's tensors
        middle = len(items) // 2
        yield from self.in_parts(items[:middle], run)
        yield from self.in_parts(items[middle:], run)

    def _halve(self, rows: int) -> None:
        self.tokens = max(_SMALLEST, self.tokens // 2)
        self.cache = max(1 << 20, self.cache // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        _LOG.warning(
            "out of memory with a batch of %d sequences: it is cut in two, and from now on a batch holds %d tokens and "
            "%d MiB of drawn calls at most",
            rows,
            self.tokens,
            self.cache >> 20,
        )


def free_bytes(device: torch.device) -> int:
    """Return the memory free on a device: of a GPU, or of this machine and the limit this process runs under."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = [_available(Path("/proc/meminfo")), _below_limit(Path("/sys/fs/cgroup"))]
    return min((n for n in known if n is not None), default=4 << 30)


def _available(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    told = (line.split() for line in lines if line.startswith("MemAvailable:"))
    return next((int(words[1]) * 1024 for words in told), None)


def _below_limit(group: Path) -> int | None:
    try:
        limit, used = ((group / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    return max(0, int(limit) - int(used)) if limit.isdecimal() else None


def _bytes_per_token(model: Any) -> int:
    """What a token of a pass holds at most: its keys and values in every layer, and one layer's activations."""
    config = model.config.get_text_config()
    width = int(config.hidden_size)
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    kv = 2 * int(config.num_hidden_layers) * width * kv_heads // heads
    return (2 * kv + 8 * width + 4 * _widest(model)) * int(
        model.dtype.itemsize
    )  # twice: a cache is copied where it grows


def _widest(model: Any) -> int:
    """How wide a layer's widest activations are."""
    config = model.config.get_text_config()
    return int(getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * config.hidden_size)


def out_of_memory(exc: BaseException) -> bool:
    """Return whether an error says that memory does not suffice: a GPU's, cuBLAS's, the CPU's or Python's own."""
    return isinstance(exc, (torch.OutOfMemoryError, MemoryError)) or any(words in str(exc) for words in _FULL_WORDS)
