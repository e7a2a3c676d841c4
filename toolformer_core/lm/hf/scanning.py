"""Scanning: p(" [") at every position of many documents, behind a prompt whose keys and values are computed once.

The keys and values of a scan are kept for its draws as far as the budgets allow; of a long document, those of its first
windows. For the other windows they are computed again when a draw needs them, so that the memory a document takes does
not grow with its length. This module knows neither thresholds nor tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from toolformer_core.lm.base import Draw, DrawRequest
from toolformer_core.lm.hf.batches import KeyValues, by_budget, fork, key_values, one_row, pad
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.lm.hf.sampling import draw_calls
from toolformer_core.lm.hf.windowing import Window, windows_of
from toolformer_core.records import Prompt

__all__ = ["HFScan", "scan_texts"]

_PASSES = 4  # passes per scan: more documents draw together than fit into one pass


@dataclass(slots=True)
class _Pass:
    """Windows that went through the model together, and the results of that pass."""

    rows: Sequence[Window]
    log_probs: list[NDArray[np.float32]]  # per row (n,)
    kv: KeyValues | None

    @property
    def size(self) -> int:
        """Bytes of its keys and values."""
        return sum(2 * keys.numel() * keys.element_size() for keys, _ in self.kv or ())


class HFScan:
    """p(" [") at every position of a batch of documents, and the keys and values to draw calls from there."""

    def __init__(
        self,
        hf_model: HFModel,
        head: KeyValues,
        head_length: int,
        windows: dict[int, list[Window]],
        passes: list[_Pass],
    ) -> None:
        self._hf_model = hf_model
        self._head = head
        self._head_length = head_length
        self._windows = windows
        self._passes = passes

    @property
    def context_length(self) -> int:
        """Tokens of the model's context."""
        return self._hf_model.context_length

    @property
    def texts(self) -> Sequence[int]:
        return list(self._windows)

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        return [np.concatenate([w.positions for w in ws]) for ws in self._windows.values()]

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        by_text: dict[int, list[NDArray[np.float32]]] = {text: [] for text in self._windows}
        for p in self._passes:
            for w, log_probs in zip(p.rows, p.log_probs, strict=True):
                by_text[w.text].append(log_probs)
        return [np.concatenate(parts) for parts in by_text.values()]

    def draw(self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float) -> list[Draw]:
        """See `Scan.draw`. Windows whose keys and values were not kept are computed again if they are drawn from.

        Raises:
            ValueError: a request names a text or a position that is not in this scan.
        """
        kept: list[tuple[int, int, int, int]] = []  # (request, pass, row, tokens in front of " [")
        dropped: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}  # the same, by (pass, row)
        for i, (p, b, before) in enumerate(self._places(requests)):
            place = (i, p, b, self._head_length + before + 1)
            (kept if self._passes[p].kv is not None else dropped.setdefault((p, b), [])).append(place)
        out: dict[int, Draw] = {}
        hf_model = self._hf_model

        def draw(places: list[tuple[int, int, int, int]], prefixes: dict[tuple[int, int], KeyValues]) -> None:
            keys = list(prefixes)
            at = [(keys.index((p, b)), n) for _, p, b, n in places]
            seeds = [requests[i].seed for i, *_ in places]
            draws = draw_calls(hf_model, list(prefixes.values()), self._head_length, at, seeds, max_tokens, temperature)
            out.update(zip((i for i, *_ in places), draws, strict=True))

        with hf_model.lock, torch.inference_mode():
            if kept:
                draw(kept, {(p, b): one_row(self._passes[p].kv or [], b) for p, b in sorted({k[1:3] for k in kept})})
            keys = sorted(dropped)
            rows = [self._passes[p].rows[b] for p, b in keys]
            for batch in by_budget([self._head_length + len(row.ids) for row in rows], hf_model.token_budget):
                rerun = _run_pass(hf_model, [rows[j] for j in batch], self._head, self._head_length, kv_only=True)
                prefixes = {keys[j]: one_row(rerun.kv or [], n) for n, j in enumerate(batch)}
                draw([place for key in prefixes for place in dropped[key]], prefixes)
        return [out[i] for i in range(len(requests))]

    def release(self) -> None:
        """Free the keys and values even if the scan is still referenced: the next scan needs the memory."""
        for p in self._passes:
            p.kv = None

    def ids_before_draw(self, requests: Sequence[DrawRequest]) -> list[list[int]]:
        """Return, per request, the tokens between the prompt's head and the draw, including " [".

        Raises:
            ValueError: see `draw`.
        """
        ids_before = [self._passes[p].rows[b].ids[: before + 1].tolist() for p, b, before in self._places(requests)]
        return [[*ids, *self._hf_model.trigger] for ids in ids_before]

    def _places(self, requests: Sequence[DrawRequest]) -> list[tuple[int, int, int]]:
        """Return, per request, its pass, its row in that pass, and the token in front of its position."""
        places: dict[tuple[int, int], tuple[int, int, int]] = {}
        for p, pass_ in enumerate(self._passes):
            for b, w in enumerate(pass_.rows):
                for position, before in zip(w.positions.tolist(), w.before.tolist(), strict=True):
                    places.setdefault((w.text, position), (p, b, before))
        for r in requests:
            if (r.text, r.position) not in places:
                raise ValueError(f"text {r.text} has no position {r.position} in this scan")
        return [places[r.text, r.position] for r in requests]


