"""Keys and values of many sequences of different lengths, one row each, filled in place.

Column c of row r holds token c of the sequence in row r, whose position is c. So a sequence can take one token or many,
skip a pass, be cut back, or move to another row. Padding is written to the last column, which is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from toolformer_core.errors import ModelError
from toolformer_core.lm.hf.agreement import agree, difference
from toolformer_core.lm.hf.batches import key_values
from toolformer_core.lm.hf.memory import out_of_memory
from toolformer_core.lm.hf.model import HFModel

_BLOCK = 64  # columns are allocated in multiples of this


@dataclass(slots=True)
class _CachePass:
    """Where the tokens (n, T) of one pass are written, and what is read."""

    rows: slice | torch.Tensor  # a slice is read without copying
    start: int | None  # the column at which all rows start, or None
    index: tuple[torch.Tensor, torch.Tensor]  # rows and columns, (n, T) each; used if there is no `start`
    end: int  # columns read


class _Layer(DynamicLayer):  # type: ignore[no-untyped-call]
    """The buffers of one layer (R, H, C, D)."""

    keys: Any
    values: Any

    def __init__(self, cache: KVCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = self._empty(key_states), self._empty(value_states)
        self.is_initialized = True

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        """Return zeros, because masked columns are multiplied by 0."""
        return like.new_zeros(self.cache.rows, like.shape[1], self.cache.columns, like.shape[3])

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._put(self.keys, key_states), self._put(self.values, value_states)

    def _put(self, buffer: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        current = self.cache.current
        if isinstance(current.rows, slice) and current.start is not None:
            buffer[current.rows, :, current.start : current.end] = states
        else:
            buffer.transpose(1, 2)[current.index] = states.transpose(1, 2)  # (n, T, H, D)
        if isinstance(current.rows, slice):
            return buffer[current.rows, :, : current.end]
        return buffer[:, :, : current.end].index_select(0, current.rows)

    def get_seq_length(self) -> int:
        return self.cache.current.start or 0  # only used when the model makes the mask itself

    def resize(self) -> None:
        if self.is_initialized:
            self.keys, self.values = (self._resized(x) for x in (self.keys, self.values))

    def _resized(self, buffer: torch.Tensor) -> torch.Tensor:
        resized = self._empty(buffer)
        rows = min(len(buffer), len(resized))
        columns = min(buffer.shape[2], resized.shape[2]) - 1  # the padding column is not kept
        resized[:rows, :, :columns] = buffer[:rows, :, :columns]
        return resized


class KVCache:
    """Rows of keys and values for one model. Not thread-safe."""

    def __init__(self, hf_model: HFModel) -> None:
        self.hf_model = hf_model
        self._config = hf_model.model.config.get_text_config()
        window = getattr(self._config, "sliding_window", None)
        types = getattr(self._config, "layer_types", None) or (
            "sliding_attention",
        )  # without types, it is every layer's
        self._mixed_layers = "sliding_attention" in types and len(set(types)) > 1
        self._window: int | None = int(window) if window and "sliding_attention" in types else None
        self.release()

    def release(self) -> None:
        """Free all memory."""
        self.rows = self.columns = 0
        self.current = _CachePass(slice(0, 0), 0, (torch.empty(0), torch.empty(0)), 0)
        self._cache = DynamicCache()
        self._layers = [_Layer(self) for _ in range(self._config.num_hidden_layers)]
        self._cache.layers = list(self._layers)
        self._cache.layer_class_to_replicate = None

    @staticmethod
    def columns_for(tokens: int) -> int:
        """Return the columns that a row of this many tokens takes: whole blocks, including one column for padding."""
        return -(-(tokens + 1) // _BLOCK) * _BLOCK

    def reserve(self, rows: int, columns: int, limit: int) -> None:
        """Allocate rows of `columns` columns (see `columns_for`), and spare rows if all of them keep to the limit."""
        if rows <= self.rows and columns <= self.columns:
            return
        wanted = max(columns, self.columns)
        with_spare_rows = 2 * self.rows if rows > self.rows else self.rows
        sizes = ((max(rows, with_spare_rows), wanted), (max(rows, self.rows), wanted))
        self.rows, self.columns = next(((r, c) for r, c in sizes if r * c <= limit), (rows, columns))
        for layer in self._layers:
            layer.resize()

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one row over another row."""
        for buffer in self._buffers():
            buffer[target, :, :length] = buffer[source, :, :length]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` tokens of two rows."""
        pair = torch.tensor([one, other], device=self.hf_model.device)
        for buffer in self._buffers():
            buffer[pair.flip(0), :, :length] = buffer[pair, :, :length]

    def _buffers(self) -> list[torch.Tensor]:
        return [x for layer in self._layers if layer.is_initialized for x in (layer.keys, layer.values)]

    def feed(self, rows: Sequence[int], starts: Sequence[int], tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Run tokens through the model; those of row `rows[i]` follow the first `starts[i]` tokens it holds.

        The rows must be reserved, with room for their tokens. Returns the hidden states after the last tokens (n, D).
        """
        hf_model, device, n = self.hf_model, self.hf_model.device, len(rows)
        lengths = [len(t) for t in tokens]
        longest = max(lengths)
        ids = torch.tensor([[*t, *([0] * (longest - len(t)))] for t in tokens], device=device)  # (n, T)
        start = torch.tensor(starts, device=device)
        end = max(s + t for s, t in zip(starts, lengths, strict=True))
        position = columns = start[:, None] + torch.arange(longest, device=device)  # (n, T)
        ragged = min(lengths) < longest
        if ragged:
            padding = torch.arange(longest, device=device) >= torch.tensor(lengths, device=device)[:, None]
            columns = position.masked_fill(padding, self.columns - 1)
            position = position.clamp_max(hf_model.context_length - 1)
        # If all rows start at the same column, causality alone hides the padding of a first pass, since it comes last.
        aligned = min(starts) == max(starts) and (starts[0] == 0 or not ragged)
        row = torch.tensor(rows, device=device)
        contiguous = list(rows) == list(range(rows[0], rows[0] + n))
        read = slice(rows[0], rows[0] + n) if contiguous else row
        self.current = _CachePass(read, starts[0] if aligned else None, (row[:, None], columns), end)
        mask = None if aligned else self._mask(start, longest, end)
        hidden = hf_model.hidden(ids, mask, position, self._cache)  # type: ignore[arg-type]
        if longest == 1:
            return hidden[:, -1]
        return hidden[torch.arange(n, device=device), torch.tensor(lengths, device=device) - 1]

    def _mask(self, start: torch.Tensor, longest: int, end: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """Return what is added to the attention scores (n, 1, T, end); per kind of layer if a model has several."""
        device, dtype = start.device, self.hf_model.model.dtype
        column = torch.arange(end, device=device)
        query = (start[:, None] + torch.arange(longest, device=device))[:, :, None]  # (n, T, 1)
        hidden = column > query
        least = torch.finfo(dtype).min
        full = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, least)[:, None]
        if self._window is None:
            return full
        near = full.masked_fill((column <= query - self._window)[:, None], least)
        return {"full_attention": full, "sliding_attention": near} if self._mixed_layers else near


def bytes_per_token(hf_model: HFModel) -> int:
    """Return the bytes of a token's keys and values; a `ModelError` if rows of different lengths change the numbers."""
    vocabulary = hf_model.model.config.get_text_config().vocab_size
    one, other = ([i % vocabulary for i in range(first, first + 7)] for first in (1, 4))
    cache = KVCache(hf_model)
    cache.reserve(2, _BLOCK, 2 * _BLOCK)
    with hf_model.lock, torch.inference_mode():
        try:
            cache.feed([0, 1], [0, 0], [one[:3], other[:5]])
            cache.feed([1], [5], [other[5:6]])
            cache.swap(0, 1, 6)
            cache.feed([1], [3], [one[3:6]])
            ragged_logits = [hf_model.logits(cache.feed([0, 1], [6, 6], [other[6:], one[6:]]))]
            cache.feed([0, 1], [3, 6], [other[3:6], one[6:]])
            ragged_logits.append(hf_model.logits(cache.feed([0, 1], [6, 6], [other[6:], one[6:]])))
            ids = torch.tensor([other, one], device=hf_model.device)
            position = torch.arange(ids.shape[1], device=hf_model.device).expand(2, -1)
            plain = hf_model.logits(hf_model.hidden(ids, torch.ones_like(ids), position, None)[:, -1])
            size = sum(2 * keys[0, :, 0].numel() * keys.element_size() for keys, _ in key_values(cache._cache))
        except (TypeError, AttributeError, RuntimeError, ValueError, LookupError, MemoryError) as exc:
            if out_of_memory(exc):
                raise ModelError(
                    f"out of memory with two rows of 7 tokens ({hf_model.name}); use a smaller model, or another device"
                ) from exc
            raise ModelError(f"model {hf_model.name!r} cannot decode rows of different lengths: {exc}") from exc
    if not all(agree(logits, plain, hf_model.model.dtype) for logits in ragged_logits):
        measured = max(difference(logits, plain) for logits in ragged_logits)
        raise ModelError(
            f"model {hf_model.name!r} cannot decode rows of different lengths (its logits differ by {measured:.2g} of "
            "their size)"
        )
    return size
