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
from toolformer_core.lm.tokens import encode_following, start_token
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
        ModelError: the tokenizer is not a fast one, or the model does not tell its context.
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
        self.tokenizer = tokenizer
        self.name = name
        self.shares_prefixes: bool | None = None  # whether draws may go by `branches`; found out at the first draw
        self.budget = Budget.automatic(model, self.device)
        self.budget.tokens = self.budget.tokens if token_budget is None else token_budget
        self.budget.cache = self.budget.cache if cache_budget is None else cache_budget
        self.vocabulary = Vocabulary(model)
        self.context_length = _context_length(model, tokenizer)
        self.bos = start_token(tokenizer, model.config)
        self.end_ids = frozenset(i for i in (tokenizer.eos_token_id, self.bos) if i is not None)
        self.trigger = encode_following(tokenizer, OPEN)
        if not self.trigger or tokenizer.decode(self.trigger).strip() != OPEN.strip():
            raise TokenizerError(f"the tokenizer of {name!r} cannot write {OPEN!r}")
        self.tokens = 0  # passed through the model so far, padding included
        self._check_logits()
        self._heads: dict[str, tuple[int, KeyValues]] = {}
        self.lock = threading.RLock()  # one forward pass at a time: two would only share the same cores

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

    def _check_logits(self) -> None:
        """Some models scale or cap their logits behind the output layer; say so rather than score them wrongly.

        Raises:
            ModelError: hidden states and output layer do not give the model's own log-probabilities.
        """
        vocabulary = self.model.config.get_text_config().vocab_size
        ids = torch.arange(1, 9, device=self.device)[None] % vocabulary
        with torch.inference_mode():
            ours = self.logits(
                self.hidden(ids, torch.ones_like(ids), torch.arange(8, device=self.device)[None], None)[0]
            )
            whole = self.model(input_ids=ids, use_cache=False).logits[0].float()
        apart = float((torch.log_softmax(ours, -1) - torch.log_softmax(whole, -1)).abs().max())
        if not apart < (1e-4 if self.model.dtype == torch.float32 else 0.1):
            raise ModelError(
                f"model {self.name!r} changes its logits behind the output layer (log-probabilities differ by "
                f"{apart:.2g}); models with scaled or capped logits are not supported yet"
            )

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


def _context_length(model: Any, tokenizer: Any) -> int:
    config = model.config.get_text_config()
    known = [getattr(config, n, None) for n in ("max_position_embeddings", "n_positions", "n_ctx")]
    known.append(tokenizer.model_max_length)
    lengths = [int(n) for n in known if isinstance(n, int) and 0 < n < 10**7]
    if not lengths:
        raise ModelError("the model does not say how long its context is (max_position_embeddings)")
    return min(lengths)
