"""Scanning: p(" [") at every position of many documents, behind a prompt whose keys and values are computed once.

    sequence    [bos] head | x tail | x        the positions are those of the second x

The keys and values of a scan are kept for its draws as far as the budget for them goes; those of further passes are
computed again, for the windows that are drawn from. It knows neither thresholds nor tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from toolformer_core.errors import ModelError
from toolformer_core.lm.base import Draw, DrawRequest
from toolformer_core.lm.batches import KeyValues, fork, key_values, pad
from toolformer_core.lm.drawing import draw_calls
from toolformer_core.lm.network import Network
from toolformer_core.lm.tokens import Tokens, encode_following, tokenize
from toolformer_core.lm.windows import scan_windows
from toolformer_core.records import Prompt

__all__ = ["HFScan", "scan_texts"]

_CALL_RESERVE = 64  # tokens of the context kept free for a call
_SMALLEST_WINDOW = 16  # a context that leaves a document fewer tokens than this is of no use


@dataclass(slots=True)
class _Window:
    """A part of a document as it is fed behind the head, and what the scan found in it."""

    text: int
    ids: NDArray[np.int64]  # (t,) x tail x
    before: NDArray[np.int64]  # (n,) index in `ids` of the token in front of each scanned position
    positions: NDArray[np.int64]  # (n,) character offsets in the document
    log_probs: NDArray[np.float32] | None = None  # (n,)


@dataclass(slots=True)
class _Pass:
    """Windows that went through the model together."""

    rows: list[_Window]
    kv: KeyValues | None = None


def _window(text: int, once: Tokens, twice: Tokens, tail: list[int], window: tuple[int, int, int, int]) -> _Window:
    start, end, first, last = window
    from_, to = (int(twice.cuts[start]), int(twice.cuts[end]) if end < len(twice.ids) else None)
    if once is twice:
        copy = once.ids[start:end]
    else:  # the copy behind "Input:" is tokenised without the space: cut it at the same characters, one to the left
        a = once.token_at(max(0, from_ - 1))
        copy = once.ids[a:] if to is None else once.ids[a : once.token_at(to - 1)]
    scanned = np.flatnonzero(twice.starts_character[first:last]) + first
    positions = np.maximum(twice.cuts[scanned] - 1, 0)  # the leading space is ours, not the document's
    keep = np.concatenate([[True], positions[1:] > positions[:-1]]) if len(positions) else np.zeros(0, dtype=np.bool_)
    ids = np.concatenate([copy, np.asarray(tail, dtype=np.int64), twice.ids[start:end]])
    return _Window(text, ids, (scanned[keep] - start) + len(copy) + len(tail) - 1, positions[keep])


class HFScan:
    """p(" [") at every position of a batch of documents, and the keys and values to draw calls from there."""

    def __init__(
        self,
        network: Network,
        head: KeyValues,
        head_length: int,
        windows: dict[int, list[_Window]],
        passes: list[_Pass],
    ) -> None:
        self._network = network
        self._head = head
        self._head_length = head_length
        self._windows = windows
        self._passes = passes

    @property
    def texts(self) -> Sequence[int]:
        return list(self._windows)

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        return [np.concatenate([w.positions for w in ws]) for ws in self._windows.values()]

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        return [np.concatenate([w.log_probs for w in ws]) for ws in self._windows.values()]

    def draw(self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float) -> list[Draw]:
        """See `Scan.draw`. Passes whose keys and values were too many to keep are run again, for their rows only.

        Raises:
            ValueError: a request names a text or a position that is not in this scan.
        """
        places: dict[tuple[int, int], tuple[int, int, int]] = {}
        for p, pass_ in enumerate(self._passes):
            for b, w in enumerate(pass_.rows):
                for position, before in zip(w.positions.tolist(), w.before.tolist(), strict=True):
                    places.setdefault((w.text, position), (p, b, before))
        by_pass: dict[int, list[tuple[int, int, int]]] = {}
        for i, r in enumerate(requests):
            if (r.text, r.position) not in places:
                raise ValueError(f"text {r.text} has no position {r.position} in this scan")
            p, b, before = places[r.text, r.position]
            by_pass.setdefault(p, []).append((i, b, self._head_length + before + 1))
        out: list[Draw | None] = [None] * len(requests)
        network = self._network
        with network.lock, torch.inference_mode():
            for p, wanted in sorted(by_pass.items()):
                used = sorted({b for _, b, _ in wanted})
                kv = self._passes[p].kv
                if kv is None:
                    kv = _run_pass(
                        network,
                        _Pass([self._passes[p].rows[b] for b in used]),
                        self._head,
                        self._head_length,
                    )
                    wanted = [(i, used.index(b), n) for i, b, n in wanted]
                seeds = [requests[i].seed for i, _, _ in wanted]
                drawn = draw_calls(network, kv, [(b, n) for _, b, n in wanted], seeds, max_tokens, temperature)
                for (i, _, _), draw in zip(wanted, drawn, strict=True):
                    out[i] = draw
        return [d for d in out if d is not None]


def scan_texts(network: Network, prompt: Prompt, texts: Sequence[str]) -> Iterator[HFScan]:
    """Scan texts, shortest first; all windows of one text stand in one scan.

    Raises:
        ModelError: prompt and call leave too little of the context for a document.
    """
    head_length, head = network.head(prompt)
    tail = encode_following(network.tokenizer, prompt.tail)
    space = " " if prompt.head.endswith(" ") else ""
    width = (network.context_length - head_length - len(tail) - len(network.trigger) - _CALL_RESERVE) // 2
    if width < _SMALLEST_WINDOW:
        raise ModelError(
            f"model {network.name!r} has a context of {network.context_length} tokens, of which the {prompt.tool} "
            f"prompt takes {head_length}; use a shorter prompt or a model with a longer context"
        )
    once = tokenize(network.tokenizer, [space + t for t in texts], follow=bool(space))  # x behind "Input:"
    twice = once if space else tokenize(network.tokenizer, [" " + t for t in texts], follow=True)  # behind "Output:"
    windows: list[list[_Window]] = []
    for i, (first, second) in enumerate(zip(once, twice, strict=True)):
        windows.append([_window(i, first, second, tail, w) for w in scan_windows(len(second.ids), width)])
    order = sorted(range(len(texts)), key=lambda i: (len(windows[i]), len(once[i].ids), i))
    batch: list[int] = []
    for i in order:
        rows = [w for j in (*batch, i) for w in windows[j]]
        if batch and len(rows) * (head_length + max(len(w.ids) for w in rows)) > network.token_budget:
            yield _scan_batch(network, head, head_length, {j: windows[j] for j in batch})
            batch = []
        batch.append(i)
    if batch:
        yield _scan_batch(network, head, head_length, {j: windows[j] for j in batch})


def _scan_batch(
    network: Network,
    head: KeyValues,
    head_length: int,
    windows: dict[int, list[_Window]],
) -> HFScan:
    rows = [w for ws in windows.values() for w in ws]
    per_pass = max(1, network.token_budget // (head_length + max(len(w.ids) for w in rows)))
    passes = [_Pass(rows[at : at + per_pass]) for at in range(0, len(rows), per_pass)]
    held = 0
    with network.lock, torch.inference_mode():
        for p in passes:
            kv = _run_pass(network, p, head, head_length)
            size = sum(2 * keys.numel() * keys.element_size() for keys, _ in kv)
            if held + size <= network.cache_budget:
                p.kv = kv
                held += size
    return HFScan(network, head, head_length, windows, passes)


def _run_pass(network: Network, p: _Pass, head: KeyValues, head_length: int) -> KeyValues:
    """One forward pass over the windows behind the shared head; notes log p(" [") in each window."""
    ids, mask = pad([w.ids for w in p.rows], network.device)
    n = len(p.rows)
    cache = DynamicCache(ddp_cache_data=[(k.expand(n, -1, -1, -1), v.expand(n, -1, -1, -1)) for k, v in head])
    full = torch.cat([torch.ones(n, head_length, dtype=mask.dtype, device=network.device), mask], dim=1)
    where = torch.arange(head_length, head_length + ids.shape[1], device=network.device).expand(n, -1)
    hidden = network.hidden(ids, full, where, cache)  # (B, T, D)
    if p.rows[0].log_probs is None:
        picked = torch.cat([hidden[b, w.before] for b, w in enumerate(p.rows)])  # (N, D)
        first = network.log_p(picked, torch.full((len(picked),), network.trigger[0], device=network.device))
        at = 0
        for w in p.rows:
            w.log_probs = first[at : at + len(w.before)]
            at += len(w.before)
        if len(network.trigger) > 1:
            _add_rest_of_trigger(network, p, key_values(cache), head_length)
    return key_values(cache)


def _add_rest_of_trigger(network: Network, p: _Pass, kv: KeyValues, head_length: int) -> None:
    """A " [" of several tokens: multiply in the others, exactly, by one more step at every position."""
    for b, w in enumerate(p.rows):
        lengths = [head_length + int(j) + 1 for j in w.before]
        for at in range(0, len(lengths), per := max(1, network.token_budget // max(lengths))):
            some = lengths[at : at + per]
            forked, mask = fork(kv, [b] * len(some), some)
            where = torch.tensor(some, device=network.device)
            for token, after in zip(network.trigger, network.trigger[1:], strict=False):
                mask = torch.cat([mask, mask.new_ones(len(some), 1)], dim=1)
                ids = torch.full((len(some), 1), token, device=network.device)
                hidden = network.hidden(ids, mask, where[:, None], forked)[:, -1]
                more = network.log_p(hidden, torch.full((len(some),), after, device=network.device))
                w.log_probs[at : at + per] += more  # type: ignore[index]
                where = where + 1
