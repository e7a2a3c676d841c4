"""Drawing calls from a scan's own keys and values, one token for all of them at a time, until "]" closes in text.

Draws of one position are one row as long as they write the same, and part where they differ.

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
    prefixes: Sequence[KeyValues],
    common: int,
    places: list[tuple[int, int]],
    seeds: list[int],
    max_tokens: int,
    temperature: float,
) -> list[Draw]:
    """Draw one continuation of " [" per place.

    Args:
        network: the model.
        prefixes: keys and values of documents, as a scan left them, per layer (1, H, T, D); they are not changed.
        common: how many of their first tokens all prefixes have in common.
        places: per draw (index of its prefix, how many of the prefix's tokens stand before " [").
        seeds: per draw, 64 bits.
        max_tokens: tokens a draw may take, its "]" included.
        temperature: 1 draws from the model's own distribution, 0 takes the likeliest token.
    """
    if network.shares_prefixes is None:
        (network.shares_prefixes,) = network.budget.in_parts([network], lambda _: works_for(network))
    shared = network.shares_prefixes
    per_token = sum(2 * keys[0, :, 0].numel() * keys.element_size() for keys, _ in prefixes[0])
    # draws of one document stand together where they share its keys and values, of one length where they do not
    order = sorted(range(len(places)), key=lambda i: places[i] if shared else (places[i][1], places[i][0]))

    def run(chunk: Sequence[int]) -> list[tuple[int, Draw]]:
        at = [places[i] for i in chunk]
        room = max_tokens + len(network.trigger)
        steps: Steps = Branches(network, prefixes, at, room, common) if shared else Forks(network, prefixes, at)
        drawn = _Rows(network, steps, at, [seeds[i] for i in chunk], temperature).run(max_tokens)
        return list(zip(chunk, drawn, strict=True))

    out: dict[int, Draw] = {}
    start = 0
    while start < len(order):
        end = start + 1  # as many draws as the budget for keys and values of their own allows
        while end < len(order):
            held = max_tokens if shared else places[order[end]][1] + max_tokens
            if (end + 1 - start) * held * per_token > network.budget.cache:
                break
            end += 1
        for part in network.budget.in_parts(order[start:end], run):
            out.update(part)
        start = end
    return [out[i] for i in range(len(places))]


class _Rows:
    """The draws of one chunk while they are being written; those that have written the same so far share a row."""

    def __init__(
        self, network: Network, steps: Steps, places: list[tuple[int, int]], seeds: list[int], temperature: float
    ) -> None:
        self.network = network
        self.steps = steps
        self.temperature = temperature
        self.seeds = np.asarray(seeds, dtype=np.uint64)
        # a draw's room is its own, whoever else is in the batch
        self.room = [network.context_length - n - len(network.trigger) for _, n in places]
        index = {p: row for row, p in enumerate(dict.fromkeys(places))}
        self.owner = [index[p] for p in places]  # the row of each active draw, ascending
        steps.select(torch.tensor([places.index(p) for p in index], device=network.device))
        for token in network.trigger:
            self.hidden = steps.feed(torch.full((len(index),), token, device=network.device))
        self.closing = _closing_ids(network.tokenizer)

    def _pick(self, step: int, active: list[int]) -> list[int]:
        """Each active draw's next token."""
        owner = torch.tensor(self.owner, device=self.hidden.device)
        if self.temperature == 0:
            return self.network.vocabulary.likeliest(self.hidden)[owner].tolist()
        u = torch.from_numpy(uniform(self.seeds[active], step)).to(owner.device)
        return self.network.vocabulary.draw(self.hidden, owner, u, self.temperature).tolist()

    def run(self, max_tokens: int) -> list[Draw]:
        active = list(range(len(self.seeds)))
        written: list[list[int]] = [[] for _ in active]
        out: dict[int, Draw] = {}
        allowed = [min(max_tokens, room) for room in self.room]
        for step in range(max(allowed)):
            goes_on: dict[tuple[int, int], list[int]] = {}  # (row, token) -> draws
            for draw, row, token in zip(active, self.owner, self._pick(step, active), strict=True):
                if token in self.network.end_ids:
                    out[draw] = Draw(self.network.text(written[draw]), False)
                    continue
                written[draw].append(token)
                if (
                    token in self.closing
                    and (close := find_close(text := self.network.text(written[draw]))) is not None
                ):
                    out[draw] = Draw(text[:close], True)
                elif step + 1 < allowed[draw]:
                    goes_on.setdefault((row, token), []).append(draw)
            if not goes_on:
                break
            active = [draw for draws in goes_on.values() for draw in draws]
            self.owner = [row for row, draws in enumerate(goes_on.values()) for _ in draws]
            self._feed(list(goes_on))
        return [out[i] if i in out else Draw(self.network.text(written[i]), False) for i in range(len(written))]

    def _feed(self, rows: list[tuple[int, int]]) -> None:
        """Go on with (row, token) each, sorted by row: rows that have ended are left, others are doubled."""
        device = self.network.device
        if [row for row, _ in rows] != list(range(len(self.hidden))):
            self.steps.select(torch.tensor([row for row, _ in rows], device=device))
        self.hidden = self.steps.feed(torch.tensor([token for _, token in rows], device=device))


class Steps(Protocol):
    """Rows that go on from places of a cache, one token at a time: `Branches`, or `Forks` for any other model."""

    def feed(self, tokens: torch.Tensor) -> torch.Tensor: ...

    def select(self, rows: torch.Tensor) -> None: ...


class Forks:
    """Rows with a copy each of the keys and values they continue: for models whose attention cannot share them."""

    def __init__(self, network: Network, prefixes: Sequence[KeyValues], places: Sequence[tuple[int, int]]) -> None:
        self.network = network
        self.prefixes = prefixes
        self.places = list(places)
        self.cache: DynamicCache | None = None  # copied when the first token comes, for the rows that are left
        self.where = torch.tensor([n for _, n in places], device=network.device)

    def feed(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.cache is None:
            self.cache, self.mask = fork(self.prefixes, [b for b, _ in self.places], [n for _, n in self.places])
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
        hidden = self.network.hidden(tokens[:, None], self.mask, self.where[:, None], self.cache)
        self.where = self.where + 1
        return hidden[:, -1]

    def select(self, rows: torch.Tensor) -> None:
        self.where = self.where[rows]
        if self.cache is None:
            self.places = [self.places[row] for row in rows.tolist()]
            return
        self.cache = DynamicCache(
            ddp_cache_data=[(k[rows.to(k.device)], v[rows.to(v.device)]) for k, v in key_values(self.cache)]
        )
        self.mask = self.mask[rows]


def _closing_ids(tokenizer: Any) -> frozenset[int]:
    """The tokens whose text holds a "]"; only after one of them can a call have closed."""
    found = getattr(tokenizer, "_toolformer_closing_ids", None)
    if found is None:
        found = frozenset(i for i in range(len(tokenizer)) if "]" in tokenizer.decode([i]))
        tokenizer._toolformer_closing_ids = found
    return frozenset(found)
