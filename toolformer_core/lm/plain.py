"""The definition, without a shortcut: what the engine must answer, computed the long way round.

Every text is scanned alone, behind its whole prompt; every draw runs that prompt again; every score runs its whole
text, with the vocabulary at every token. Nothing is shared, batched or cut, so that it can be believed by reading it.
The tests hold the engine to it, the benchmark measures against it, and whoever brings a model of a new shape, or writes
a backend, can compare: `PlainLM(lm.network)` answers what `lm` answers.

What is said of texts longer than the context (`windows`) and of where tokens begin (`tokens`) is part of the question,
not of the answer, and shared with the engine. It knows no batches, caches of prompts or budgets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from toolformer_core.lm.base import Draw, DrawRequest, ScoreRequest
from toolformer_core.lm.drawing import uniform
from toolformer_core.lm.network import Network
from toolformer_core.lm.sequences import Window, windows_of
from toolformer_core.lm.tokens import tokenize
from toolformer_core.lm.windows import score_start
from toolformer_core.records import Prompt
from toolformer_core.syntax import find_close

__all__ = ["PlainLM"]


class PlainLM:
    """A causal LM that annotates and scores, slowly.

    Args:
        network: the model.
    """

    def __init__(self, network: Network) -> None:
        self.network = network

    @property
    def name(self) -> str:
        return self.network.name

    @property
    def digest(self) -> str:
        """Its network's name alone: nothing it says is kept."""
        return f"plain {self.network.name}"

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[PlainScan]:
        """See `LanguageModel.scan`: one text at a time, in the order given.

        Raises:
            ModelError: prompt and call leave too little of the context for a document.
        """
        head = self.network.head_ids(prompt)
        for text, windows in enumerate(windows_of(self.network, prompt, texts)):
            yield PlainScan(self.network, head, text, windows, [_scanned(self.network, head, w) for w in windows])

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel.log_probs`: each request from a pass of its own over all that the context holds."""
        return [self._log_probs(r) for r in requests]

    def _log_probs(self, r: ScoreRequest) -> NDArray[np.float32]:
        network = self.network
        (tokens,) = tokenize(network.tokenizer, [r.text])
        first = tokens.token_at(r.position)
        last = min(first + r.tokens, len(tokens.ids))
        start = score_start(first, r.tokens, network.context_length // 2)
        lead = [*([] if network.bos is None else [network.bos]), *(network.encode(r.prefix) if r.prefix else [])]
        ids = [*lead, *tokens.ids[start:].tolist()][: network.context_length]
        wanted = range(len(lead) + first - start, len(lead) + last - start)
        if wanted.stop > network.context_length:
            return np.full(len(wanted), np.nan, dtype=np.float32)
        if not wanted:
            return np.zeros(0, dtype=np.float32)
        table = _table(network, ids)
        return np.asarray([float(table[j - 1, ids[j]]) if j else np.nan for j in wanted], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class PlainScan:
    """One text, scanned; see `base.Scan`."""

    network: Network
    head: list[int]
    text: int
    windows: list[Window]
    scanned: list[NDArray[np.float32]]

    @property
    def texts(self) -> Sequence[int]:
        return [self.text]

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        return [np.concatenate([w.positions for w in self.windows])]

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        return [np.concatenate(self.scanned)]

    def draw(self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float) -> list[Draw]:
        """See `Scan.draw`: one after the other, each from the whole prompt on."""
        return [self._draw(r, max_tokens, temperature) for r in requests]

    def _draw(self, r: DrawRequest, max_tokens: int, temperature: float) -> Draw:
        network = self.network
        window, at = next(
            (w, w.positions.tolist().index(r.position)) for w in self.windows if r.position in w.positions
        )
        ids = [*self.head, *window.ids[: window.before[at] + 1].tolist(), *network.trigger]
        written: list[int] = []
        cache = None
        for step in range(min(max_tokens, network.context_length - len(ids))):
            fed = ids if cache is None else written[-1:]
            with torch.inference_mode():
                row = torch.tensor([fed], device=network.device)
                # a configuration may say that none is kept, as one does that was saved in training
                out = network.model(input_ids=row, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = out.past_key_values
            token = _next(out.logits[0, -1].float(), r.seed, step, temperature)
            if token in network.end_ids:
                return Draw(network.text(written), False)
            written.append(token)
            if (close := find_close(text := network.text(written))) is not None:
                return Draw(text[:close], True)
        return Draw(network.text(written), False)


def _table(network: Network, ids: list[int]) -> torch.Tensor:
    """Log-probabilities (T, V) of what follows each token of a sequence."""
    with torch.inference_mode():
        logits = network.model(input_ids=torch.tensor([ids], device=network.device), use_cache=False).logits
    return torch.log_softmax(logits[0].float(), dim=-1)


def _scanned(network: Network, head: list[int], window: Window) -> NDArray[np.float32]:
    """log p(" [") at each position of a window; the tokens of a trigger of several are multiplied.  (n,)"""
    table = _table(network, [*head, *window.ids.tolist()])
    found = table[len(head) + torch.from_numpy(window.before), network.trigger[0]].cpu().numpy()
    for i, before in enumerate(window.before.tolist()):
        ids = [*head, *window.ids[: before + 1].tolist()]
        for token, after in zip(network.trigger, network.trigger[1:], strict=False):
            ids.append(token)
            found[i] += float(_table(network, ids)[-1, after])
    return np.asarray(found, dtype=np.float32)


def _next(logits: torch.Tensor, seed: int, step: int, temperature: float) -> int:
    """The likeliest token at temperature 0, else the inverse distribution function at the seed's number."""
    if temperature == 0:
        return int(logits.argmax())
    edges = torch.softmax(logits / temperature, dim=0).double().cumsum(0)  # (V,)
    u = float(uniform(np.asarray([seed], dtype=np.uint64), step)[0]) * float(edges[-1])
    at = torch.searchsorted(edges, torch.tensor(u, dtype=edges.dtype, device=edges.device), right=True)
    return min(int(at), len(edges) - 1)
