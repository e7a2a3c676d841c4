"""Where the tokens of a text lie: token ids, and the character offset in front of each.

A tokenizer may report a token without its leading space, or split one character over several tokens. The *cut* before
token j is therefore the end of token j-1, and is valid only where a character begins. Nothing here knows models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tokens", "encode_following", "start_token", "tokenize"]

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
