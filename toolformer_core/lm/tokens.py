"""Where the tokens of a text lie: token ids, and the character offset in front of each.

A tokenizer may report a token without its leading space, or split one character over several tokens. The *cut* before
token j is therefore the end of token j-1, and is valid only where a character begins. Nothing here knows models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tokens", "tokenize"]


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


def tokenize(tokenizer: Any, texts: list[str]) -> list[Tokens]:
    """Tokenise texts without special tokens. The tokenizer must be a fast one (it reports character offsets)."""
    if not texts:
        return []
    coded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, return_attention_mask=False)
    return [_tokens(ids, offsets) for ids, offsets in zip(coded["input_ids"], coded["offset_mapping"], strict=True)]


def _tokens(ids: list[int], offsets: list[tuple[int, int]]) -> Tokens:
    n = len(ids)
    spans = np.asarray(offsets, dtype=np.int64).reshape(n, 2)
    cuts = np.zeros(n, dtype=np.int64)
    if n > 1:
        cuts[1:] = np.maximum.accumulate(spans[:-1, 1])
    starts = np.ones(n, dtype=np.bool_)
    starts[1:] = (spans[1:, 0] >= cuts[1:]) & (cuts[1:] > cuts[:-1])
    return Tokens(np.asarray(ids, dtype=np.int64), cuts, starts)
