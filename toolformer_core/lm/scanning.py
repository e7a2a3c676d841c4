"""Scanning: p(" [") at every position of many documents, behind a prompt whose keys and values are computed once.

The keys and values of a scan are kept for its draws as far as the budgets go: of a long document's windows the first
ones. Those of the others are computed again, for the windows that are drawn from, so that what a document takes does
not grow with its length. It knows neither thresholds nor tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from toolformer_core.lm.base import Draw, DrawRequest
from toolformer_core.lm.batches import KeyValues, by_budget, fork, key_values, one_row, pad
from toolformer_core.lm.drawing import draw_calls
from toolformer_core.lm.network import Network
from toolformer_core.lm.sequences import Window, windows_of
from toolformer_core.records import Prompt

__all__ = ["HFScan", "scan_texts"]

_PASSES = 4  # of a scan: many documents draw together, few are in a pass at once


@dataclass(slots=True)
class _Pass:
    """Windows that went through the model together, and what was found in them."""

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
        network: Network,
        head: KeyValues,
        head_length: int,
        windows: dict[int, list[Window]],
        passes: list[_Pass],
    ) -> None:
        self._network = network
        self._head = head
        self._head_length = head_length
        self._windows = windows
        self._passes = passes

    @property
    def context_length(self) -> int:
        """Tokens of the model's context."""
        return self._network.context_length

    @property
    def texts(self) -> Sequence[int]:
        return list(self._windows)

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        return [np.concatenate([w.positions for w in ws]) for ws in self._windows.values()]

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        found: dict[int, list[NDArray[np.float32]]] = {text: [] for text in self._windows}
        for p in self._passes:
            for w, log_probs in zip(p.rows, p.log_probs, strict=True):
                found[w.text].append(log_probs)
        return [np.concatenate(parts) for parts in found.values()]

    def draw(self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float) -> list[Draw]:
        """See `Scan.draw`. Windows whose keys and values were too many to keep are run again, those drawn from only.

        Raises:
            ValueError: a request names a text or a position that is not in this scan.
        """
        kept: list[tuple[int, int, int, int]] = []  # request, pass, row, and tokens in front of " ["
        lost: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}  # by pass and row
        for i, (p, b, before) in enumerate(self._places(requests)):
            place = (i, p, b, self._head_length + before + 1)
            (kept if self._passes[p].kv is not None else lost.setdefault((p, b), [])).append(place)
        out: dict[int, Draw] = {}
        network = self._network

        def draw(wanted: list[tuple[int, int, int, int]], prefixes: dict[tuple[int, int], KeyValues]) -> None:
            used = list(prefixes)
            at = [(used.index((p, b)), n) for _, p, b, n in wanted]
            seeds = [requests[i].seed for i, *_ in wanted]
            drawn = draw_calls(network, list(prefixes.values()), self._head_length, at, seeds, max_tokens, temperature)
            out.update(zip((i for i, *_ in wanted), drawn, strict=True))

        with network.lock, torch.inference_mode():
            if kept:
                draw(kept, {(p, b): one_row(self._passes[p].kv or [], b) for p, b in sorted({k[1:3] for k in kept})})
            places = sorted(lost)
            rows = [self._passes[p].rows[b] for p, b in places]
            for some in by_budget([self._head_length + len(row.ids) for row in rows], network.token_budget):
                again = _run_pass(network, [rows[j] for j in some], self._head, self._head_length, again=True)
                found = {places[j]: one_row(again.kv or [], n) for n, j in enumerate(some)}
                draw([place for where in found for place in lost[where]], found)
        return [out[i] for i in range(len(requests))]

    def release(self) -> None:
        """Give its keys and values back, whoever still holds the scan: the next one needs the memory."""
        for p in self._passes:
            p.kv = None

    def opened(self, requests: Sequence[DrawRequest]) -> list[list[int]]:
        """Return, per request, the tokens that stand between the prompt's head and its draw, " [" included.

        Raises:
            ValueError: see `draw`.
        """
        read = [self._passes[p].rows[b].ids[: before + 1].tolist() for p, b, before in self._places(requests)]
        return [[*ids, *self._network.trigger] for ids in read]

    def _places(self, requests: Sequence[DrawRequest]) -> list[tuple[int, int, int]]:
        """Per request its pass, the row in it, and the token in front of the position."""
        places: dict[tuple[int, int], tuple[int, int, int]] = {}
        for p, pass_ in enumerate(self._passes):
            for b, w in enumerate(pass_.rows):
                for position, before in zip(w.positions.tolist(), w.before.tolist(), strict=True):
                    places.setdefault((w.text, position), (p, b, before))
        for r in requests:
            if (r.text, r.position) not in places:
                raise ValueError(f"text {r.text} has no position {r.position} in this scan")
        return [places[r.text, r.position] for r in requests]


