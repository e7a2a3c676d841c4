"""Tokenises texts and keeps the character offset in front of every token.

A tokenizer may report a token without its leading space, or split one character over several tokens. The *cut* in
front of token j is therefore the end of token j-1, and is valid only where a character starts. This module knows no
weights.
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

__all__ = [
    "WORD",
    "Tokens",
    "check_embedded",
    "drop_unembedded_tokens",
    "encode_behind",
    "encode_between",
    "encode_following",
    "start_token",
    "tokenize",
    "tokenize_behind",
]

_LOG = logging.getLogger(__name__)
_NAMED = 3  # tokens that a warning lists
WORD = "a"  # one character, and a separate token when a space follows


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenised text."""

    ids: NDArray[np.int64]  # (n,)
    cuts: NDArray[np.int64]  # (n,) character offset in front of each token; ascending, cuts[0] == 0
    starts_character: NDArray[np.bool_]  # (n,) False inside a character, and if an earlier token has the same cut

    def token_at(self, position: int) -> int:
        """Return the first token that starts at or after a character offset; n if there is none."""
        usable = np.flatnonzero(self.starts_character & (self.cuts >= position))
        return int(usable[0]) if len(usable) else len(self.ids)

    def ends(self, length: int) -> NDArray[np.int64]:
        """Return the character offset behind each token, (n,), of a text of `length` characters."""
        return np.append(self.cuts[1:], length)[: len(self.ids)]

    def touching(self, spans: Iterable[tuple[int, int]], length: int) -> NDArray[np.bool_]:
        """Return which tokens share a character with one of some spans [start, end) of characters: (n,).

        A character may be split over several tokens. Only the first starts it; the others begin where that one did.

        Args:
            spans: the spans; an empty one shares nothing.
            length: of the text, in characters.
        """
        touched = np.zeros(len(self.ids), dtype=np.bool_)
        if not len(touched):
            return touched
        starting = np.maximum.accumulate(np.where(self.starts_character, np.arange(len(touched)), 0))
        starts, ends = self.cuts[starting], self.ends(length)
        for start, end in spans:
            if start < end:
                touched |= (starts < end) & (ends > start)
        return touched


def tokenize(tokenizer: Any, texts: list[str], *, follow: bool = False) -> list[Tokens]:
    """Tokenise texts without special tokens.

    Args:
        tokenizer: a fast tokenizer (it reports character offsets).
        texts: the texts; with `follow` they start with a space.
        follow: the texts follow other text. Some tokenizers put a space in front of every input, so these texts are
            tokenised behind a word, which is then removed.
    """
    if not texts:
        return []
    inputs = [WORD + t for t in texts] if follow else texts
    encoding = tokenizer(inputs, add_special_tokens=False, return_offsets_mapping=True, return_attention_mask=False)
    pairs = list(zip(encoding["input_ids"], encoding["offset_mapping"], strict=True))
    return [_tokens(*(_without_word(ids, offsets) if follow else (ids, offsets))) for ids, offsets in pairs]


def tokenize_behind(tokenizer: Any, before: str, texts: list[str]) -> list[Tokens]:
    """Tokenise texts that stand directly behind another text, whose tokens are removed.

    A text that would share a token with what it follows is tokenised alone, so that all its characters are its own.

    Args:
        tokenizer: a fast tokenizer.
        before: e.g. the header of a chat's turn.
        texts: the texts.
    """
    if not texts:
        return []
    inputs = [before + t for t in texts]
    encoding = tokenizer(inputs, add_special_tokens=False, return_offsets_mapping=True, return_attention_mask=False)
    out = []
    for text, ids, offsets in zip(texts, encoding["input_ids"], encoding["offset_mapping"], strict=True):
        first = _border(offsets, n := len(before))
        if first is None:
            out += tokenize(tokenizer, [text])
        else:
            out.append(_tokens(ids[first:], [(max(start - n, 0), end - n) for start, end in offsets[first:]]))
    return out


def encode_between(tokenizer: Any, before: str, text: str, after: str) -> list[int]:
    """Return the token ids of a text as it stands between two others; alone, if it would share a token with them.

    A line end in front of a letter may be another token than one in front of another line end.
    """
    encoding = tokenizer(before + text + after, add_special_tokens=False, return_offsets_mapping=True)
    first, last = (_border(encoding["offset_mapping"], n) for n in (len(before), len(before) + len(text)))
    if first is None or last is None:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return list(encoding["input_ids"][first:last])


def _border(offsets: list[tuple[int, int]], n: int) -> int | None:
    """Return how many tokens stand in front of character n; None if a token stands on both sides."""
    first = next((j for j, (_, end) in enumerate(offsets) if end > n), len(offsets))
    return None if first < len(offsets) and offsets[first][0] < n else first


