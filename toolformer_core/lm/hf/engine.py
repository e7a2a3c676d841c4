"""The transformers backend: any Hugging Face causal LM behind the `LanguageModel` protocol.

Every document shares the keys and values of its prompt, and a document's samples start from those of its scan, which
are kept as far as the budgets allow. Every shortcut gives the plain computation's numbers; the tests compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from toolformer_core.lm.base import Draw, DrawRequest, Insertion, Scan, ScoreRequest
from toolformer_core.lm.hf.batches import KeyValues, by_budget, key_values, one_row, pad
from toolformer_core.lm.hf.model import HFModel, fuse_gelu
from toolformer_core.lm.hf.prefixes import rest_of_trigger
from toolformer_core.lm.hf.sampling import draw_calls
from toolformer_core.lm.windowing import ScoreSequence, Window, draw_places, score_requests, windows_at_end, windows_of
from toolformer_core.records import Prompt

_PASSES_PER_SCAN = 4  # so that more documents draw together than fit into one pass

_Head = tuple[int, KeyValues]  # length of a prompt's head in tokens, and its keys and values


class TransformersLM:
    """A causal LM that annotates and scores; see `HFModel` for arguments and errors. `fuse_gelu` changes the model."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str, digest: str, **budgets: int) -> None:
        fuse_gelu(model)
        self.hf_model = HFModel(model, tokenizer, name=name, **budgets)
        self.name, self.digest = name, digest

    @property
    def tokens(self) -> int:
        return self.hf_model.tokens

    def scan(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[Scan]:
        """See `LanguageModel.scan`. Texts are batched shortest first; all windows of a text are in the same scan."""
        return scan_windows(self.hf_model, prompt, windows_of(self.hf_model, prompt, texts))

    def call_at_end(
        self, prompt: Prompt, texts: Sequence[str], *, max_tokens: int, name: str = ""
    ) -> list[Draw | None]:
        """Write the most likely call after each text, after the prompt's head alone; None: it does not fit."""
        out: list[Draw | None] = [None] * len(texts)
        for scan in scan_windows(self.hf_model, prompt, windows_at_end(self.hf_model, prompt, texts)):
            requests = [DrawRequest(n, int(at[0]), 0) for n, at in zip(scan.texts, scan.positions, strict=True)]
            samples = scan.draw_tokens(requests, max_tokens, 0.0, many=False, name=name)
            for text, (draw, _) in zip(scan.texts, samples, strict=True):
                out[text] = draw
        return out

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel.log_probs`. A prefix too long for the context gives NaN: its call cannot be scored."""
        return score_requests(self.hf_model, requests, self._score, self.hf_model.context_length)

    def _score(self, sequences: list[ScoreSequence]) -> list[tuple[int, NDArray[np.float32]]]:
        hf_model = self.hf_model
        sequences.sort(key=lambda one: len(one.ids))
        with hf_model.lock, torch.inference_mode():
            return [
                answer
                for batch in by_budget([len(one.ids) for one in sequences], hf_model.budget.tokens)
                for part in hf_model.budget.in_parts([sequences[b] for b in batch], self._score_batch)
                for answer in part
            ]

    def _score_batch(self, sequences: Sequence[ScoreSequence]) -> list[tuple[int, NDArray[np.float32]]]:
        hf_model = self.hf_model
        ids, _ = pad([one.ids for one in sequences], hf_model.device)
        position = torch.arange(ids.shape[1], device=hf_model.device).expand(len(sequences), -1)
        hidden = hf_model.hidden(ids, None, position, None)  # (B, T, D); no mask: padding follows all that is read
        rows: list[int] = []
        columns: list[int] = []
        parts: list[tuple[int, int, int]] = []
        for b, (_, shift, answers) in enumerate(sequences):
            for i, first, last in answers:
                targets = [t for t in range(first + shift, last + shift) if t > 0]
                rows += [b] * len(targets)
                columns += targets
                parts.append((i, last - first, len(targets)))
        row, column = (torch.tensor(x, dtype=torch.long, device=hf_model.device) for x in (rows, columns))
        log_p = hf_model.log_p(hidden[row, column - 1], ids[row, column])
        at = 0
        out = []
        for i, requested, n in parts:
            # without a bos token x_1 has no probability: NaN, which makes the gain NaN too
            unknown = np.full(requested - n, np.nan, dtype=np.float32)
            out.append((i, np.concatenate([unknown, log_p[at : at + n]])))
            at += n
        return out


@dataclass(slots=True)
class _Row:
    window: Window
    log_probs: NDArray[np.float32]  # (n,)
    kv: KeyValues | None  # of head and window, (1, H, T, D) per layer; None: not kept


@dataclass(slots=True, eq=False)
class HFScan:
    """p(" [") at every position of a batch of documents, and the keys and values to draw calls from there."""

    texts: Sequence[int]
    positions: Sequence[NDArray[np.int64]]
    log_probs: Sequence[NDArray[np.float32]]
    hf_model: HFModel
    _head: _Head
    _rows: list[_Row]
    bounds: None = None

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        """See `Scan.draw`. Windows whose keys and values were not kept are computed again if they are drawn from."""
        drawn = self.draw_tokens(requests, max_tokens, temperature, name=name, begin=begin)
        return [draw for draw, _ in drawn]

    def draw_tokens(
        self,
        requests: Sequence[DrawRequest],
        max_tokens: int,
        temperature: float,
        *,
        many: bool = True,
        name: str = "",
        begin: str = "",
    ) -> list[tuple[Draw, list[int]]]:
        """Return what `draw` does, each draw with its tokens; `many` as in `draw_calls`."""
        hf_model, (head_length, _) = self.hf_model, self._head
        places = self._places(requests)
        requested = sorted({row for row, _ in places})
        kept = {row: kv for row in requested if (kv := self._rows[row].kv) is not None}
        dropped = [row for row in requested if row not in kept]
        out: dict[int, tuple[Draw, list[int]]] = {}

        def draw(prefixes: dict[int, KeyValues]) -> None:
            number = {row: n for n, row in enumerate(prefixes)}
            some = [i for i, (row, _) in enumerate(places) if row in prefixes]
            at = [(number[row], head_length + before + 1) for row, before in (places[i] for i in some)]
            given = list(prefixes.values()), head_length, at, [requests[i].seed for i in some]
            samples = draw_calls(hf_model, *given, max_tokens, temperature, many=many, name=name, begin=begin)
            out.update(zip(some, samples, strict=True))

        with hf_model.lock, torch.inference_mode():
            if kept:
                draw(kept)
            windows = [self._rows[row].window for row in dropped]
            for batch in by_budget([head_length + len(w.ids) for w in windows], hf_model.budget.tokens):
                _, kv = _run_pass(hf_model, [windows[j] for j in batch], self._head, kv_only=True)
                draw({dropped[j]: one_row(kv, n) for n, j in enumerate(batch)})
        return [out[i] for i in range(len(requests))]

    def release(self) -> None:
        """Free the keys and values even if the scan is still referenced: the next scan needs the memory."""
        for row in self._rows:
            row.kv = None

    def ids_before_draw(self, requests: Sequence[DrawRequest]) -> list[list[int]]:
        """Return, per request, the tokens between the prompt's head and the draw, including " ["."""
        trigger = self.hf_model.trigger
        return [[*self._rows[row].window.ids[: at + 1].tolist(), *trigger] for row, at in self._places(requests)]

    def _places(self, requests: Sequence[DrawRequest]) -> list[tuple[int, int]]:
        return draw_places([row.window for row in self._rows], requests)


def scan_windows(hf_model: HFModel, prompt: Prompt, windows: Sequence[list[Window]]) -> Iterator[HFScan]:
    head = hf_model.head(prompt)
    with_windows = [i for i, of_text in enumerate(windows) if of_text]
    order = sorted(with_windows, key=lambda i: (len(windows[i]), sum(len(w.ids) for w in windows[i]), i))
    batch: list[int] = []
    for i in order:
        tokens = _padded_size(head, [w for j in (*batch, i) for w in windows[j]])
        if batch and tokens > _PASSES_PER_SCAN * hf_model.budget.tokens:
            yield (scan := _scan_batch(hf_model, head, {j: windows[j] for j in batch}))
            scan.release()
            batch = []
        batch.append(i)
    if batch:
        yield _scan_batch(hf_model, head, {j: windows[j] for j in batch})


def _padded_size(head: _Head, windows: Sequence[Window]) -> int:
    return len(windows) * (head[0] + max(len(w.ids) for w in windows))


def _scan_batch(hf_model: HFModel, head: _Head, by_text: dict[int, list[Window]]) -> HFScan:
    windows = [w for of_text in by_text.values() for w in of_text]
    rows: list[_Row] = []
    kept_bytes = kept_tokens = 0  # of keys and values that are kept
    with hf_model.lock, torch.inference_mode():
        while (done := len(rows)) < len(windows):  # not one loop over `by_budget`: the budget may shrink meanwhile
            batch = next(by_budget([len(w.ids) for w in windows[done:]], hf_model.budget.tokens))

            def run(part: Sequence[Window]) -> tuple[Sequence[Window], list[NDArray[np.float32]], KeyValues]:
                return part, *_run_pass(hf_model, part, head)

            for part, log_probs, kv in hf_model.budget.in_parts(windows[done : done + len(batch)], run):
                size = sum(2 * keys.numel() * keys.element_size() for keys, _ in kv)
                tokens = _padded_size(head, part)
                # `scan_windows` limits the tokens of several texts; one long text would fill the whole cache budget
                too_many = kept_bytes and kept_tokens + tokens > _PASSES_PER_SCAN * hf_model.budget.tokens
                keep = kept_bytes + size <= hf_model.budget.cache and not too_many
                if keep:
                    kept_bytes, kept_tokens = kept_bytes + size, kept_tokens + tokens
                for n, (window, log_p) in enumerate(zip(part, log_probs, strict=True)):
                    rows.append(_Row(window, log_p, one_row(kv, n) if keep else None))
                del kv  # what is not kept is freed before the next pass
    numbers = iter(rows)
    log_probs = [np.concatenate([row.log_probs for row in islice(numbers, len(ws))]) for ws in by_text.values()]
    positions = [np.concatenate([w.positions for w in ws]) for ws in by_text.values()]
    return HFScan(list(by_text), positions, log_probs, hf_model, head, rows)


def _run_pass(
    hf_model: HFModel, windows: Sequence[Window], head: _Head, *, kv_only: bool = False
) -> tuple[list[NDArray[np.float32]], KeyValues]:
    """Return per window log p(" [") at its positions, (n,) each, none with `kv_only`; and the keys and values."""
    ids, _ = pad([w.ids for w in windows], hf_model.device)
    n, (head_length, head_kv) = len(windows), head
    cache = DynamicCache(ddp_cache_data=[(k.expand(n, -1, -1, -1), v.expand(n, -1, -1, -1)) for k, v in head_kv])
    position = torch.arange(head_length, head_length + ids.shape[1], device=hf_model.device).expand(n, -1)
    hidden = hf_model.hidden(ids, None, position, cache)  # (B, T, D); no mask: padding follows all that is read
    kv = key_values(cache)
    if kv_only:
        return [], kv
    states = torch.cat([hidden[b, w.before] for b, w in enumerate(windows)])  # (N, D)
    log_p = hf_model.log_p(states, torch.full((len(states),), hf_model.trigger[0], device=hf_model.device))
    log_probs = np.split(log_p, np.cumsum([len(w.before) for w in windows])[:-1])
    for b, w in enumerate(windows if len(hf_model.trigger) > 1 else ()):
        origins = [(0, head_length + int(j) + 1) for j in w.before]
        for some, token, after in rest_of_trigger(hf_model, [one_row(kv, b)], origins):
            log_probs[b][some] += hf_model.log_p(after, torch.full((len(after),), token, device=hf_model.device))
    return log_probs, kv
