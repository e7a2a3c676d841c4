"""A Hugging Face causal LM and its fast tokenizer, as the parts of the engine use them: hidden states, logits, log p.

It runs tokens through the model and knows no text beyond encoding, no positions, no draws. Whoever uses it holds its
lock while a pass runs.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.activations import FastGELUActivation, NewGELUActivation

from toolformer_core.errors import ModelError, TokenizerError
from toolformer_core.lm.batches import KeyValues, key_values
from toolformer_core.lm.memory import Budget
from toolformer_core.lm.probe import check_passes, embedding_rows
from toolformer_core.lm.tokens import check_within, encode_following, start_token, within
from toolformer_core.lm.vocabulary import Vocabulary
from toolformer_core.records import Prompt
from toolformer_core.syntax import OPEN

__all__ = ["Network", "one_pass_activations"]


class Network:
    """A model on its device, with its tokenizer and budgets.

    Args:
        model: an `AutoModelForCausalLM`, on its device, in evaluation mode.
        tokenizer: its fast tokenizer.
        name: what the user called it.
        token_budget: tokens a batch may hold, padding included; None: by the memory that is free.
        cache_budget: bytes of keys and values that the draws of one round may hold; None: the same.

    Raises:
        TokenizerError: the tokenizer cannot write " [".
        ModelError: the tokenizer is not a fast one, or its tokens are not the model's; the model does not tell its
            context, or see `check_passes`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        token_budget: int | None = None,
        cache_budget: int | None = None,
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError(f"model {name!r} has no fast tokenizer, and positions need its character offsets")
        self.model = model
        self.name = name
        self.shares_prefixes: bool | None = None  # whether draws may go by `branches`; found out at the first draw
        self.tokens = 0  # passed through the model so far, padding included
        check_passes(model, self.hidden, self.device, name)
        rows = embedding_rows(model)
        self.bos = start_token(tokenizer, model.config)
        check_within([] if self.bos is None else [self.bos], tokenizer, rows, name)
        self.tokenizer = tokenizer = within(tokenizer, rows, name)
        self.budget = Budget.automatic(model, self.device)
        self.budget.tokens = self.budget.tokens if token_budget is None else token_budget
        self.budget.cache = self.budget.cache if cache_budget is None else cache_budget
        self.vocabulary = Vocabulary(model)
        self.context_length, self._context_by = _context_length(model, tokenizer, name)
        self.end_ids = frozenset(i for i in (tokenizer.eos_token_id, self.bos) if i is not None)
        self.trigger = encode_following(self.tokenizer, OPEN)
        if not self.trigger or tokenizer.decode(self.trigger).strip() != OPEN.strip():
            raise TokenizerError(f"the tokenizer of {name!r} cannot write {OPEN!r}")
        self._heads: dict[str, tuple[int, KeyValues]] = {}
        self.lock = threading.RLock()  # one forward pass at a time: two would only share the same cores

    @property
    def context_told(self) -> str:
        """The context in words, with where it comes from if not from the model."""
        return f"{self.context_length} tokens{self._context_by}"

    @property
    def token_budget(self) -> int:
        """Tokens a batch may hold, padding included."""
        return self.budget.tokens

    @property
    def cache_budget(self) -> int:
        """Bytes of keys and values that the draws of one round may hold."""
        return self.budget.cache

    @property
    def device(self) -> torch.device:
        """Where tokens go in."""
        embeddings = self.model.get_input_embeddings()
        if embeddings.weight.is_meta:  # kept elsewhere, and fetched by accelerate for each pass
            return torch.device(embeddings._hf_hook.execution_device)
        return embeddings.weight.device  # type: ignore[no-any-return]

    def hidden(
        self, ids: torch.Tensor, mask: torch.Tensor | None, where: torch.Tensor, cache: Any, **more: Any
    ) -> torch.Tensor:
        """Last hidden states (B, T, D) of tokens (B, T) at positions (B, T), with the mask (B, past + T)."""
        self.tokens += ids.numel()
        out = self.model.base_model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=where,
            past_key_values=cache,
            use_cache=cache is not None,
            **more,
        )
        return out.last_hidden_state.to(ids.device)  # type: ignore[no-any-return]  # a spread model ends on another one

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 logits (N, V) of hidden states (N, D)."""
        return self.model.get_output_embeddings()(hidden).float().to(hidden.device)  # type: ignore[no-any-return]

    def log_p(self, hidden: torch.Tensor, targets: torch.Tensor) -> NDArray[np.float32]:
        """log p of one target (N,) after each hidden state (N, D); no [N, V] is ever whole."""
        return self.vocabulary.log_p(hidden, targets).cpu().numpy()

    def encode(self, text: str) -> list[int]:
        """Token ids of a text that begins a sequence."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def text(self, ids: list[int]) -> str:
        """The text of tokens, special ones included."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def head_ids(self, prompt: Prompt) -> list[int]:
        """The tokens of [bos] and the prompt's head."""
        return ([] if self.bos is None else [self.bos]) + self.encode(prompt.head.removesuffix(" "))

    def head(self, prompt: Prompt) -> tuple[int, KeyValues]:
        """The prompt head's length and its keys and values per layer (1, H, P, D), computed once per prompt.

        The prompt must leave room for a document (`sequences.windows_of` sees to it).
        """
        with self.lock:
            if prompt.digest not in self._heads:
                ids = self.head_ids(prompt)
                cache = DynamicCache()
                row = torch.tensor([ids], device=self.device)
                with torch.inference_mode():
                    self.hidden(row, torch.ones_like(row), torch.arange(len(ids), device=self.device)[None], cache)
                self._heads[prompt.digest] = (len(ids), key_values(cache))
            return self._heads[prompt.digest]


def one_pass_activations(model: torch.nn.Module) -> None:
    """Put PyTorch's GELU where a model writes the same function out, in eight passes over its widest activations."""
    for module in model.modules():
        for name, child in module.named_children():
            if type(child) in (NewGELUActivation, FastGELUActivation):
                setattr(module, name, torch.nn.GELU(approximate="tanh"))


def _context_length(model: Any, tokenizer: Any, name: str) -> tuple[int, str]:
    """The tokens of a model's context, and where that comes from if not from the model."""
    config = model.config.get_text_config()
    own = _lengths([getattr(config, n, None) for n in ("max_position_embeddings", "n_positions", "n_ctx")])
    own = own or _lengths([getattr(config, n, None) for n in ("max_seq_len", "seq_length")])  # MPT's and BLOOM's
    limit = _lengths([tokenizer.model_max_length])
    if not own and not limit:
        raise ModelError(
            f"model {name!r} does not say how long its context is (max_position_embeddings); "
            "set tokenizer.model_max_length to it, and save the tokenizer beside the model"
        )
    length = min(own + limit)
    if own and min(own) == length:
        return length, ""
    said = f"; the model's own is {min(own)}" if own else ""
    return length, f" (model_max_length of its tokenizer{said})"


def _lengths(given: list[Any]) -> list[int]:
    return [int(n) for n in given if isinstance(n, int) and 0 < n < 10**7]  # a tokenizer without a limit says 10**30
