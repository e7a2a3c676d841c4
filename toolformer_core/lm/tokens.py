"""Where the tokens of a text lie: token ids, and the character offset in front of each.

A tokenizer may report a token without its leading space, or split one character over several tokens. The *cut* before
token j is therefore the end of token j-1, and is valid only where a character begins. Nothing here knows models.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from toolformer_core.errors import ModelError

__all__ = ["Tokens", "check_within", "encode_following", "start_token", "tokenize", "within"]

_LOG = logging.getLogger(__name__)
_TOLD = 3  # tokens that a warning names
_WORD = "a"  # one character, and a token of its own in front of a space


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenised text."""

    ids: NDArray[np.int64]  # (n,)
    cuts: NDArray[np.int64]  # (n,) character offset in front of each token; ascending, cuts[0] == 0
    starts_character: NDArray[np.bool_]  # (n,) False inside a character, and where another token starts at this cut

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
    """Return a tokenizer that gives no token a model has no embedding for: itself, or a copy without such added ones.

    Where tokens were added to a tokenizer and not to its model (one for padding, often), the model has learnt the
    characters they are of, and reads those; else one document in a million would end what has run for days.

    Args:
        tokenizer: a fast one; it is not changed.
        rows: how many tokens the model has an embedding for.
        name: what the user calls the model.

    Raises:
        ModelError: a token of its own vocabulary, which no one added, is beyond: it is another model's tokenizer.
    """
    beyond = {token: i for token, i in tokenizer.get_vocab().items() if i >= rows}
    if not beyond:
        return tokenizer
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["added_tokens"] = [added for added in state["added_tokens"] if added["id"] < rows]
    out = copy.deepcopy(tokenizer)
    out._tokenizer = Tokenizer.from_str(json.dumps(state))
    out._tokenizer.encode_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens
    for role, token in tokenizer.special_tokens_map.items():
        if token in beyond:
            setattr(out, role, None)
    check_within(out.get_vocab().values(), tokenizer, rows, name)
    told = ", ".join(repr(token) for token in sorted(beyond, key=beyond.__getitem__)[:_TOLD])
    more = f" and {len(beyond) - _TOLD} more" if len(beyond) > _TOLD else ""
    _LOG.warning(
        "model %r has no embedding for %s%s: added to its tokenizer, and not to it; they are read as plain text",
        *(name, told, more),
    )
    return out


def check_within(ids: Iterable[int], tokenizer: Any, rows: int, name: str) -> None:
    """See that a model has an embedding for some tokens.

    Raises:
        ModelError: it does not.
    """
    largest = max(ids, default=-1)
    if largest < rows:
        return
    if largest >= len(tokenizer) and tokenizer.convert_ids_to_tokens(largest) is None:
        raise ModelError(
            f"model {name!r} has embeddings for {rows} tokens, and its config.json names token {largest} "
            "(bos_token_id); set bos_token_id to one it has, or the tokenizer's bos_token"
        )
    raise ModelError(
        f"model {name!r} has no embedding for token {largest} ({tokenizer.decode([largest])!r}): its "
        f"tokenizer has {len(tokenizer)} tokens, the model {rows}; call resize_token_embeddings, or use the "
        "model's own tokenizer"
    )


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
    starts = np.asarray(spans[:, 0] >= cuts, dtype=np.bool_)
    first = np.flatnonzero(starts)  # of those, the first at each cut
    starts[first[1:][cuts[first[1:]] == cuts[first[:-1]]]] = False
    starts[:1] = True
    return Tokens(np.asarray(ids, dtype=np.int64), cuts, starts)
