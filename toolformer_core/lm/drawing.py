"""Drawing calls from a scan's own keys and values: one fork per position, one row per draw, until "]" closes in text.

A draw's randomness is its seed and the step alone (SplitMix64 into an inverse CDF), never a generator's state, so the
same seed at the same place gives the same draw whatever else is in the batch. It does not know what a call means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from toolformer_core.lm.base import Draw
from toolformer_core.lm.batches import KeyValues, fork, key_values
from toolformer_core.lm.branches import Branches, works_for
from toolformer_core.lm.network import Network
from toolformer_core.syntax import find_close

__all__ = ["draw_calls", "uniform"]


def uniform(seeds: NDArray[np.uint64], step: int) -> NDArray[np.float64]:
    """Return one number in [0, 1) per seed for this step: SplitMix64's output function, top 53 bits.  (R,)"""
    with np.errstate(over="ignore"):
        z = seeds + np.uint64(step + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return np.asarray((z >> np.uint64(11)).astype(np.float64) / float(1 << 53))


def draw_calls(
    network: Network,
    kv: KeyValues,
    places: list[tuple[int, int]],
    seeds: list[int],
    max_tokens: int,
    temperature: float,
) -> list[Draw]:
    """Draw one continuation of " [" per place.

    Args:
        network: the model.
        kv: keys and values of a scan's pass; they are not changed.
        places: per draw (row of `kv`, how many of its tokens stand before " [").
        seeds: per draw, 64 bits.
        max_tokens: tokens a draw may take, its "]" included.
        temperature: 1 draws from the model's own distribution.
    """
    per_token = sum(2 * keys[0, :, 0].numel() * keys.element_size() for keys, _ in kv)
    if network.shares_prefixes is None:
        network.shares_prefixes = works_for(network)
    shared = network.shares_prefixes
    # draws of one document stand together where they share its keys and values, of one length where they do not
    order = sorted(range(len(places)), key=lambda i: places[i] if shared else (places[i][1], places[i][0]))
    out: list[Draw | None] = [None] * len(places)
    at = 0
    while at < len(order):
        end = at + 1  # as many draws as the budget for keys and values of their own allows
        while end < len(order):
            held = max_tokens if shared else places[order[end]][1] + max_tokens
            if (end + 1 - at) * held * per_token > network.cache_budget:
                break
            end += 1
        chunk = order[at:end]
        steps: Steps = (Branches if shared else Forks)(
            network, kv, [places[i] for i in chunk], max_tokens + len(network.trigger)
        )
        drawn = _Rows(network, steps, [places[i] for i in chunk], [seeds[i] for i in chunk], temperature).run(
            max_tokens
        )
        for i, draw in zip(chunk, drawn, strict=True):
            out[i] = draw
        at = end
    return [d for d in out if d is not None]


class _Rows:
    """The draws of one chunk while they are being written."""

    def __init__(
        self, network: Network, steps: Steps, places: list[tuple[int, int]], seeds: list[int], temperature: float
    ) -> None:
        self.network = network
        self.steps = steps
        self.temperature = temperature
        self.seeds = np.asarray(seeds, dtype=np.uint64)
        # a row's room is its own, whoever else is in the batch
        self.room = [network.context_length - n - len(network.trigger) for _, n in places]
        # the draws of one position share its first step
        unique = list(dict.fromkeys(places))
        steps.select(torch.tensor([places.index(p) for p in unique], device=network.device))
        logits = self._trigger(len(unique))
        index = {p: i for i, p in enumerate(unique)}
        rows = torch.tensor([index[p] for p in places], device=network.device)
        steps.select(rows)
        self.next_logits = logits[rows]
        self.closing = _closing_ids(network.tokenizer)

    def _trigger(self, rows: int) -> torch.Tensor:
        for token in self.network.trigger:
            hidden = self.steps.feed(torch.full((rows,), token, device=self.network.device))
        return self.network.logits(hidden)

    def _pick(self, step: int, active: list[int]) -> NDArray[np.int64]:
        probabilities = torch.softmax(self.next_logits / self.temperature, dim=1).double()
        edges = probabilities.cumsum(dim=1)  # (R, V)
        u = torch.from_numpy(uniform(self.seeds[active], step)).to(edges.device)[:, None] * edges[:, -1:]
        return torch.searchsorted(edges, u, right=True).clamp_max(edges.shape[1] - 1).squeeze(1).cpu().numpy()

    def run(self, max_tokens: int) -> list[Draw]:
        active = list(range(len(self.seeds)))
        written: list[list[int]] = [[] for _ in active]
        out: list[Draw | None] = [None] * len(active)
        allowed = [min(max_tokens, room) for room in self.room]
        for step in range(max(allowed)):
            picked = self._pick(step, active)
            still: list[int] = []
            for row, (draw, token) in enumerate(zip(active, picked.tolist(), strict=True)):
                if token in self.network.end_ids:
                    out[draw] = Draw(self._text(written[draw]), False)
                    continue
                written[draw].append(token)
                if token in self.closing and (close := find_close(text := self._text(written[draw]))) is not None:
                    out[draw] = Draw(text[:close], True)
                    continue
                if step + 1 < allowed[draw]:
                    still.append(row)
            if not still:
                break
            if len(still) < len(active):
                self.steps.select(torch.tensor(still, device=self.network.device))
                picked = picked[still]
                active = [active[row] for row in still]
            self.next_logits = self.network.logits(self.steps.feed(torch.from_numpy(picked).to(self.network.device)))
        return [d if d is not None else Draw(self._text(written[i]), False) for i, d in enumerate(out)]

    def _text(self, ids: list[int]) -> str:
        return str(self.network.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


class Steps(Protocol):
    """Rows that go on from places of a cache, one token at a time: `Branches`, or `Forks` for any other model."""

    def feed(self, tokens: torch.Tensor) -> torch.Tensor: ...

    def select(self, rows: torch.Tensor) -> None: ...


class Forks:
    """Rows with a copy each of the keys and values they continue: for models whose attention cannot share them."""

    def __init__(self, network: Network, kv: KeyValues, places: Sequence[tuple[int, int]], room: int) -> None:
        self.network = network
        self.kv = kv
        self.places = list(places)
        self.cache: DynamicCache | None = None  # copied when the first token comes, for the rows that are left
        self.where = torch.tensor([n for _, n in places], device=network.device)

    def feed(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.cache is None:
            self.cache, self.mask = fork(self.kv, [b for b, _ in self.places], [n for _, n in self.places])
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
        hidden = self.network.hidden(tokens[:, None], self.mask, self.where[:, None], self.cache)
        self.where = self.where + 1
        return hidden[:, -1]

    def select(self, rows: torch.Tensor) -> None:
        self.where = self.where[rows]
        if self.cache is None:
            self.places = [self.places[row] for row in rows.tolist()]
            return
        self.cache = DynamicCache(ddp_cache_data=[(k[rows], v[rows]) for k, v in key_values(self.cache)])
        self.mask = self.mask[rows]


def _closing_ids(tokenizer: Any) -> frozenset[int]:
    """The tokens whose text holds a "]"; only after one of them can a call have closed."""
    found = getattr(tokenizer, "_toolformer_closing_ids", None)
    if found is None:
        found = frozenset(i for i in range(len(tokenizer)) if "]" in tokenizer.decode([i]))
        tokenizer._toolformer_closing_ids = found
    return frozenset(found)