def scan_texts(hf_model: HFModel, prompt: Prompt, texts: Sequence[str]) -> Iterator[HFScan]:
    """Scan texts, shortest first; all windows of a text are in the same scan.

    Raises:
        ModelError: prompt and call leave too little of the context for a document.
    """
    windows = windows_of(hf_model, prompt, texts)
    head_length, head = hf_model.head(prompt)
    order = sorted(range(len(texts)), key=lambda i: (len(windows[i]), sum(len(w.ids) for w in windows[i]), i))
    batch: list[int] = []
    for i in order:
        rows = [w for j in (*batch, i) for w in windows[j]]
        if batch and len(rows) * (head_length + max(len(w.ids) for w in rows)) > _PASSES * hf_model.token_budget:
            yield (scan := _scan_batch(hf_model, head, head_length, {j: windows[j] for j in batch}))
            scan.release()
            batch = []
        batch.append(i)
    if batch:
        yield _scan_batch(hf_model, head, head_length, {j: windows[j] for j in batch})


def _scan_batch(
    hf_model: HFModel,
    head: KeyValues,
    head_length: int,
    windows: dict[int, list[Window]],
) -> HFScan:
    rows = [w for ws in windows.values() for w in ws]
    passes: list[_Pass] = []
    held = tokens = at = 0  # bytes kept, tokens they stand for, windows done
    with hf_model.lock, torch.inference_mode():
        while at < len(rows):  # not one loop over `by_budget`: the budget may shrink meanwhile
            batch = next(by_budget([len(w.ids) for w in rows[at:]], hf_model.token_budget))
            batch_rows = rows[at : at + len(batch)]
            for p in hf_model.budget.in_parts(batch_rows, lambda part: _run_pass(hf_model, part, head, head_length)):
                size = p.size
                seen = len(p.rows) * (head_length + max(len(w.ids) for w in p.rows))
                # `scan_texts` limits the tokens of several texts; one long text would fill the whole cache budget
                if held + size > hf_model.cache_budget or (held and tokens + seen > _PASSES * hf_model.token_budget):
                    p.kv = None
                else:
                    held += size
                    tokens += seen
                passes.append(p)
            at += len(batch)
    return HFScan(hf_model, head, head_length, windows, passes)


def _run_pass(
    hf_model: HFModel, rows: Sequence[Window], head: KeyValues, head_length: int, *, kv_only: bool = False
) -> _Pass:
    """Run one forward pass over windows behind the shared head; with `kv_only`, without log p(" [") at positions."""
    ids, _ = pad([w.ids for w in rows], hf_model.device)
    n = len(rows)
    cache = DynamicCache(ddp_cache_data=[(k.expand(n, -1, -1, -1), v.expand(n, -1, -1, -1)) for k, v in head])
    position = torch.arange(head_length, head_length + ids.shape[1], device=hf_model.device).expand(n, -1)
    hidden = hf_model.hidden(ids, None, position, cache)  # (B, T, D); no mask: padding follows all that is read
    kv = key_values(cache)
    if kv_only:
        return _Pass(rows, [], kv)
    states = torch.cat([hidden[b, w.before] for b, w in enumerate(rows)])  # (N, D)
    log_p = hf_model.log_p(states, torch.full((len(states),), hf_model.trigger[0], device=hf_model.device))
    log_probs = np.split(log_p, np.cumsum([len(w.before) for w in rows])[:-1])
    if len(hf_model.trigger) > 1:
        _add_rest_of_trigger(hf_model, rows, log_probs, kv, head_length)
    return _Pass(rows, log_probs, kv)


def _add_rest_of_trigger(
    hf_model: HFModel, rows: Sequence[Window], log_probs: list[NDArray[np.float32]], kv: KeyValues, head_length: int
) -> None:
    """Add, in place, log p of the other tokens of a " [" of several tokens: one more step each at every position."""
    for b, w in enumerate(rows):
        lengths = [head_length + int(j) + 1 for j in w.before]
        for at in range(0, len(lengths), per := max(1, hf_model.token_budget // max(lengths))):
            chunk = lengths[at : at + per]
            forked, mask = fork([one_row(kv, b)], [0] * len(chunk), chunk)
            position = torch.tensor(chunk, device=hf_model.device)
            for token, after in zip(hf_model.trigger, hf_model.trigger[1:], strict=False):
                mask = torch.cat([mask, mask.new_ones(len(chunk), 1)], dim=1)
                ids = torch.full((len(chunk), 1), token, device=hf_model.device)
                hidden = hf_model.hidden(ids, mask, position[:, None], forked)[:, -1]
                log_probs[b][at : at + per] += hf_model.log_p(
                    hidden, torch.full((len(chunk),), after, device=hf_model.device)
                )
                position = position + 1
