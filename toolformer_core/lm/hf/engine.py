"""The transformers backend: any Hugging Face causal LM behind the `LanguageModel` protocol.

One forward pass gives many results. A tool's prompt is computed once, and every document shares its keys and values.
One pass over a document gives p(" [") at every position, and its draws start from that pass's keys and values. A plain
text is scored once for all its positions. Every shortcut gives the plain computation's numbers; the tests compare.

    sequence of a scan       [bos] head | x tail | x                   positions are those of the second x
    sequence of a score      [bos] z x_1..x_j                          ends with the last requested token

This module knows no tools, thresholds or weights of a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from toolformer_core.lm.base import Draw, Scan, ScoreRequest, TokenLogProbs
from toolformer_core.lm.hf.batches import by_budget, pad
from toolformer_core.lm.hf.model import HFModel, fuse_gelu
from toolformer_core.lm.hf.scanning import call_at_end, scan_texts
from toolformer_core.lm.hf.windowing import score_start
from toolformer_core.lm.tokens import tokenize
from toolformer_core.records import Prompt

__all__ = ["TransformersLM"]

_Request = tuple[int, int, int]  # a request's index, and its tokens [first, last) of the text
_Job = tuple[NDArray[np.int64], int, list[_Request]]  # a sequence, where its text would start in it, its requests


class TransformersLM:
    """A causal LM that annotates and scores.

    Args:
        model: an `AutoModelForCausalLM`, on its device, in evaluation mode; `fuse_gelu` changes it.
        tokenizer: its fast tokenizer.
        name: the user's name for it.
        digest: digest of weights, architecture and tokenizer.
        token_budget: tokens that a batch may hold, padding included; None: chosen by free memory.
        cache_budget: bytes of keys and values that the draws of one round may hold; None: chosen by free memory.

    Raises:
        ModelError: see `HFModel`.
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
        fuse_gelu(model)
        self.hf_model = HFModel(model, tokenizer, name=name, token_budget=token_budget, cache_budget=cache_budget)
        self._digest = digest

    @property
    def name(self) -> str:
        return self.hf_model.name

    @property
    def digest(self) -> str:
        return self._digest

    @property
    def tokens(self) -> int:
        """See `CountsTokens`."""
        return self.hf_model.tokens

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        """See `LanguageModel.scan`. Texts are batched shortest first; all windows of a text are in the same scan.

        Raises:
            ModelError: prompt and call leave too little of the context for a document.
        """
        return scan_texts(self.hf_model, prompt, texts)

    def call_at_end(
        self, prompt: Prompt, texts: Sequence[str], *, max_tokens: int, name: str = ""
    ) -> list[Draw | None]:
        """Write the most likely call after each text, behind the prompt's head; its tail is left out.

        A text that does not fit into the context gives None. The head's keys and values are computed once.

        Args:
            prompt: its head holds demonstrations.
            texts: none of them empty.
            max_tokens: tokens of the call, its "]" included.
            name: of the tool in calls: what cannot become a call of it is not written to its end. "": any.
        """
        return call_at_end(self.hf_model, prompt, texts, max_tokens, name)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel.log_probs`. A prefix too long for the context gives NaN: its call cannot be scored."""
        hf_model = self.hf_model
        texts = list(dict.fromkeys(r.text for r in requests))
        tokens = dict(zip(texts, tokenize(hf_model.tokenizer, texts), strict=True))
        prefixes = {z: hf_model.encode(z) if z else [] for z in dict.fromkeys(r.prefix for r in requests)}
        width = hf_model.context_length // 2
        # One sequence answers all requests with the same prefix, text and window, e.g. all plain ones of a text.
        groups: dict[tuple[str, str, int], list[_Request]] = {}
        lead = [] if hf_model.bos is None else [hf_model.bos]
        out: list[NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)] * len(requests)
        for i, r in enumerate(requests):
            first = tokens[r.text].token_at(r.position)
            start = score_start(first, r.tokens, width)
            last = min(first + r.tokens, len(tokens[r.text].ids))
            if len(lead) + len(prefixes[r.prefix]) + last - start > hf_model.context_length:
                out[i] = np.full(last - first, np.nan, dtype=np.float32)
            elif first < last:
                groups.setdefault((r.prefix, r.text, start), []).append((i, first, last))
        jobs: list[_Job] = []
        for (prefix, text, start), members in groups.items():
            end = max(last for _, _, last in members)
            ids = [*lead, *prefixes[prefix], *tokens[text].ids[start:end].tolist()]
            jobs.append((np.asarray(ids, dtype=np.int64), len(lead) + len(prefixes[prefix]) - start, members))
        for i, log_probs in self._score(jobs):
            out[i] = log_probs
        return out

    def token_log_probs(self, texts: Sequence[str], tokens: int) -> list[TokenLogProbs]:
        """See `LanguageModel.token_log_probs`. Of a text longer than a window, a sequence for each start of one."""
        hf_model = self.hf_model
        distinct = list(dict.fromkeys(texts))
        lead = [] if hf_model.bos is None else [hf_model.bos]
        out: dict[str, TokenLogProbs] = {}
        jobs: list[_Job] = []
        rows: list[tuple[str, NDArray[np.int64], NDArray[np.int64]]] = []  # per job: text, its rows, their first tokens
        for text, tokenized in zip(distinct, tokenize(hf_model.tokenizer, distinct), strict=True):
            firsts = np.flatnonzero(tokenized.starts_character)
            out[text] = TokenLogProbs(tokenized.cuts[firsts], np.zeros((len(firsts), tokens), dtype=np.float32))
            starts = np.array([score_start(int(j), tokens, hf_model.context_length // 2) for j in firsts])
            for start in np.unique(starts).tolist():
                members = np.flatnonzero(starts == start)
                first, last = int(firsts[members[0]]), min(int(firsts[members[-1]]) + tokens, len(tokenized.ids))
                ids = np.asarray([*lead, *tokenized.ids[start:last].tolist()], dtype=np.int64)
                jobs.append((ids, len(lead) - start, [(len(rows), first, last)]))
                rows.append((text, members, firsts[members] - first))
        for i, log_probs in self._score(jobs):
            text, members, at = rows[i]
            padded = np.concatenate([log_probs, np.zeros(tokens, dtype=np.float32)])
            out[text].log_probs[members] = padded[at[:, None] + np.arange(tokens)]
        return [out[text] for text in texts]

    def _score(self, jobs: list[_Job]) -> list[tuple[int, NDArray[np.float32]]]:
        """Return the index and the log-probabilities of every request of the jobs, which are batched shortest first."""
        hf_model = self.hf_model
        jobs.sort(key=lambda job: len(job[0]))
        out = []
        with hf_model.lock, torch.inference_mode():
            for batch in by_budget([len(ids) for ids, _, _ in jobs], hf_model.token_budget):
                for part in hf_model.budget.in_parts([jobs[b] for b in batch], self._score_batch):
                    out += part
        return out

    def _score_batch(self, jobs: Sequence[_Job]) -> list[tuple[int, NDArray[np.float32]]]:
        """Return the index and the log-probabilities of every request of some jobs."""
        hf_model = self.hf_model
        ids, _ = pad([job[0] for job in jobs], hf_model.device)
        position = torch.arange(ids.shape[1], device=hf_model.device).expand(len(jobs), -1)
        hidden = hf_model.hidden(ids, None, position, None)  # (B, T, D); no mask: padding follows all that is read
        rows: list[int] = []
        columns: list[int] = []
        parts: list[tuple[int, int, int]] = []
        for b, (_, shift, members) in enumerate(jobs):
            for i, first, last in members:
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
