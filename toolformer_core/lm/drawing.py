"""Drawing calls from a scan's own keys and values: one fork per position, one row per draw, until "]" closes in text.

A draw's randomness is its seed and the step alone (SplitMix64 into an inverse CDF), never a generator's state, so the
same seed at the same place gives the same draw whatever else is in the batch. It does not know what a call means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from toolformer_core.lm.base import Draw
from toolformer_core.lm.batches import KeyValues, fork, key_values
from toolformer_core.syntax import find_close

if TYPE_CHECKING:
    from toolformer_core.lm.hf import TransformersLM

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
    lm: TransformersLM,
    kv: KeyValues,
    places: list[tuple[int, int]],
    seeds: list[int],
    max_tokens: int,
    temperature: float,
) -> list[Draw]:
    """Draw one continuation of " [" per place.

    Args:
        lm: the model.
        kv: keys and values of a scan's pass; they are not changed.
        places: per draw (row of `kv`, how many of its tokens stand before " [").
        seeds: per draw, 64 bits.
        max_tokens: tokens a draw may take, its "]" included.
        temperature: 1 draws from the model's own distribution.
    """
    order = sorted(range(len(places)), key=lambda i: (places[i][1], places[i][0], i))
    per_token = sum(2 * keys[0, :, 0].numel() * keys.element_size() for keys, _ in kv)
    out: list[Draw | None] = [None] * len(places)
    at = 0
    while at < len(order):
        # as many draws as the budget for keys and values allows, shortest prefixes first
        end = at + 1
        while end < len(order) and (end + 1 - at) * (places[order[end]][1] + max_tokens) * per_token <= lm.cache_budget:
            end += 1
        chunk = order[at:end]
        drawn = _Rows(lm, kv, [places[i] for i in chunk], [seeds[i] for i in chunk], temperature).run(max_tokens)
        for i, draw in zip(chunk, drawn, strict=True):
            out[i] = draw
        at = end
    return [d for d in out if d is not None]


class _Rows:
    """The draws of one chunk while they are being written."""

    def __init__(
        self,
        lm: TransformersLM,
        kv: KeyValues,
        places: list[tuple[int, int]],
        seeds: list[int],
        temperature: float,
    ) -> None:
        self.lm = lm
        self.temperature = temperature
        self.seeds = np.asarray(seeds, dtype=np.uint64)
        unique = sorted(set(places), key=lambda p: (p[1], p[0]))
        self.cache, self.mask = fork(kv, [b for b, _ in unique], [n for _, n in unique])
        self.where = torch.tensor([n for _, n in unique], device=lm.device)
        logits = self._trigger()
        # the draws of one position share its first step
        rows = torch.tensor([unique.index(p) for p in places], device=lm.device)
        self._select(rows)
        self.next_logits = logits[rows]
        self.closing = _closing_ids(lm.tokenizer)

    def _trigger(self) -> torch.Tensor:
        for token in self.lm.trigger:
            logits = self._step(torch.full_like(self.where, token))
        return logits

    def _step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Feed one token per row (R,); return the logits after it (R, V)."""
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
        hidden = self.lm.hidden(tokens[:, None], self.mask, self.where[:, None], self.cache)
        self.where = self.where + 1
        return self.lm.logits(hidden[:, -1])

    def _select(self, rows: torch.Tensor) -> None:
        self.cache = DynamicCache(ddp_cache_data=[(k[rows], v[rows]) for k, v in key_values(self.cache)])
        self.mask, self.where = self.mask[rows], self.where[rows]

    def _pick(self, step: int, active: list[int]) -> NDArray[np.int64]:
        probabilities = torch.softmax(self.next_logits / self.temperature, dim=1).double()
        edges = probabilities.cumsum(dim=1)  # (R, V)
        u = torch.from_numpy(uniform(self.seeds[active], step)).to(edges.device)[:, None] * edges[:, -1:]
        return torch.searchsorted(edges, u, right=True).clamp_max(edges.shape[1] - 1).squeeze(1).cpu().numpy()

    def run(self, max_tokens: int) -> list[Draw]:
        active = list(range(len(self.seeds)))
        written: list[list[int]] = [[] for _ in active]
        out: list[Draw | None] = [None] * len(active)
        room = self.lm.context_length - int(self.where.max())
        for step in range(min(max_tokens, room)):
            picked = self._pick(step, active)
            still: list[int] = []
            for row, (draw, token) in enumerate(zip(active, picked.tolist(), strict=True)):
                if token in self.lm.end_ids:
                    out[draw] = Draw(self._text(written[draw]), False)
                    continue
                written[draw].append(token)
                if token in self.closing and (close := find_close(text := self._text(written[draw]))) is not None:
                    out[draw] = Draw(text[:close], True)
                    continue
                still.append(row)
            if not still:
                break
            if len(still) < len(active):
                self._select(torch.tensor(still, device=self.lm.device))
                picked = picked[still]
                active = [active[row] for row in still]
            if step + 1 < min(max_tokens, room):
                self.next_logits = self._step(torch.from_numpy(picked).to(self.lm.device))
        return [d if d is not None else Draw(self._text(written[i]), False) for i, d in enumerate(out)]

    def _text(self, ids: list[int]) -> str:
        return str(self.lm.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _closing_ids(tokenizer: Any) -> frozenset[int]:
    """The tokens whose text holds a "]"; only after one of them can a call have closed."""
    found = getattr(tokenizer, "_toolformer_closing_ids", None)
    if found is None:
        found = frozenset(i for i in range(len(tokenizer)) if "]" in tokenizer.decode([i]))
        tokenizer._toolformer_closing_ids = found
    return frozenset(found)
