"""The transformers backend: any Hugging Face causal LM behind the `LanguageModel` protocol.

One forward pass, many answers: a tool's prompt is computed once and its keys and values are shared by every document;
one pass over a document gives p(" [") at every position; its draws start from that pass's own keys and values; a plain
text is scored once for all its positions. Every shortcut gives the plain computation's numbers (the tests compare).

    sequence of a scan       [bos] head | x tail | x                   positions are those of the second x
    sequence of a score      [bos] z x_1..x_j                          cut behind the last token that is asked for

It does not know tools, thresholds or weights. It is the only module of the stages' side that imports torch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from toolformer_core.errors import ModelError
from toolformer_core.lm.base import ScoreRequest
from toolformer_core.lm.batches import KeyValues, by_budget, key_values, pad
from toolformer_core.lm.branches import works_for
from toolformer_core.lm.scanning import HFScan, scan_texts
from toolformer_core.lm.tokens import tokenize
from toolformer_core.lm.windows import score_start
from toolformer_core.records import Prompt
from toolformer_core.syntax import OPEN

__all__ = ["TransformersLM"]


class TransformersLM:
    """A causal LM and its fast tokenizer.

    Args:
        model: an `AutoModelForCausalLM`, on its device, in evaluation mode.
        tokenizer: its fast tokenizer.
        name: what the user called it.
        digest: digest of weights, architecture and tokenizer.
        token_budget: tokens a batch may hold, padding included.
        cache_budget: bytes of keys and values that the draws of one round may hold.

    Raises:
        ModelError: the tokenizer is not a fast one, or cannot write " [" and "]".
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        digest: str,
        token_budget: int = 8_192,
        cache_budget: int = 1 << 30,
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError(f"model {name!r} has no fast tokenizer, and positions need its character offsets")
        self.model = model
        self.tokenizer = tokenizer
        self._name = name
        self._digest = digest
        self.token_budget = token_budget
        self.cache_budget = cache_budget
        self.context_length = _context_length(model, tokenizer)
        self.bos = _first_given(tokenizer.bos_token_id, tokenizer.eos_token_id, model.config.bos_token_id)
        self.end_ids = frozenset(i for i in (tokenizer.eos_token_id, self.bos) if i is not None)
        self.trigger = self.encode(OPEN)
        if not self.trigger or tokenizer.decode(self.trigger).strip() != OPEN.strip():
            raise ModelError(f"the tokenizer of {name!r} cannot write {OPEN!r}")
        self._heads: dict[str, tuple[int, KeyValues]] = {}
        self.lock = threading.RLock()  # one forward pass at a time: two would only share the same cores

    @property
    def name(self) -> str:
        return self._name

    @property
    def digest(self) -> str:
        return self._digest

    @property
    def device(self) -> torch.device:
        return self.model.get_input_embeddings().weight.device  # type: ignore[no-any-return]

    # -- scanning

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[HFScan]:
        """See `LanguageModel.scan`. Texts are batched shortest first; all windows of one text stand in one scan.

        Raises:
            ModelError: prompt and call leave too little of the context for a document.
        """
        return scan_texts(self, prompt, texts)

    # -- scoring

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel.log_probs`. A prefix too long for the context gives NaNs: the call cannot be scored."""
        texts = list(dict.fromkeys(r.text for r in requests))
        tokens = dict(zip(texts, tokenize(self.tokenizer, texts), strict=True))
        prefixes = {z: self.encode(z) if z else [] for z in dict.fromkeys(r.prefix for r in requests)}
        width = self.context_length // 2
        # Requests that share prefix, text and window are answered by one sequence: all plain ones of a text, usually.
        groups: dict[tuple[str, str, int], list[tuple[int, int, int]]] = {}
        for i, r in enumerate(requests):
            first = tokens[r.text].token_at(r.position)
            start = score_start(first, r.tokens, width)
            last = min(first + r.tokens, len(tokens[r.text].ids))
            groups.setdefault((r.prefix, r.text, start), []).append((i, first, last))
        lead = [] if self.bos is None else [self.bos]
        out: list[NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)] * len(requests)
        jobs: list[tuple[list[int], int, list[tuple[int, int, int]]]] = []
        for (prefix, text, start), members in groups.items():
            end = max(last for _, _, last in members)
            ids = [*lead, *prefixes[prefix], *tokens[text].ids[start:end].tolist()]
            if len(ids) > self.context_length:
                for i, first, last in members:
                    out[i] = np.full(last - first, np.nan, dtype=np.float32)
            else:
                jobs.append((ids, len(lead) + len(prefixes[prefix]) - start, members))
        jobs.sort(key=lambda job: len(job[0]))
        with self.lock, torch.inference_mode():
            for batch in by_budget([len(ids) for ids, _, _ in jobs], self.token_budget):
                self._score_batch([jobs[b] for b in batch], out)
        return out

    def _score_batch(
        self, jobs: list[tuple[list[int], int, list[tuple[int, int, int]]]], out: list[NDArray[np.float32]]
    ) -> None:
        ids, mask = pad([np.asarray(j[0], dtype=np.int64) for j in jobs], self.device)
        where = torch.arange(ids.shape[1], device=self.device).expand(len(jobs), -1)
        hidden = self.hidden(ids, mask, where, None)  # (B, T, D)
        rows: list[int] = []
        columns: list[int] = []
        parts: list[tuple[int, int]] = []
        for b, (_, shift, members) in enumerate(jobs):
            for i, first, last in members:
                targets = [t for t in range(first + shift, last + shift) if t > 0]  # without bos x_1 has no context
                rows += [b] * len(targets)
                columns += targets
                parts.append((i, len(targets)))
        if not rows:
            return
        row, column = torch.tensor(rows, device=self.device), torch.tensor(columns, device=self.device)
        log_p = self.log_p(hidden[row, column - 1], ids[row, column])
        at = 0
        for i, n in parts:
            out[i] = log_p[at : at + n]
            at += n

    # -- the model

    @cached_property
    def shares_prefixes(self) -> bool:
        """Whether draws can share their document's keys and values (see `branches`)."""
        return works_for(self)

    def hidden(
        self, ids: torch.Tensor, mask: torch.Tensor | None, where: torch.Tensor, cache: Any, **more: Any
    ) -> torch.Tensor:
        """Last hidden states (B, T, D) of tokens (B, T) at positions (B, T), with the mask (B, past + T)."""
        out = self.model.base_model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=where,
            past_key_values=cache,
            use_cache=cache is not None,
            **more,
        )
        return out.last_hidden_state  # type: ignore[no-any-return]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 logits (N, V) of hidden states (N, D)."""
        return self.model.get_output_embeddings()(hidden).float()  # type: ignore[no-any-return]

    def log_p(self, hidden: torch.Tensor, targets: torch.Tensor) -> NDArray[np.float32]:
        """log p of one target (N,) after each hidden state (N, D), in chunks so that no [N, V] is ever whole."""
        chunk = max(1, (1 << 24) // self.model.config.get_text_config().vocab_size)
        out = []
        for at in range(0, len(hidden), chunk):
            logits = self.logits(hidden[at : at + chunk])
            picked = logits.gather(1, targets[at : at + chunk, None]).squeeze(1)
            out.append(picked - torch.logsumexp(logits, dim=1))
        return torch.cat(out).cpu().numpy() if out else np.zeros(0, dtype=np.float32)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def head(self, prompt: Prompt) -> tuple[int, KeyValues]:
        """The prompt head's length and its keys and values per layer (1, H, P, D), computed once per prompt."""
        with self.lock:
            if prompt.digest not in self._heads:
                ids = ([] if self.bos is None else [self.bos]) + self.encode(prompt.head.removesuffix(" "))
                if len(ids) >= self.context_length:
                    raise ModelError(
                        f"the {prompt.tool} prompt has {len(ids)} tokens, the context of model {self._name!r} only "
                        f"{self.context_length}; use a shorter prompt or a model with a longer context"
                    )
                cache = DynamicCache()
                row = torch.tensor([ids], device=self.device)
                with torch.inference_mode():
                    self.hidden(row, torch.ones_like(row), torch.arange(len(ids), device=self.device)[None], cache)
                self._heads[prompt.digest] = (len(ids), key_values(cache))
            return self._heads[prompt.digest]


def _context_length(model: Any, tokenizer: Any) -> int:
    config = model.config.get_text_config()
    known = [getattr(config, n, None) for n in ("max_position_embeddings", "n_positions", "n_ctx")]
    known.append(tokenizer.model_max_length)
    lengths = [int(n) for n in known if isinstance(n, int) and 0 < n < 10**7]
    if not lengths:
        raise ModelError("the model does not say how long its context is (max_position_embeddings)")
    return min(lengths)


def _first_given(*values: Any) -> int | None:
    return next((int(v) for v in values if isinstance(v, int)), None)
