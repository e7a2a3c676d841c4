"""Scanning: p(" [") at every position of many documents, after a prompt whose keys and values are computed once.

The keys and values of a scan are kept for its draws as far as the budgets allow; of a long document, those of its first
windows. For the other windows they are computed again when a draw needs them, so that the memory a document takes does
not grow with its length. This module knows neither thresholds nor tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from toolformer_core.lm.base import Draw, DrawRequest, Insertion
from toolformer_core.lm.hf.batches import KeyValues, by_budget, fork, key_values, one_row, pad
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.lm.hf.sampling import draw_calls
from toolformer_core.lm.prompt_tokenizer import Beginning
from toolformer_core.lm.windowing import Window, windows_at_end, windows_of
from toolformer_core.records import Prompt

_PASSES_PER_SCAN = 4  # so that more documents draw together than fit into one pass


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


class _DrawPlace(NamedTuple):
    """Where in a scan a request's draw starts."""

    request: int  # index of the request
    pass_index: int
    row: int  # of that pass
    before: int  # index, in that row's window, of the token in front of the position


@dataclass(slots=True, eq=False)
class HFScan:
    """p(" [") at every position of a batch of documents, and the keys and values to draw calls from there."""

    _hf_model: HFModel
    _head: KeyValues
    _head_length: int
    _windows: dict[int, list[Window]]
    _passes: list[_Pass]

    @property
    def context_length(self) -> int:
        """Tokens of the model's context."""
        return self._hf_model.context_length

    @property
    def texts(self) -> Sequence[int]:
        """See `Scan`."""
        return list(self._windows)

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        """See `Scan`."""
        return [np.concatenate([window.positions for window in windows]) for windows in self._windows.values()]

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        """See `Scan`."""
        by_text: dict[int, list[NDArray[np.float32]]] = {text: [] for text in self._windows}
        for pass_ in self._passes:
            for window, log_probs in zip(pass_.rows, pass_.log_probs, strict=True):
                by_text[window.text].append(log_probs)
        return [np.concatenate(parts) for parts in by_text.values()]

    def draw(
        self,
        requests: Sequence[DrawRequest],
        *,
        max_tokens: int,
        temperature: float,
        many: bool = True,
        name: str = "",
        begin: str = "",
    ) -> list[Draw]:
        """See `Scan.draw`. Windows whose keys and values were not kept are computed again if they are drawn from.

        Raises:
            TokenizerError: see `HFModel.beginning`.
            ContextError: see `HFModel.beginning`.
            ValueError: a request names a text or a position that is not in this scan.
        """
        drawn = self.draw_tokens(
            requests, max_tokens=max_tokens, temperature=temperature, many=many, name=name, begin=begin
        )
        return [draw for draw, _ in drawn]

    def draw_tokens(
        self,
        requests: Sequence[DrawRequest],
        *,
        max_tokens: int,
        temperature: float,
        many: bool = True,
        name: str = "",
        begin: str = "",
    ) -> list[tuple[Draw, list[int]]]:
        """Return what `draw` does, each draw with its tokens."""
        kept: list[_DrawPlace] = []  # in windows whose keys and values were kept
        dropped: dict[tuple[int, int], list[_DrawPlace]] = {}  # in the other windows, by (pass, row)
        for place in self._places(requests):
            has_kv = self._passes[place.pass_index].kv is not None
            (kept if has_kv else dropped.setdefault((place.pass_index, place.row), [])).append(place)
        out: dict[int, tuple[Draw, list[int]]] = {}
        hf_model = self._hf_model

        def draw(places: list[_DrawPlace], prefixes: dict[tuple[int, int], KeyValues]) -> None:
            keys = list(prefixes)
            at = [(keys.index((place.pass_index, place.row)), self._head_length + place.before + 1) for place in places]
            seeds = [requests[place.request].seed for place in places]
            length, kv = self._head_length, list(prefixes.values())
            options: dict[str, Any] = {"many": many, "name": name, "begin": begin}
            draws = draw_calls(hf_model, kv, length, at, seeds, max_tokens, temperature, **options)
            out.update(zip((place.request for place in places), draws, strict=True))

        with hf_model.lock, torch.inference_mode():
            if kept:
                keys = sorted({(place.pass_index, place.row) for place in kept})
                draw(kept, {(p, row): one_row(self._passes[p].kv or [], row) for p, row in keys})
            keys = sorted(dropped)
            rows = [self._passes[p].rows[row] for p, row in keys]
            for batch in by_budget([self._head_length + len(row.ids) for row in rows], hf_model.token_budget):
                rerun = _run_pass(hf_model, [rows[j] for j in batch], self._head, self._head_length, kv_only=True)
                prefixes = {keys[j]: one_row(rerun.kv or [], n) for n, j in enumerate(batch)}
                draw([place for key in prefixes for place in dropped[key]], prefixes)
        return [out[i] for i in range(len(requests))]

    def release(self) -> None:
        """Free the keys and values even if the scan is still referenced: the next scan needs the memory."""
        for pass_ in self._passes:
            pass_.kv = None

    def beginning(self, begin: str) -> Beginning:
        """See `HFModel.beginning`."""
        return self._hf_model.beginning(begin)

    def ids_before_draw(self, requests: Sequence[DrawRequest]) -> list[list[int]]:
        """Return, per request, the tokens between the prompt's head and the draw, including " [".

        Raises:
            ValueError: see `draw`.
        """
        windows = [(self._passes[place.pass_index].rows[place.row], place.before) for place in self._places(requests)]
        return [[*window.ids[: before + 1].tolist(), *self._hf_model.trigger] for window, before in windows]

    def _places(self, requests: Sequence[DrawRequest]) -> list[_DrawPlace]:
        """Return where the draw of each request starts."""
        found: dict[tuple[int, int], tuple[int, int, int]] = {}  # (text, position) -> (pass, row, token before)
        for pass_index, pass_ in enumerate(self._passes):
            for row, window in enumerate(pass_.rows):
                for position, before in zip(window.positions.tolist(), window.before.tolist(), strict=True):
                    found.setdefault((window.text, position), (pass_index, row, before))
        for request in requests:
            if (request.text, request.position) not in found:
                raise ValueError(f"text {request.text} has no position {request.position} in this scan")
        return [_DrawPlace(i, *found[request.text, request.position]) for i, request in enumerate(requests)]


