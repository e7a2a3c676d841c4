"""Where the tokens of a text lie: token ids, and the character offset in front of each.

A tokenizer may report a token without its leading space, or split one character over several tokens. The *cut* before
token j is therefore the end of token j-1, and is valid only where a character begins. Nothing here knows models.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolformer_core.errors import ModelError

__all__ = ["Tokens", "check_within", "encode_following", "start_token", "tokenize", "within"]

_WORD = "a"  # one character, and a token of its own in front of a space


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenised text."""

    ids: NDArray[np.int64]  # (n,)
    cuts: NDArray[np.int64]  # (n,) character offset in front of each token; ascending, cuts[0] == 0
    starts_character: NDArray[np.bool_]  # (n,) False inside a character, and where the cut repeats the one before

    def token_at(self, position: int) -> int:
        """Return the first token that starts at or behind a character offset; n if there is none."""
        usable = np.flatnonzero(self.starts_character & (self.cuts >= position))
        return int(usable[0]) if len(usable) else len(self.ids)


def tokenize(tokenizer: Any, texts: list[str], *, follow: bool = False) -> list[Tokens]:
    """Tokenise texts without special tokens.

    Args:
        tokenizer: a fast one (it reports character offsets).
        texts: the texts; with `follow` they begin with a space.
        follow: they stand behind other text. Some tokenizers put a space in front of every text they are given, so
            these are tokenised behind a word, which is then cut off.
    """
    if not texts:
        return []
    given = [_WORD + t for t in texts] if follow else texts
    coded = tokenizer(given, add_special_tokens=False, return_offsets_mapping=True, return_attention_mask=False)
    pairs = list(zip(coded["input_ids"], coded["offset_mapping"], strict=True))
    return [_tokens(*(_without_word(ids, offsets) if follow else (ids, offsets))) for ids, offsets in pairs]


def encode_following(tokenizer: Any, text: str) -> list[int]:
    """Return the token ids of a text that stands behind other text (see `tokenize`)."""
    with_word, word = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in (_WORD + text, _WORD))
    if with_word[: len(word)] == word:
        return list(with_word[len(word) :])
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def start_token(tokenizer: Any, config: Any) -> int | None:
    """Return the token that stands in front of every sequence: bos, else eos; None if the model has neither."""
    given = (tokenizer.bos_token_id, tokenizer.eos_token_id, config.get_text_config().bos_token_id)
    return next((int(token) for token in given if isinstance(token, int)), None)


def within(tokenizer: Any, rows: int, name: str) -> Any:
    """Return a tokenizer that gives no token a model has no embedding for: itself, if none of its tokens is one.

    Tokens that were added to a tokenizer, and not to its model, do no harm until a text holds one of them.

    Args:
        tokenizer: any.
        rows: how many tokens the model has an embedding for.
        name: what the user calls the model.
    """
    return tokenizer if max(tokenizer.get_vocab().values(), default=0) < rows else _Within(tokenizer, rows, name)


def check_within(ids: Iterable[int], tokenizer: Any, rows: int, name: str) -> None:
    """See that a model has an embedding for some tokens.

    Raises:
        ModelError: it does not.
    """
    largest = max(ids, default=-1)
    if largest >= rows:
        if largest >= len(tokenizer) and tokenizer.convert_ids_to_tokens(largest) is None:
            raise ModelError(
                f"model {name!r} has embeddings for {rows} tokens, and its config.json names token {largest} "
                "(bos_token_id); set bos_token_id to one it has, or the tokenizer's bos_token"
            )
        raise ModelError(
            f"model {name!r} has no embedding for token {largest} ({tokenizer.convert_ids_to_tokens(largest)!r}): its "
            f"tokenizer has {len(tokenizer)} tokens, the model {rows}; call resize_token_embeddings, or use the "
            "model's own tokenizer"
        )


class _Within:
    """A tokenizer whose answers are checked; in all else it is the one it was made of."""

    def __init__(self, tokenizer: Any, rows: int, name: str) -> None:
        self._whole, self._rows, self._name = tokenizer, rows, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        coded = self._whole(*args, **kwargs)
        ids = coded["input_ids"]
        for row in ids if len(ids) and isinstance(ids[0], list) else [ids]:
            check_within(row, self._whole, self._rows, self._name)
        return coded

    def __len__(self) -> int:
        return len(self._whole)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what a copy asks before there is a tokenizer to ask
            raise AttributeError(name)
        return getattr(self._whole, name)


def _without_word(ids: list[int], offsets: list[tuple[int, int]]) -> tuple[list[int], list[tuple[int, int]]]:
    n = len(_WORD)
    first = next((j for j, (_, end) in enumerate(offsets) if end > n), len(ids))
    return ids[first:], [(max(start - n, 0), end - n) for start, end in offsets[first:]]


def _tokens(ids: list[int], offsets: list[tuple[int, int]]) -> Tokens:
    n = len(ids)
    spans = np.asarray(offsets, dtype=np.int64).reshape(n, 2)
    cuts = np.zeros(n, dtype=np.int64)
    if n > 1:
        cuts[1:] = np.maximum.accumulate(spans[:-1, 1])
    starts = np.ones(n, dtype=np.bool_)
    starts[1:] = (spans[1:, 0] >= cuts[1:]) & (cuts[1:] > cuts[:-1])
    return Tokens(np.asarray(ids, dtype=np.int64), cuts, starts)
