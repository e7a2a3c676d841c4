"""Limits how much a pass may hold: budgets derived from free memory, and halved when a pass runs out of memory.

Its batch is then split in two, which changes no result.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from toolformer_core.errors import ModelError

_LOG = logging.getLogger(__name__)
_CPU_ACTIVATIONS = 1 << 21  # elements of a layer's widest activations: more does not speed up a CPU, but costs memory
_GPU_TOKENS = 131_072
_CPU_CACHE = 1 << 30  # bytes
_MIN_TOKENS = 64
_MIN_CACHE = 1 << 20  # bytes
# what an error says when memory runs out
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class Budget:
    """What one pass may hold; halved when a pass runs out of memory."""

    tokens: int  # per batch, padding included
    cache: int  # bytes of keys and values that the samples of one round may hold

    @classmethod
    def for_model(cls, model: Any, device: torch.device, tokens: int | None, cache: int | None) -> Budget:
        """Return the budget that is given, where it is None half the free memory of the device that has the model."""
        quarter, gpu = free_bytes(device) // 4, device.type != "cpu"
        max_tokens = _GPU_TOKENS if gpu else max(512, _CPU_ACTIVATIONS // _widest(model))
        automatic = max(_MIN_TOKENS, min(quarter // _bytes_per_token(model), max_tokens))
        automatic_cache = max(_MIN_CACHE, quarter if gpu else min(quarter, _CPU_CACHE))
        return cls(automatic if tokens is None else tokens, automatic_cache if cache is None else cache)

    def in_parts(self, items: Sequence[Item], run: Callable[[Sequence[Item]], Result]) -> Iterator[Result]:
        """Run over all items, at least one, at once; if memory runs out, over halves of them, and so on.

        The function gives the same results however the items are split. A ModelError if a single one does not fit.
        """
        try:
            result = run(items)
        except (RuntimeError, MemoryError) as exc:
            if not out_of_memory(exc):
                raise
            if len(items) == 1:
                raise ModelError(
                    "out of memory with a single sequence; use a smaller model, another device, or shorter texts"
                ) from exc
        else:
            yield result
            return
        self._halve(len(items))  # outside the handler, where the traceback would keep the batch's tensors alive
        middle = len(items) // 2
        yield from self.in_parts(items[:middle], run)
        yield from self.in_parts(items[middle:], run)

    def _halve(self, rows: int) -> None:
        self.tokens = max(_MIN_TOKENS, self.tokens // 2)
        self.cache = max(_MIN_CACHE, self.cache // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        _LOG.warning(
            f"out of memory with a batch of {rows} sequences: it is split in two, and from now on a batch holds at "
            f"most {self.tokens} tokens and {self.cache >> 20} MiB of drawn calls"
        )


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device; for the CPU, that of this machine or of the process's cgroup, if less."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limits = [_available(Path("/proc/meminfo")), _below_limit(Path("/sys/fs/cgroup"))]
    return min((n for n in limits if n is not None), default=4 << 30)


def _available(meminfo: Path) -> int | None:
    text = meminfo.read_text(encoding="ascii") if meminfo.is_file() else ""
    found = re.search(r"^MemAvailable: +(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _below_limit(group: Path) -> int | None:
    try:
        limit, used = ((group / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    return max(0, int(limit) - int(used)) if limit.isdecimal() else None


def _bytes_per_token(model: Any) -> int:
    """Return the most bytes that a token of a pass takes: keys and values of all layers, activations of one layer."""
    config = model.config.get_text_config()
    width = int(config.hidden_size)
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    kv = 2 * int(config.num_hidden_layers) * width * kv_heads // heads
    values = 2 * kv + 8 * width + 4 * _widest(model)  # 2 kv: a cache is copied when it grows
    return values * int(model.dtype.itemsize)


def _widest(model: Any) -> int:
    config = model.config.get_text_config()
    return int(getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * config.hidden_size)


def out_of_memory(exc: BaseException) -> bool:
    """Return whether an error says that memory ran out: on the GPU, in cuBLAS, on the CPU or in Python itself."""
    return isinstance(exc, (torch.OutOfMemoryError, MemoryError)) or any(words in str(exc) for words in _OUT_OF_MEMORY)
