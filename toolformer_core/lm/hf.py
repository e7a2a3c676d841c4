"""The transformers backend: any Hugging Face causal LM behind the `LanguageModel` protocol.

One forward pass, many answers: a tool's prompt is computed once and its keys and values are shared by every document;
one pass over a document gives p(" [") at every position; its draws start from that pass's own keys and values; a plain
text is scored once for all its positions. Every shortcut gives the plain computation's numbers (the tests compare).

    sequence of a scan       [bos] head | x tail | x                   positions are those of the second x
    sequence of a score      [bos] z x_1..x_j                          cut behind the last token that is asked for

It does not know tools, thresholds or weights. It is the only module of the stages' side that imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from toolformer_core.lm.base import Scan, ScoreRequest
from toolformer_core.lm.batches import by_budget, pad
from toolformer_core.lm.network import Network, one_pass_activations
from toolformer_core.lm.scanning import scan_texts
from toolformer_core.lm.tokens import tokenize
from toolformer_core.lm.windows import score_start
from toolformer_core.records import Prompt

__all__ = ["TransformersLM"]

_Wanted = tuple[int, int, int]  # a request's index, and its tokens [first, last) of the text
_Job = tuple[NDArray[np.int64], int, list[_Wanted]]  # a sequence, where its text would begin in it, its requests


class TransformersLM:
    """A causal LM that annotates and scores.

    Args:
        model: an `AutoModelForCausalLM`, on its device, in evaluation mode; see `one_pass_activations` for what is
            changed in it.
        tokenizer: its fast tokenizer.
        name: what the user called it.
        digest: digest of weights, architecture and tokenizer.
        token_budget: tokens a batch may hold, padding included; None: by the memory that is free.
        cache_budget: bytes of keys and values that the draws of one round may hold; None: the same.

    Raises:
        ModelError: see `Network`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        digest: str,
        token_budget: int | None = None,
        cache_budget: int | None = None,
    ) -> None:
        one_pass_activations(model)
        self.network = Network(model, tokenizer, name=name, token_budget=token_budget, cache_budget=cache_budget)
        self._digest = digest

    @property
    def name(self) -> str:
        return self.network.name

    @property
    def digest(self) -> str:
        return self._digest

    @property
    def tokens(self) -> int:
        """See `CountsTokens`."""
        return self.network.tokens

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        """See `LanguageModel.scan`. Texts are batched shortest first; all windows of one text stand in one scan.

        Raises:
            ModelError: prompt and call leave too little of the context for a document.
        """
        return scan_texts(self.network, prompt, texts)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel.log_probs`. A prefix too long for the context gives NaNs: the call cannot be scored."""
        network = self.network
        texts = list(dict.fromkeys(r.text for r in requests))
        tokens = dict(zip(texts, tokenize(network.tokenizer, texts), strict=True))
        prefixes = {z: network.encode(z) if z else [] for z in dict.fromkeys(r.prefix for r in requests)}
        width = network.context_length // 2
        # Requests that share prefix, text and window are answered by one sequence: all plain ones of a text, usually.
        groups: dict[tuple[str, str, int], list[_Wanted]] = {}
        lead = [] if network.bos is None else [network.bos]
        out: list[NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)] * len(requests)
        for i, r in enumerate(requests):
            first = tokens[r.text].token_at(r.position)
            start = score_start(first, r.tokens, width)
            last = min(first + r.tokens, len(tokens[r.text].ids))
            if len(lead) + len(prefixes[r.prefix]) + last - start > network.context_length:
                out[i] = np.full(last - first, np.nan, dtype=np.float32)
            elif first < last:
                groups.setdefault((r.prefix, r.text, start), []).append((i, first, last))
        jobs: list[_Job] = []
        for (prefix, text, start), members in groups.items():
            end = max(last for _, _, last in members)
            ids = [*lead, *prefixes[prefix], *tokens[text].ids[start:end].tolist()]
            jobs.append((np.asarray(ids, dtype=np.int64), len(lead) + len(prefixes[prefix]) - start, members))
        jobs.sort(key=lambda job: len(job[0]))
        with network.lock, torch.inference_mode():
            for batch in by_budget([len(ids) for ids, _, _ in jobs], network.token_budget):
                for part in network.budget.in_parts([jobs[b] for b in batch], self._score_batch):
                    for i, told in part:
                        out[i] = told
        return out

    def _score_batch(self, jobs: Sequence[_Job]) -> list[tuple[int, NDArray[np.float32]]]:
        """Each request of some jobs, by its index, and its answer."""
        network = self.network
        ids, _ = pad([job[0] for job in jobs], network.device)
        where = torch.arange(ids.shape[1], device=network.device).expand(len(jobs), -1)
        hidden = network.hidden(ids, None, where, None)  # (B, T, D); what pads stands behind all that is asked
        rows: list[int] = []
        columns: list[int] = []
        parts: list[tuple[int, int, int]] = []
        for b, (_, shift, members) in enumerate(jobs):
            for i, first, last in members:
                targets = [t for t in range(first + shift, last + shift) if t > 0]
                rows += [b] * len(targets)
                columns += targets
                parts.append((i, last - first, len(targets)))
        row, column = (torch.tensor(x, dtype=torch.long, device=network.device) for x in (rows, columns))
        log_p = network.log_p(hidden[row, column - 1], ids[row, column])
        at = 0
        out = []
        for i, wanted, n in parts:
            # without bos nothing says how likely x_1 is: NaN, which no gain survives
            unknown = np.full(wanted - n, np.nan, dtype=np.float32)
            out.append((i, np.concatenate([unknown, log_p[at : at + n]])))
            at += n
        return out
