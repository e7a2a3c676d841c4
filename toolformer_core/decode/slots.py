"""Keys and values of many sequences of different lengths, each in a row of its own, filled in place.

    column c of row r holds token c of the sequence in row r; its position is c

So a sequence can take one token or many, be left out of a pass, be cut back, or move to another row, and none of that
touches the others. A pass is exact: every query sees the columns of its own row up to itself (within the window, if
the model has one). Tokens that pad a pass are written to the last column, which nobody reads. Sequences of one length
need no mask of ours, and then the model makes its own.

It knows no text and no sampling; the caller says which rows exist and how long they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from toolformer_core.errors import ModelError
from toolformer_core.lm.agreement import REFUSING, agree, difference
from toolformer_core.lm.batches import key_values
from toolformer_core.lm.memory import out_of_memory
from toolformer_core.lm.network import Network

__all__ = ["Slots", "bytes_per_token"]

_BLOCK = 64  # columns are allotted in multiples of this


@dataclass(slots=True)
class _Pass:
    """Where the tokens (n, T) of one pass are written, and what is read."""

    rows: slice | torch.Tensor  # a slice: read without copying
    start: int | None  # the column all rows begin at, or None
    where: tuple[torch.Tensor, torch.Tensor]  # rows and columns, (n, T) each; used if there is no `start`
    end: int  # columns read


class _Layer(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's buffers (R, H, C, D)."""

    keys: Any
    values: Any

    def __init__(self, slots: Slots) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.slots = slots

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        def buffer(states: torch.Tensor) -> torch.Tensor:  # zeros, as what is masked still meets a weight of 0
            return states.new_zeros(self.slots.rows, states.shape[1], self.slots.columns, states.shape[3])

        self.keys, self.values = buffer(key_states), buffer(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._put(self.keys, key_states), self._put(self.values, value_states)

    def _put(self, held: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        now = self.slots.now
        if isinstance(now.rows, slice) and now.start is not None:
            held[now.rows, :, now.start : now.end] = states
        else:
            held.transpose(1, 2)[now.where] = states.transpose(1, 2)  # (n, T, H, D)
        if isinstance(now.rows, slice):
            return held[now.rows, :, : now.end]
        return held[:, :, : now.end].index_select(0, now.rows)

    def get_seq_length(self) -> int:
        return self.slots.now.start or 0  # asked only where the model makes the mask itself

    def resize(self) -> None:
        if self.is_initialized:
            self.keys, self.values = (self._grown(x) for x in (self.keys, self.values))

    def _grown(self, held: torch.Tensor) -> torch.Tensor:
        grown = held.new_zeros(self.slots.rows, held.shape[1], self.slots.columns, held.shape[3])
        rows = min(held.shape[0], self.slots.rows)
        kept = min(held.shape[2], self.slots.columns) - 1  # the padding's column is not kept
        grown[:rows, :, :kept] = held[:rows, :, :kept]
        return grown


class Slots:
    """Rows of keys and values for one model. Not for several threads."""

    def __init__(self, network: Network) -> None:
        self.network = network
        config = network.model.config.get_text_config()
        window = getattr(config, "sliding_window", None)
        types = getattr(config, "layer_types", None) or ()
        self._by_type = "sliding_attention" in types and len(set(types)) > 1
        every = "sliding_attention" in types or not types  # no types: every layer has the window, if there is one
        self._window: int | None = int(window) if window and every else None
        self.release()

    def release(self) -> None:
        """Give all memory back."""
        self.rows = self.columns = 0
        self.now = _Pass(slice(0, 0), 0, (torch.empty(0), torch.empty(0)), 0)
        self._cache = DynamicCache()
        layers = self.network.model.config.get_text_config().num_hidden_layers
        self._layers = [_Layer(self) for _ in range(layers)]
        self._cache.layers = list(self._layers)
        self._cache.layer_class_to_replicate = None

    @staticmethod
    def columns_for(tokens: int) -> int:
        """Return the columns a row of this many tokens takes: whole blocks, and one column for padding."""
        return -(-(tokens + 1) // _BLOCK) * _BLOCK

    def reserve(self, rows: int, columns: int, limit: int) -> None:
        """Make room for rows of `columns` columns (see `columns_for`), with some to spare if the limit allows.

        Args:
            rows: all rows in use lie below.
            columns: no row in use is longer.
            limit: the most that rows times columns may be.
        """
        if rows <= self.rows and columns <= self.columns:
            return
        wide = max(columns, self.columns)
        spare = 2 * self.rows if rows > self.rows else self.rows
        for tall in (max(rows, spare), max(rows, self.rows)):
            if tall * wide <= limit:
                self.rows, self.columns = tall, wide
                break
        else:
            self.rows, self.columns = rows, columns
        for layer in self._layers:
            layer.resize()

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one row over another row."""
        for held in self._buffers():
            held[target, :, :length] = held[source, :, :length]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange two rows, as far as `length` tokens."""
        pair = torch.tensor([one, other], device=self.network.device)
        for held in self._buffers():
            held[pair.flip(0), :, :length] = held[pair, :, :length]

    def _buffers(self) -> list[torch.Tensor]:
        return [x for layer in self._layers if layer.is_initialized for x in (layer.keys, layer.values)]

    def feed(self, rows: Sequence[int], starts: Sequence[int], tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Run tokens through the model, each row's behind the first `starts[i]` tokens it holds.

        The rows must be reserved, and hold room for their tokens.

        Returns:
            The hidden state after each row's last token (n, D).
        """
        network, device, n = self.network, self.network.device, len(rows)
        lengths = [len(t) for t in tokens]
        longest = max(lengths)
        ids = torch.tensor([[*t, *([0] * (longest - len(t)))] for t in tokens], device=device)  # (n, T)
        start = torch.tensor(starts, device=device)
        end = max(s + t for s, t in zip(starts, lengths, strict=True))
        where = columns = start[:, None] + torch.arange(longest, device=device)  # (n, T)
        ragged = min(lengths) < longest
        if ragged:
            padding = torch.arange(longest, device=device) >= torch.tensor(lengths, device=device)[:, None]
            columns = where.masked_fill(padding, self.columns - 1)
            where = where.clamp_max(network.context_length - 1)
        # where all begin at one column, causality hides what pads a first pass, as it stands behind the row's tokens
        alike = min(starts) == max(starts) and (starts[0] == 0 or not ragged)
        row = torch.tensor(rows, device=device)
        together = list(rows) == list(range(rows[0], rows[0] + n))
        self.now = _Pass(
            slice(rows[0], rows[0] + n) if together else row,
            starts[0] if alike else None,
            (row[:, None], columns),
            end,
        )
        mask = None if alike else self._mask(start, longest, end)
        hidden = network.hidden(ids, mask, where, self._cache)  # type: ignore[arg-type]
        if longest == 1:
            return hidden[:, -1]
        return hidden[torch.arange(n, device=device), torch.tensor(lengths, device=device) - 1]

    def _mask(self, start: torch.Tensor, longest: int, end: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """What is added to the attention scores (n, 1, T, end), per kind of layer where a model has several."""
        device, dtype = start.device, self.network.model.dtype
        column = torch.arange(end, device=device)
        query = (start[:, None] + torch.arange(longest, device=device))[:, :, None]  # (n, T, 1)
        hidden = column > query
        least = torch.finfo(dtype).min
        full = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, least)[:, None]
        if self._window is None:
            return full
        near = full.masked_fill((column <= query - self._window)[:, None], least)
        return {"full_attention": full, "sliding_attention": near} if self._by_type else near


def bytes_per_token(network: Network) -> int:
    """Return what a token's keys and values take, after a trial of the model with rows of different lengths.

    Raises:
        ModelError: the model's numbers are other ones this way (it keeps no plain keys and values, or biases its
            attention by where a token stands in the batch); or there is no memory to try it.
    """
    (size,) = network.budget.in_parts([network], lambda _: _tried(network))
    return size


def _tried(network: Network) -> int:
    vocabulary = network.model.config.get_text_config().vocab_size
    one, other = ([i % vocabulary for i in range(first, first + 7)] for first in (1, 4))
    slots = Slots(network)
    slots.reserve(2, _BLOCK, 2 * _BLOCK)
    with network.lock, torch.inference_mode():
        try:
            slots.feed([0, 1], [0, 0], [one[:3], other[:5]])
            slots.feed([1], [5], [other[5:6]])
            slots.swap(0, 1, 6)
            slots.feed([1], [3], [one[3:6]])
            got = [network.logits(slots.feed([0, 1], [6, 6], [other[6:], one[6:]]))]
            slots.feed([0, 1], [3, 6], [other[3:6], one[6:]])
            got.append(network.logits(slots.feed([0, 1], [6, 6], [other[6:], one[6:]])))
            wanted = _plain(network, [other, one])
            size = sum(2 * keys[0, :, 0].numel() * keys.element_size() for keys, _ in key_values(slots._cache))
        except (NotImplementedError, TypeError, AttributeError, RuntimeError, ValueError, IndexError, KeyError) as exc:
            if out_of_memory(exc):
                raise
            raise ModelError(f"model {network.name!r} cannot decode rows of different lengths: {exc}") from exc
    if not all(agree(logits, wanted, network.model.dtype, slack=REFUSING) for logits in got):
        apart = max(difference(logits, wanted) for logits in got)
        raise ModelError(
            f"model {network.name!r} cannot decode rows of different lengths (logits {apart:.2g} of their size apart)"
        )
    return size


def _plain(network: Network, rows: list[list[int]]) -> torch.Tensor:
    ids = torch.tensor(rows, device=network.device)
    where = torch.arange(ids.shape[1], device=network.device).expand(len(rows), -1)
    return network.logits(network.hidden(ids, torch.ones_like(ids), where, None)[:, -1])
