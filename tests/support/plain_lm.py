"""The reference implementation without shortcuts: it defines the numbers that the engine must return.

Every text is scanned alone after its whole prompt, every draw runs that prompt again, every score its whole text. It
shares with the engine only how long texts are cut (`windowing`) and where tokens start (`tokens`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from toolformer_core.lm.base import Draw, DrawRequest, Insertion, ScoreRequest, uniform
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.lm.hf.sampling import begun_name
from toolformer_core.lm.tokens import tokenize
from toolformer_core.lm.windowing import Window, score_start, windows_of
from toolformer_core.records import Prompt
from toolformer_core.syntax import find_close


class PlainLM:
    """A causal LM that annotates and scores, slowly."""

    def __init__(self, hf_model: HFModel) -> None:
        self.hf_model = hf_model

    @property
    def name(self) -> str:
        return self.hf_model.name

    @property
    def digest(self) -> str:
        """The model's name only, because its results are never stored."""
        return f"plain {self.hf_model.name}"

    def scan(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[PlainScan]:
        head = self.hf_model.head_ids(prompt)
        for text, windows in enumerate(windows_of(self.hf_model, prompt, texts)):
            if windows:
                scanned = [_scanned(self.hf_model, head, w) for w in windows]
                yield PlainScan(self.hf_model, head, text, windows, scanned)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        return [self._log_probs(r) for r in requests]

    def _log_probs(self, r: ScoreRequest) -> NDArray[np.float32]:
        hf_model = self.hf_model
        (tokens,) = tokenize(hf_model.tokenizer, [r.text])
        first = tokens.token_at(r.position)
        last = min(first + r.tokens, len(tokens.ids))
        start = score_start(first, r.tokens, hf_model.context_length // 2)
        lead = [*([] if hf_model.bos is None else [hf_model.bos]), *(hf_model.encode(r.prefix) if r.prefix else [])]
        ids = [*lead, *tokens.ids[start:].tolist()][: hf_model.context_length]
        targets = range(len(lead) + first - start, len(lead) + last - start)
        if targets.stop > hf_model.context_length:
            return np.full(len(targets), np.nan, dtype=np.float32)
        if not targets:
            return np.zeros(0, dtype=np.float32)
        table = _log_prob_table(hf_model, ids)
        return np.asarray([float(table[j - 1, ids[j]]) if j else np.nan for j in targets], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class PlainScan:
    hf_model: HFModel
    head: list[int]
    text: int
    windows: list[Window]
    scanned: list[NDArray[np.float32]]
    bounds: None = None

    @property
    def texts(self) -> Sequence[int]:
        return [self.text]

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        return [np.concatenate([w.positions for w in self.windows])]

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        return [np.concatenate(self.scanned)]

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        return [self._draw(r, max_tokens, temperature, name, begin) for r in requests]

    def _draw(self, r: DrawRequest, max_tokens: int, temperature: float, name: str, begin: str) -> Draw:
        hf_model = self.hf_model
        window, at = next(
            (w, w.positions.tolist().index(r.position)) for w in self.windows if r.position in w.positions
        )
        ids = [*self.head, *window.ids[: window.before[at] + 1].tolist(), *hf_model.trigger]
        given, first = hf_model.beginning(begin)
        written = list(given)
        log_p = _log_p_after(hf_model, ids, written, first) if begin else None
        allowed = min(max_tokens, hf_model.context_length - len(ids))
        cache = None
        for step in range(allowed - len(given)):
            new_ids = [*ids, *written] if cache is None else written[-1:]
            with torch.inference_mode():
                row = torch.tensor([new_ids], device=hf_model.device)
                # use_cache explicitly: a configuration saved during training may turn it off
                out = hf_model.model(input_ids=row, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = out.past_key_values
            logits = out.logits[0, -1].float()
            if step == 0 and first:  # the other tokens get no probability
                logits = torch.full_like(logits, -torch.inf).index_copy_(0, torch.tensor(first), logits[first])
            token = _next_token(logits, r.seed, step, temperature)
            if token in hf_model.end_ids:
                break
            written.append(token)
            if (close := find_close(text := hf_model.text(written))) is not None:
                return Draw(text[:close], True, log_p)
            if name and begun_name(hf_model, written) not in ("", name):
                break
        return Draw(hf_model.text(written), False, log_p)


def _log_prob_table(hf_model: HFModel, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits = hf_model.model(input_ids=torch.tensor([ids], device=hf_model.device), use_cache=False).logits
    return torch.log_softmax(logits[0].float(), dim=-1)


def _log_p_after(hf_model: HFModel, ids: list[int], following: list[int], then: list[int]) -> float:
    """Return the log-probability of some tokens after a sequence, followed by any one of `then`."""
    table = _log_prob_table(hf_model, [*ids, *following])
    log_p = sum(float(table[len(ids) + j - 1, token]) for j, token in enumerate(following))
    return log_p + float(table[-1, then].logsumexp(0))


def _scanned(hf_model: HFModel, head: list[int], window: Window) -> NDArray[np.float32]:
    """Return log p(" [") at each position of a window, summed over the tokens of " [" if there are several.  (n,)"""
    table = _log_prob_table(hf_model, [*head, *window.ids.tolist()])
    log_probs = table[len(head) + torch.from_numpy(window.before), hf_model.trigger[0]].cpu().numpy()
    for i, before in enumerate(window.before.tolist()):
        ids = [*head, *window.ids[: before + 1].tolist()]
        for token, after in zip(hf_model.trigger, hf_model.trigger[1:], strict=False):
            ids.append(token)
            log_probs[i] += float(_log_prob_table(hf_model, ids)[-1, after])
    return np.asarray(log_probs, dtype=np.float32)


def _next_token(logits: torch.Tensor, seed: int, step: int, temperature: float) -> int:
    """Return the most likely token at temperature 0, else sample by inverse CDF at the seed's number for this step."""
    if temperature == 0:
        return int(logits.argmax())
    edges = torch.softmax(logits / temperature, dim=0).double().cumsum(0)  # (V,)
    u = float(uniform(np.asarray([seed], dtype=np.uint64), step)[0]) * float(edges[-1])
    at = torch.searchsorted(edges, torch.tensor(u, dtype=edges.dtype, device=edges.device), right=True)
    return min(int(at), len(edges) - 1)