def scan_texts(hf_model: HFModel, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[HFScan]:
    """Scan texts, shortest first; all windows of a text are in the same scan.

    Raises:
        ModelError: prompt and call leave too little of the context for a document.
    """
    return _scan_windows(hf_model, prompt, windows_of(hf_model, prompt, texts))


def call_at_end(
    hf_model: HFModel, prompt: Prompt, texts: Sequence[str], max_tokens: int, name: str
) -> list[Draw | None]:
    """Return the most likely continuation of [head, text, " ["] for each text; None if it does not fit the context."""
    out: list[Draw | None] = [None] * len(texts)
    fitting = [window for window in windows_at_end(hf_model, prompt, texts) if window is not None]
    windows = [[replace(window, text=number)] for number, window in enumerate(fitting)]
    for scan in _scan_windows(hf_model, prompt, windows):
        requests = [DrawRequest(n, int(at[0]), 0) for n, at in zip(scan.texts, scan.positions, strict=True)]
        draws = scan.draw(requests, max_tokens=max_tokens, temperature=0.0, many=False, name=name)
        for number, draw in zip(scan.texts, draws, strict=True):
            out[fitting[number].text] = draw
    return out


def _scan_windows(hf_model: HFModel, prompt: Prompt, windows: Sequence[list[Window]]) -> Iterator[HFScan]:
    head_length, head = hf_model.head(prompt)
    with_windows = [i for i, of_text in enumerate(windows) if of_text]
    order = sorted(with_windows, key=lambda i: (len(windows[i]), sum(len(w.ids) for w in windows[i]), i))
    batch: list[int] = []
    for i in order:
        rows = [w for j in (*batch, i) for w in windows[j]]
        tokens = len(rows) * (head_length + max(len(w.ids) for w in rows))
        if batch and tokens > _PASSES_PER_SCAN * hf_model.token_budget:
            yield (scan := _scan_batch(hf_model, head, head_length, {j: windows[j] for j in batch}))
            scan.release()
            batch = []
        batch.append(i)
    if batch:
        yield _scan_batch(hf_model, head, head_length, {j: windows[j] for j in batch})


def _scan_batch(hf_model: HFModel, head: KeyValues, head_length: int, windows: dict[int, list[Window]]) -> HFScan:
    rows = [w for ws in windows.values() for w in ws]
    passes: list[_Pass] = []
    kept_bytes = kept_tokens = done = 0  # of keys and values that are kept; windows done
    with hf_model.lock, torch.inference_mode():
        while done < len(rows):  # not one loop over `by_budget`: the budget may shrink meanwhile
            batch = next(by_budget([len(w.ids) for w in rows[done:]], hf_model.token_budget))
            batch_rows = rows[done : done + len(batch)]
            parts = hf_model.budget.in_parts(batch_rows, lambda part: _run_pass(hf_model, part, head, head_length))
            for pass_ in parts:
                size = pass_.size
                tokens = len(pass_.rows) * (head_length + max(len(w.ids) for w in pass_.rows))
                # `scan_texts` limits the tokens of several texts; one long text would fill the whole cache budget
                too_many = kept_bytes and kept_tokens + tokens > _PASSES_PER_SCAN * hf_model.token_budget
                if kept_bytes + size > hf_model.cache_budget or too_many:
                    pass_.kv = None
                else:
                    kept_bytes += size
                    kept_tokens += tokens
                passes.append(pass_)
            done += len(batch)
    return HFScan(hf_model, head, head_length, windows, passes)


def _run_pass(
    hf_model: HFModel, rows: Sequence[Window], head: KeyValues, head_length: int, *, kv_only: bool = False
) -> _Pass:
    """Run one forward pass over windows after the shared head; with `kv_only`, without log p(" [") at positions."""
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
