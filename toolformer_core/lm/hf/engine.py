"""The transformers backend: any Hugging Face causal LM behind the `LanguageModel` protocol.

One forward pass gives many results. A tool's prompt is computed once, and every document shares its keys and values.
One pass over a document gives p(" [") at every position, and its draws start from that pass's keys and values. A plain
text is scored once for all its positions (`scoring`). Every shortcut gives the plain computation's numbers; the tests
compare.

    sequence of a scan       [bos] head | x tail | x                   positions are those of the second x

This module knows no tools, thresholds or weights of a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from toolformer_core.lm.base import Draw, Insertion, Scan, ScoreRequest
from toolformer_core.lm.hf.batches import by_budget, pad
from toolformer_core.lm.hf.model import HFModel, fuse_gelu
from toolformer_core.lm.hf.scanning import call_at_end, scan_texts
from toolformer_core.lm.scoring import ScoreSequence, score_requests
from toolformer_core.records import Prompt


class TransformersLM:
    """A causal LM that annotates and scores.

    Args:
        model: an `AutoModelForCausalLM`, on its device, in evaluation mode; `fuse_gelu` changes it.
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

    def scan(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[Scan]:
        """See `LanguageModel.scan`. Texts are batched shortest first; all windows of a text are in the same scan.

        Raises:
            ModelError: prompt and call leave too little of the context for a document.
        """
        return scan_texts(self.hf_model, prompt, texts)

    def call_at_end(
        self, prompt: Prompt, texts: Sequence[str], *, max_tokens: int, name: str = ""
    ) -> list[Draw | None]:
        """Write the most likely call after each text, after the prompt's head; its tail is left out.

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
        return score_requests(self.hf_model, requests, self._score, self.hf_model.context_length)

    def _score(self, sequences: list[ScoreSequence]) -> list[tuple[int, NDArray[np.float32]]]:
        """Return all answers of some sequences, which are batched shortest first."""
        hf_model = self.hf_model
        sequences.sort(key=lambda one: len(one.ids))
        out = []
        with hf_model.lock, torch.inference_mode():
            for batch in by_budget([len(one.ids) for one in sequences], hf_model.token_budget):
                for part in hf_model.budget.in_parts([sequences[b] for b in batch], self._score_batch):
                    out += part
        return out

    def _score_batch(self, sequences: Sequence[ScoreSequence]) -> list[tuple[int, NDArray[np.float32]]]:
        """Return all answers of some sequences, which are read together."""
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