def scan_texts(network: Network, prompt: Prompt, texts: Sequence[str]) -> Iterator[HFScan]:
    """Scan texts, shortest first; all windows of one text stand in one scan.

    Raises:
        ModelError: prompt and call leave too little of the context for a document.
    """
    windows = windows_of(network, prompt, texts)
    head_length, head = network.head(prompt)
    order = sorted(range(len(texts)), key=lambda i: (len(windows[i]), sum(len(w.ids) for w in windows[i]), i))
    batch: list[int] = []
    for i in order:
        rows = [w for j in (*batch, i) for w in windows[j]]
        if batch and len(rows) * (head_length + max(len(w.ids) for w in rows)) > _PASSES * network.token_budget:
            yield (scan := _scan_batch(network, head, head_length, {j: windows[j] for j in batch}))
            scan.release()
            batch = []
        batch.append(i)
    if batch:
        yield _scan_batch(network, head, head_length, {j: windows[j] for j in batch})


def _scan_batch(
    network: Network,
    head: KeyValues,
    head_length: int,
    windows: dict[int, list[Window]],
) -> HFScan:
    rows = [w for ws in windows.values() for w in ws]
    passes: list[_Pass] = []
    held = tokens = at = 0
    with network.lock, torch.inference_mode():
        while at < len(rows):  # the budget may change under way
            some = next(by_budget([len(w.ids) for w in rows[at:]], network.token_budget))
            some_rows = rows[at : at + len(some)]
            for p in network.budget.in_parts(some_rows, lambda part: _run_pass(network, part, head, head_length)):
                size = p.size
                read = len(p.rows) * (head_length + max(len(w.ids) for w in p.rows))
                # several texts hold no more tokens by `scan_texts`; one long text would fill the whole cache budget
                if held + size > network.cache_budget or (held and tokens + read > _PASSES * network.token_budget):
                    p.kv = None
                else:
                    held += size
                    tokens += read
                passes.append(p)
            at += len(some)
    return HFScan(network, head, head_length, windows, passes)


def _run_pass(
    network: Network, rows: Sequence[Window], head: KeyValues, head_length: int, *, again: bool = False
) -> _Pass:
    """One forward pass over windows behind the shared head, and log p(" [") at their positions unless it runs again."""
    ids, _ = pad([w.ids for w in rows], network.device)
    n = len(rows)
    cache = DynamicCache(ddp_cache_data=[(k.expand(n, -1, -1, -1), v.expand(n, -1, -1, -1)) for k, v in head])
    where = torch.arange(head_length, head_length + ids.shape[1], device=network.device).expand(n, -1)
    hidden = network.hidden(ids, None, where, cache)  # (B, T, D); what pads stands behind all that is asked
    kv = key_values(cache)
    if again:
        return _Pass(rows, [], kv)
    picked = torch.cat([hidden[b, w.before] for b, w in enumerate(rows)])  # (N, D)
    told = network.log_p(picked, torch.full((len(picked),), network.trigger[0], device=network.device))
    log_probs = np.split(told, np.cumsum([len(w.before) for w in rows])[:-1])
    if len(network.trigger) > 1:
        _add_rest_of_trigger(network, rows, log_probs, kv, head_length)
    return _Pass(rows, log_probs, kv)


def _add_rest_of_trigger(
    network: Network, rows: Sequence[Window], log_probs: list[NDArray[np.float32]], kv: KeyValues, head_length: int
) -> None:
    """A " [" of several tokens: multiply in the others, exactly, by one more step at every position."""
    for b, w in enumerate(rows):
        lengths = [head_length + int(j) + 1 for j in w.before]
        for at in range(0, len(lengths), per := max(1, network.token_budget // max(lengths))):
            some = lengths[at : at + per]
            forked, mask = fork([one_row(kv, b)], [0] * len(some), some)
            where = torch.tensor(some, device=network.device)
            for token, after in zip(network.trigger, network.trigger[1:], strict=False):
                mask = torch.cat([mask, mask.new_ones(len(some), 1)], dim=1)
                ids = torch.full((len(some), 1), token, device=network.device)
                hidden = network.hidden(ids, mask, where[:, None], forked)[:, -1]
                log_probs[b][at : at + per] += network.log_p(
                    hidden, torch.full((len(some),), after, device=network.device)
                )
                where = where + 1
