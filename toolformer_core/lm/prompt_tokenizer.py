"""A model's tokenizer as annotation uses it: how prompts, " [" and the beginnings of calls become tokens of the model.

It knows no weights, so that a model behind a server has the same tokens as one that is loaded here.
"""

import re
from functools import cached_property
from typing import Any, NamedTuple

from toolformer_core.errors import ContextError, ModelError, TokenizerError
from toolformer_core.lm.tokens import encode, encode_following, encode_opened
from toolformer_core.records import Prompt
from toolformer_core.syntax import OPEN

_BYTE = re.compile("<0x[0-9A-F]{2}>")  # how tokenizers with byte fallback name the token of a byte
CALL_RESERVE = 64  # tokens of the context kept free for a call


class Beginning(NamedTuple):
    """What samples begin with, in tokens; both are empty where they begin with nothing.

    The last token of `Name(` is not given, because a tokenizer may write what follows in one token with it, as in
    `()]`.
    """

    given: list[int]  # all tokens of the text but the last one
    allowed: list[int]  # tokens that may follow, ascending: with each of them the text is complete


class PromptTokenizer:
    """A tokenizer with what annotation needs to know of its model.

    `bos` starts every sequence, None: nothing does; `context_lengths` are by every account of the model, empty: of
    none.
    """

    def __init__(self, tokenizer: Any, *, name: str, bos: int | None, context_lengths: list[int]) -> None:
        self.tokenizer = tokenizer
        self.name = name
        self.bos = bos
        self.context_length, self._context_by = _context_length(context_lengths, tokenizer, name)
        self.end_ids = frozenset(i for i in (tokenizer.eos_token_id, bos) if i is not None)
        self.trigger = encode_following(tokenizer, OPEN)
        if not self.trigger or tokenizer.decode(self.trigger).strip() != OPEN.strip():
            raise TokenizerError(f"the tokenizer of {name!r} cannot write {OPEN!r}")
        self._beginnings = {"": Beginning([], [])}

    @property
    def context_description(self) -> str:
        return f"{self.context_length} tokens{self._context_by}"

    @property
    def lead(self) -> list[int]:
        return [] if self.bos is None else [self.bos]

    @cached_property
    def closing_ids(self) -> frozenset[int]:
        """The tokens whose text holds a "]", since a call can only close after one of them."""
        return frozenset(i for i in range(len(self.tokenizer)) if "]" in self.tokenizer.decode([i]))

    def encode(self, text: str) -> list[int]:
        return encode(self.tokenizer, text)

    def beginning(self, begin: str) -> Beginning:
        """Return what a draw after " [" begins with in tokens, computed once per text; a ModelError if it cannot."""
        if begin not in self._beginnings:
            ids = encode_opened(self.tokenizer, begin)
            if self.text(ids) != begin:
                raise TokenizerError(f"the tokenizer of {self.name!r} cannot write {begin!r} after {OPEN!r}")
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
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def head_ids(self, prompt: Prompt) -> list[int]:
        return self.lead + self.encode(prompt.head.removesuffix(" "))

    def tail_ids(self, prompt: Prompt) -> list[int]:
        return encode_following(self.tokenizer, prompt.tail)


def _context_length(stated: list[int], tokenizer: Any, name: str) -> tuple[int, str]:
    """Return the tokens of a model's context, and a note if the tokenizer sets the limit."""
    limit = tokenizer.model_max_length
    limits = [int(limit)] if isinstance(limit, int) and 0 < limit < 10**7 else []  # without a limit it says 10**30
    if not stated and not limits:
        raise ModelError(
            f"model {name!r} does not say how long its context is (max_position_embeddings); "
            "set tokenizer.model_max_length to it, and save the tokenizer beside the model"
        )
    length = min(stated + limits)
    if stated and min(stated) == length:
        return length, ""
    model_limit = f"; the model's own is {min(stated)}" if stated else ""
    return length, f" (model_max_length of its tokenizer{model_limit})"
