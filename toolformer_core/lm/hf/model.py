"""A Hugging Face causal LM with its fast tokenizer: hidden states, logits and log-probabilities for the engine's parts.

Callers hold its lock while a pass runs.
"""

import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.activations import FastGELUActivation, NewGELUActivation

from toolformer_core.errors import ModelError
from toolformer_core.lm.hf.batches import KeyValues, key_values
from toolformer_core.lm.hf.head import LMHead
from toolformer_core.lm.hf.memory import Budget
from toolformer_core.lm.hf.probe import PROBED, check_passes, embedding_rows
from toolformer_core.lm.prompt_tokenizer import PromptTokenizer
from toolformer_core.lm.tokens import drop_unembedded_tokens, ordinary_tokens, start_token
from toolformer_core.records import Prompt


class HFModel(PromptTokenizer):
    """A model on its device, in evaluation mode, with its tokenizer and budgets, by default chosen by free memory.

    `token_budget` is the tokens that a batch may hold, padding included, `cache_budget` the bytes of keys and values
    that the samples of one round may hold. A ModelError if the tokenizer is not a fast one, cannot write " [" or does
    not belong to the model, if the model does not say how long its context is, or as of `check_passes`.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, name: str, token_budget: int | None = None, cache_budget: int | None = None
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError(f"model {name!r} has no fast tokenizer, but positions need its character offsets")
        self.model = model
        self.shares_prefixes: bool | None = None  # whether samples use `SharedPrefix`; decided at the first draw
        self.tokens = 0  # processed so far, padding included
        rows = embedding_rows(model)
        probed = torch.tensor(ordinary_tokens(tokenizer, rows, PROBED), device=self.device)
        check_passes(model, self.hidden, probed, name)
        bos = start_token(tokenizer, model.config)
        tokenizer = drop_unembedded_tokens(tokenizer, rows, name, bos)
        self.budget = Budget.for_model(model, self.device, token_budget, cache_budget)
        self.lm_head = LMHead(model)
        super().__init__(tokenizer, name=name, bos=bos, context_lengths=_context_lengths(model))
        self._heads: dict[str, tuple[int, KeyValues]] = {}
        self.lock = threading.RLock()  # one forward pass at a time: two would compete for the same cores

    @property
    def device(self) -> torch.device:
        embeddings = self.model.get_input_embeddings()
        if embeddings.weight.is_meta:  # offloaded; accelerate fetches it for each pass
            return torch.device(embeddings._hf_hook.execution_device)
        return embeddings.weight.device  # type: ignore[no-any-return]

    def hidden(
        self, ids: torch.Tensor, mask: torch.Tensor | None, position: torch.Tensor, cache: Any, **options: Any
    ) -> torch.Tensor:
        """Return the last hidden states (B, T, D) of tokens (B, T) at positions (B, T), with mask (B, past + T)."""
        self.tokens += ids.numel()
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": position, "past_key_values": cache}
        out = self.model.base_model(**given, use_cache=cache is not None, **options)
        return out.last_hidden_state.to(ids.device)  # type: ignore[no-any-return]  # spread, it ends on another device

    def read(self, ids: torch.Tensor, cache: DynamicCache | None = None) -> torch.Tensor:
        position = torch.arange(len(ids), device=ids.device)[None]
        return self.hidden(ids[None], torch.ones_like(ids)[None], position, cache)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.model.get_output_embeddings()(hidden).float().to(hidden.device)  # type: ignore[no-any-return]

    def log_p(self, hidden: torch.Tensor, targets: torch.Tensor) -> NDArray[np.float32]:
        """Return log p of one target (N,) after each hidden state (N, D); no (N, V) tensor is ever held."""
        return self.lm_head.log_p(hidden, targets).cpu().numpy()

    def head(self, prompt: Prompt) -> tuple[int, KeyValues]:
        """Return the prompt head's length, and its keys and values per layer (1, H, P, D); kept within the budget."""
        with self.lock:
            if prompt.digest not in self._heads:
                ids = self.head_ids(prompt)
                cache = DynamicCache()
                with torch.inference_mode():
                    self.read(torch.tensor(ids, device=self.device), cache)
                self._heads[prompt.digest] = (len(ids), key_values(cache))
            self._heads[prompt.digest] = head = self._heads.pop(prompt.digest)  # the last in use
            while len(self._heads) > 1 and sum(_bytes(kv) for _, kv in self._heads.values()) > self.budget.cache:
                del self._heads[next(iter(self._heads))]
            return head


def fuse_gelu(model: torch.nn.Module) -> None:
    """Replace a GELU written as eight passes over a layer's widest activations by PyTorch's fused one, in place."""
    for module in model.modules():
        for name, child in module.named_children():
            if type(child) in (NewGELUActivation, FastGELUActivation):
                setattr(module, name, torch.nn.GELU(approximate="tanh"))


def _context_lengths(model: Any) -> list[int]:
    """Return what a model's configuration says of the tokens of its context; empty if it says nothing."""
    config = model.config.get_text_config()

    def stated(*names: str) -> list[int]:
        lengths = [getattr(config, name, None) for name in names]
        return [n for n in lengths if isinstance(n, int) and 0 < n < 10**7]

    mpt_or_bloom = stated("max_seq_len", "seq_length")
    return stated("max_position_embeddings", "n_positions", "n_ctx") or mpt_or_bloom


def _bytes(kv: KeyValues) -> int:
    return sum(x.numel() * x.element_size() for pair in kv for x in pair)
