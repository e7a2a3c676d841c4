"""A Hugging Face causal LM with its fast tokenizer: hidden states, logits and log-probabilities for the engine's parts.

It runs tokens through the model. It knows no texts beyond encoding them, no positions and no draws. Callers hold its
lock while a pass runs.
"""

from __future__ import annotations

import re
import threading
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.activations import FastGELUActivation, NewGELUActivation

from toolformer_core.errors import ContextError, ModelError, TokenizerError
from toolformer_core.lm.hf.batches import KeyValues, key_values
from toolformer_core.lm.hf.head import LMHead
from toolformer_core.lm.hf.memory import Budget
from toolformer_core.lm.hf.probe import check_passes, embedding_rows
from toolformer_core.lm.tokens import (
    WORD,
    check_embedded,
    drop_unembedded_tokens,
    encode_behind,
    encode_between,
    encode_following,
    start_token,
)
from toolformer_core.records import Prompt
from toolformer_core.syntax import OPEN

__all__ = ["CALL_RESERVE", "Beginning", "HFModel", "fuse_gelu"]

_BYTE = re.compile("<0x[0-9A-F]{2}>")  # how tokenizers with byte fallback name the token of a byte
CALL_RESERVE = 64  # tokens of the context kept free for a call


class Beginning(NamedTuple):
    """What draws begin with, in tokens; both are empty where they begin with nothing.

    The last token of a text such as `Name(` is not given, because a tokenizer may write what follows in one token with
    it, as in `()]`: a draw behind a lone `(` could no longer become that.
    """

    given: list[int]  # all tokens of the text but the last one
    allowed: list[int]  # tokens that may follow, ascending: with each of them the text is complete