def encode_following(tokenizer: Any, text: str) -> list[int]:
    """Return the token ids of a text that follows other text (see `tokenize`)."""
    with_word, word = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in (WORD + text, WORD))
    if with_word[: len(word)] == word:
        return list(with_word[len(word) :])
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def encode_behind(tokenizer: Any, before: str, text: str) -> list[int]:
    """Return the token ids of a text behind another text, so that the ids in front of them are those of that text.

    They are what the tokenizer makes of both together, less the ids of the first, where these are its beginning. A
    tokenizer that merges across the border has no such ids: the second text is then tokenised alone.

    Args:
        tokenizer: a fast tokenizer.
        before: e.g. " [".
        text: e.g. "QA(".
    """
    ids, both = encode_following(tokenizer, before), encode_following(tokenizer, before + text)
    return both[len(ids) :] if both[: len(ids)] == ids else encode_following(tokenizer, text)


def start_token(tokenizer: Any, config: Any) -> int | None:
    """Return the token that starts every sequence: bos, else eos; None if the model has neither.

    Args:
        tokenizer: the model's tokenizer.
        config: the model's; None: it is not known.
    """
    configured = None if config is None else config.get_text_config().bos_token_id
    candidates = (tokenizer.bos_token_id, tokenizer.eos_token_id, configured)
    return next((int(token) for token in candidates if isinstance(token, int)), None)


def drop_unembedded_tokens(tokenizer: Any, rows: int, name: str) -> Any:
    """Return a tokenizer that never produces a token without an embedding.

    It is the tokenizer itself, or a copy without the added tokens that the model has no embedding for. Tokens are
    sometimes added to a tokenizer but not to its model (often a padding token); such a token is then read as the plain
    text it consists of. Otherwise one document in a million could stop a run of days.

    Args:
        tokenizer: a fast tokenizer; it is not changed.
        rows: how many tokens the model has an embedding for.
        name: the user's name for the model.

    Raises:
        ModelError: a token of the original vocabulary has no embedding: the tokenizer belongs to another model.
    """
    unembedded = {token: i for token, i in tokenizer.get_vocab().items() if i >= rows}
    if not unembedded:
        return tokenizer
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["added_tokens"] = [added for added in state["added_tokens"] if added["id"] < rows]
    out = copy.deepcopy(tokenizer)
    out._tokenizer = Tokenizer.from_str(json.dumps(state))
    out._tokenizer.encode_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens
    for role, token in tokenizer.special_tokens_map.items():
        if token in unembedded:
            setattr(out, role, None)
    check_embedded(out.get_vocab().values(), tokenizer, rows, name)
    named = ", ".join(repr(token) for token in sorted(unembedded, key=unembedded.__getitem__)[:_NAMED])
    more = f" and {len(unembedded) - _NAMED} more" if len(unembedded) > _NAMED else ""
    _LOG.warning(
        "model %r has no embedding for %s%s, which were added to its tokenizer only; they are read as plain text",
        *(name, named, more),
    )
    return out


def check_embedded(ids: Iterable[int], tokenizer: Any, rows: int, name: str) -> None:
    """Check that a model has an embedding for every one of some tokens.

    Raises:
        ModelError: it has none for one of them.
    """
    largest = max(ids, default=-1)
    if largest < rows:
        return
    if largest >= len(tokenizer) and tokenizer.convert_ids_to_tokens(largest) is None:
        raise ModelError(
            f"model {name!r} has embeddings for {rows} tokens, but its config.json names token {largest} "
            "(bos_token_id); set bos_token_id to an existing token, or set the tokenizer's bos_token"
        )
    raise ModelError(
        f"model {name!r} has no embedding for token {largest} ({tokenizer.decode([largest])!r}): its "
        f"tokenizer has {len(tokenizer)} tokens, the model {rows}; call resize_token_embeddings, or use the "
        "model's own tokenizer"
    )


def _without_word(ids: list[int], offsets: list[tuple[int, int]]) -> tuple[list[int], list[tuple[int, int]]]:
    n = len(WORD)
    first = next((j for j, (_, end) in enumerate(offsets) if end > n), len(ids))
    return ids[first:], [(max(start - n, 0), end - n) for start, end in offsets[first:]]


def _tokens(ids: list[int], offsets: list[tuple[int, int]]) -> Tokens:
    n = len(ids)
    spans = np.asarray(offsets, dtype=np.int64).reshape(n, 2)
    cuts = np.zeros(n, dtype=np.int64)
    if n > 1:
        cuts[1:] = np.maximum.accumulate(spans[:-1, 1])
    starts = np.asarray(spans[:, 0] >= cuts, dtype=np.bool_)
    first = np.flatnonzero(starts)  # if several tokens have the same cut, only the first counts
    starts[first[1:][cuts[first[1:]] == cuts[first[:-1]]]] = False
    starts[:1] = True
    return Tokens(np.asarray(ids, dtype=np.int64), cuts, starts)