class HFModel:
    """A model on its device, with its tokenizer and budgets.

    Args:
        model: an `AutoModelForCausalLM`, on its device, in evaluation mode.
        tokenizer: its fast tokenizer.
        name: the user's name for it.
        token_budget: tokens that a batch may hold, padding included; None: chosen by free memory.
        cache_budget: bytes of keys and values that the draws of one round may hold; None: chosen by free memory.

    Raises:
        TokenizerError: the tokenizer cannot write " [".
        ModelError: the tokenizer is not a fast one or does not belong to the model; the model does not say how long
            its context is; or see `check_passes`.
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
            raise ModelError(f"model {name!r} has no fast tokenizer, but positions need its character offsets")
        self.model = model
        self.name = name
        self.shares_prefixes: bool | None = None  # whether draws use `SharedPrefix`; decided at the first draw
        self.tokens = 0  # processed so far, padding included
        check_passes(model, self.hidden, self.device, name)
        rows = embedding_rows(model)
        self.bos = start_token(tokenizer, model.config)
        check_embedded([] if self.bos is None else [self.bos], tokenizer, rows, name)
        self.tokenizer = tokenizer = drop_unembedded_tokens(tokenizer, rows, name)
        self.budget = Budget.automatic(model, self.device)
        self.budget.tokens = self.budget.tokens if token_budget is None else token_budget
        self.budget.cache = self.budget.cache if cache_budget is None else cache_budget
        self.lm_head = LMHead(model)
        self.context_length, self._context_by = _context_length(model, tokenizer, name)
        self.end_ids = frozenset(i for i in (tokenizer.eos_token_id, self.bos) if i is not None)
        self.trigger = encode_following(self.tokenizer, OPEN)
        if not self.trigger or tokenizer.decode(self.trigger).strip() != OPEN.strip():
            raise TokenizerError(f"the tokenizer of {name!r} cannot write {OPEN!r}")
        self._heads: dict[str, tuple[int, KeyValues]] = {}
        self._beginnings = {"": Beginning([], [])}
        self.lock = threading.RLock()  # one forward pass at a time: two would compete for the same cores

    @property
    def context_description(self) -> str:
        """The context length in words, with its origin if the model does not state it."""
        return f"{self.context_length} tokens{self._context_by}"

    @property
    def token_budget(self) -> int:
        """Tokens that a batch may hold, padding included."""
        return self.budget.tokens

    @property
    def cache_budget(self) -> int:
        """Bytes of keys and values that the draws of one round may hold."""
        return self.budget.cache

    @property
    def device(self) -> torch.device:
        """The device of the input embeddings."""
        embeddings = self.model.get_input_embeddings()
        if embeddings.weight.is_meta:  # offloaded; accelerate fetches it for each pass
            return torch.device(embeddings._hf_hook.execution_device)
        return embeddings.weight.device  # type: ignore[no-any-return]

    def hidden(
        self, ids: torch.Tensor, mask: torch.Tensor | None, position: torch.Tensor, cache: Any, **options: Any
    ) -> torch.Tensor:
        """Return the last hidden states (B, T, D) of tokens (B, T) at positions (B, T), with mask (B, past + T)."""
        self.tokens += ids.numel()
        out = self.model.base_model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=position,
            past_key_values=cache,
            use_cache=cache is not None,
            **options,
        )
        # a model spread over devices ends on a different one
        return out.last_hidden_state.to(ids.device)  # type: ignore[no-any-return]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the float32 logits (N, V) of hidden states (N, D)."""
        return self.model.get_output_embeddings()(hidden).float().to(hidden.device)  # type: ignore[no-any-return]

    def log_p(self, hidden: torch.Tensor, targets: torch.Tensor) -> NDArray[np.float32]:
        """Return log p of one target (N,) after each hidden state (N, D); no (N, V) tensor is ever held."""
        return self.lm_head.log_p(hidden, targets).cpu().numpy()

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text that starts a sequence."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def beginning(self, begin: str) -> Beginning:
        """Return what a draw behind " [" begins with in tokens (see `encode_behind`), computed once per text.

        Raises:
            TokenizerError: the tokenizer has no tokens for just this text.
            ContextError: it is longer than what is kept free for a call.
        """
        if begin not in self._beginnings:
            ids = encode_behind(self.tokenizer, OPEN, begin)
            if self.text(ids) != begin:
                raise TokenizerError(f"the tokenizer of {self.name!r} cannot write {begin!r} behind {OPEN!r}")
            if len(ids) > CALL_RESERVE:
                raise ContextError(f"{begin!r} takes {len(ids)} tokens of {self.name!r}, of {CALL_RESERVE} for a call")
            given = ids[:-1]
            candidates = [t for t in range(len(self.tokenizer)) if begin[-1] in self.text([t])]
            completing = [t for t in candidates if self.text([*given, t]).startswith(begin)]
            # a single byte's text would change with the bytes that follow it
            names = zip(completing, self.tokenizer.convert_ids_to_tokens(completing), strict=True)
            allowed = [t for t, name in names if t == ids[-1] or not _BYTE.fullmatch(name)]
            self._beginnings[begin] = Beginning(given, [t for t in allowed if t not in self.end_ids])
        return self._beginnings[begin]

    def text(self, ids: list[int]) -> str:
        """Return the text of tokens, special ones included."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def head_ids(self, prompt: Prompt) -> list[int]:
        """Return the tokens of [bos] and the prompt's head.

        A chat template may write the tokenizer's bos itself: it stands there once. If the tokenizer has none, a chat
        begins with none, where a plain prompt begins with eos.
        """
        head = prompt.head.removesuffix(" ")
        if prompt.turn is None:
            return ([] if self.bos is None else [self.bos]) + self.encode(head)
        ids = encode_between(self.tokenizer, "", head, prompt.head[len(head) :] + WORD)
        bos = self.tokenizer.bos_token_id
        return ids if bos is None or ids[:1] == [bos] else [bos, *ids]

    def tail_ids(self, prompt: Prompt) -> list[int]:
        """Return the tokens of the prompt's tail."""
        if prompt.turn is None:
            return encode_following(self.tokenizer, prompt.tail)
        return encode_between(self.tokenizer, WORD, prompt.tail, " " * prompt.turn.space + WORD)

    def ends(self, prompt: Prompt) -> frozenset[int]:
        """Return the tokens that end a draw: those that end a text and, in a chat, the one that ends a turn."""
        end = self.tokenizer.get_vocab().get(prompt.turn.end) if prompt.turn is not None else None
        return self.end_ids if end is None else self.end_ids | {end}

    def head(self, prompt: Prompt) -> tuple[int, KeyValues]:
        """Return the prompt head's length and its keys and values per layer (1, H, P, D), computed once per prompt.

        Heads that were not used for longest are dropped when all of them take more than the cache budget.

        The prompt must leave room for a document (`windowing.windows_of` checks it).
        """
        with self.lock:
            if prompt.digest not in self._heads:
                ids = self.head_ids(prompt)
                cache = DynamicCache()
                row = torch.tensor([ids], device=self.device)
                with torch.inference_mode():
                    self.hidden(row, torch.ones_like(row), torch.arange(len(ids), device=self.device)[None], cache)
                self._heads[prompt.digest] = (len(ids), key_values(cache))
            self._heads[prompt.digest] = head = self._heads.pop(prompt.digest)  # the last in use
            while len(self._heads) > 1 and sum(_bytes(kv) for _, kv in self._heads.values()) > self.cache_budget:
                del self._heads[next(iter(self._heads))]
            return head


def fuse_gelu(model: torch.nn.Module) -> None:
    """Replace a GELU written as eight passes over a layer's widest activations by PyTorch's fused one, in place."""
    for module in model.modules():
        for name, child in module.named_children():
            if type(child) in (NewGELUActivation, FastGELUActivation):
                setattr(module, name, torch.nn.GELU(approximate="tanh"))


def _context_length(model: Any, tokenizer: Any, name: str) -> tuple[int, str]:
    """Return the tokens of a model's context, and a note if the tokenizer sets the limit."""
    config = model.config.get_text_config()
    stated = _lengths([getattr(config, n, None) for n in ("max_position_embeddings", "n_positions", "n_ctx")])
    stated = stated or _lengths([getattr(config, n, None) for n in ("max_seq_len", "seq_length")])  # MPT, BLOOM
    limit = _lengths([tokenizer.model_max_length])
    if not stated and not limit:
        raise ModelError(
            f"model {name!r} does not say how long its context is (max_position_embeddings); "
            "set tokenizer.model_max_length to it, and save the tokenizer beside the model"
        )
    length = min(stated + limit)
    if stated and min(stated) == length:
        return length, ""
    model_limit = f"; the model's own is {min(stated)}" if stated else ""
    return length, f" (model_max_length of its tokenizer{model_limit})"


def _bytes(kv: KeyValues) -> int:
    return sum(x.numel() * x.element_size() for pair in kv for x in pair)


def _lengths(values: list[Any]) -> list[int]:
    return [int(n) for n in values if isinstance(n, int) and 0 < n < 10**7]  # a tokenizer without a limit says 10**30
