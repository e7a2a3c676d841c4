"""Tokenises texts and keeps the character offset in front of every token; a tokenizer is always a fast one.

The *cut* in front of token j is the end of token j-1; it is valid only where a character starts. Every text is
tokenised in the pieces in which decoding writes it (`syntax.call_pieces`): a model that is trained on a token that
merges " [" with a tool's name would write the whole call with it, response included.
"""

import copy
import json
import logging
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from toolformer_core.errors import ModelError, TokenizerError
from toolformer_core.records import Call
from toolformer_core.syntax import OPEN, call_pieces, find_calls, linearize

_LOG = logging.getLogger(__name__)
# Tokenised before a text that follows another one, the first that does not merge with it: "a" is one character, and a
# separate token when a space follows.
_BEFORE = ("a", OPEN, "1", "\n")

_Encoded = tuple[list[int], list[tuple[int, int]]]  # ids, and the characters [start, end) of each


@dataclass(frozen=True, slots=True)
class Tokens:
    ids: NDArray[np.int64]  # (n,)
    cuts: NDArray[np.int64]  # (n,) character offset in front of each token; ascending, cuts[0] == 0
    starts_character: NDArray[np.bool_]  # (n,) False inside a character, and if an earlier token has the same cut

    def token_at(self, position: int) -> int:
        """Return the first token that starts at or after a character offset; n if there is none."""
        usable = np.flatnonzero(self.starts_character & (self.cuts >= position))
        return int(usable[0]) if len(usable) else len(self.ids)

    def ends(self, length: int) -> NDArray[np.int64]:
        """Return the character offset after each token, (n,), of a text of `length` characters."""
        return np.append(self.cuts[1:], length)[: len(self.ids)]

    def touching(self, spans: Iterable[tuple[int, int]], length: int) -> NDArray[np.bool_]:
        """Return which tokens of a text of `length` characters share one with a span [start, end): (n,)."""
        touched = np.zeros(len(self.ids), dtype=np.bool_)
        starting = np.maximum.accumulate(np.where(self.starts_character, np.arange(len(touched)), 0))
        starts, ends = self.cuts[starting], self.ends(length)
        for start, end in spans:
            if start < end:
                touched |= (starts < end) & (ends > start)
        return touched


def tokenize(tokenizer: Any, texts: list[str], *, follow: bool = False) -> list[Tokens]:
    """Tokenise texts without special tokens; with `follow` as after a word, which is then removed."""
    return [_tokens(*pair) for pair in _encode(tokenizer, texts, _BEFORE if follow else ())]


def encode(tokenizer: Any, text: str) -> list[int]:
    return _encode(tokenizer, [text])[0][0]


def encode_following(tokenizer: Any, text: str) -> list[int]:
    return _encode(tokenizer, [text], _BEFORE)[0][0]


def encode_opened(tokenizer: Any, text: str) -> list[int]:
    """Return the token ids of a text after " [", e.g. of "QA(", or after something else if these merge."""
    return _encode(tokenizer, [text], (OPEN, *_BEFORE))[0][0]


def _encode(tokenizer: Any, texts: Sequence[str], before: Sequence[str] = ()) -> list[_Encoded]:
    """Tokenise texts in the pieces of `call_pieces`, after the first of `before` that does (see `_encode_after`)."""
    pieces = [call_pieces(text) for text in texts]
    firsts = dict.fromkeys(first for first, *_ in pieces)
    later = dict.fromkeys(piece for _, *rest in pieces for piece in rest)
    spaced, others = ([piece for piece in later if piece.startswith(" ") is space] for space in (True, False))
    whole = _encode_after(tokenizer, firsts, before)
    after = _encode_after(tokenizer, spaced, _BEFORE) | _encode_after(tokenizer, others, (OPEN, *_BEFORE))
    out = []
    for first, *rest in pieces:
        ids, offsets, at = list(whole[first][0]), list(whole[first][1]), len(first)
        for piece in rest:
            ids += after[piece][0]
            offsets += [(start + at, end + at) for start, end in after[piece][1]]
            at += len(piece)
        out.append((ids, offsets))
    return out


def _encode_after(tokenizer: Any, texts: Iterable[str], before: Sequence[str]) -> dict[str, _Encoded]:
    """Tokenise texts after the first of some others that lends them no token and no space; alone, if there is none."""
    left, out = list(texts), dict[str, _Encoded]()
    for head in (*before, ""):
        if not left:
            break
        n = len(head)
        inputs = [head + text for text in left]
        encoding = tokenizer(inputs, add_special_tokens=False, return_offsets_mapping=True, return_attention_mask=False)
        for text, ids, offsets in zip(left, encoding["input_ids"], encoding["offset_mapping"], strict=True):
            first = _border(offsets, n) if n else 0
            if first is not None and not (n and _adds_space(tokenizer, text, ids, first)):
                out[text] = ids[first:], [(max(start - n, 0), end - n) for start, end in offsets[first:]]
        left = [text for text in left if text not in out]
    return out


def _adds_space(tokenizer: Any, text: str, ids: list[int], first: int) -> bool:
    """Return whether a text's tokens, from the first on, begin with a space that the text has not."""
    return not text[:1].isspace() and bool(tokenizer.decode(ids)[len(tokenizer.decode(ids[:first])) :][:1].isspace())


def _border(offsets: Sequence[tuple[int, int]], n: int) -> int | None:
    """Return how many tokens stand in front of character n; None if a token stands on both sides."""
    first = next((j for j, (_, end) in enumerate(offsets) if end > n), len(offsets))
    return None if first < len(offsets) and offsets[first][0] < n else first


def ordinary_tokens(tokenizer: Any, rows: int, count: int) -> list[int]:
    """Return `count` tokens, none special, from all over a vocabulary of `rows`; repeated if there are too few."""
    special = {*tokenizer.added_tokens_decoder, *tokenizer.all_special_ids}
    ordinary = [i for i in range(min(len(tokenizer), rows)) if i not in special] or [0]
    return [ordinary[n * len(ordinary) // count] for n in range(count)]


def call_fault(tokenizer: Any, tool: str) -> str:
    """Return why decoding would not find a call of a tool, by its name in calls, in its tokens; "" if it would."""
    call = Call(tool, "1")
    written = linearize(call, "1")
    ids = encode(tokenizer, written)
    decoded = str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    found = next(find_calls(decoded), None)
    if found is not None and (found.call, found.response) == (call, "1"):
        return ""
    return f'the tokenizer cannot write a call: "{written.strip()}" is decoded as "{decoded.strip()}"'


def check_calls(tokenizer: Any, name: str, tools: Iterable[str]) -> None:
    """Raise a `TokenizerError` unless decoding would find calls of all these tools in a model's tokens."""
    for tool in tools:
        if fault := call_fault(tokenizer, tool):
            raise TokenizerError(f"model {name!r} cannot call tools: {fault}; use a model with another tokenizer")


def start_token(tokenizer: Any, config: Any) -> int | None:
    """Return the token that starts every sequence: bos, else eos; None if the model has neither, as far as is known."""
    configured = None if config is None else config.get_text_config().bos_token_id
    candidates = (tokenizer.bos_token_id, tokenizer.eos_token_id, configured)
    return next((int(token) for token in candidates if isinstance(token, int)), None)


def drop_unembedded_tokens(tokenizer: Any, rows: int, name: str, *needed: int | None) -> Any:
    """Return a tokenizer that reads added tokens without an embedding (the model has `rows` of them) as plain text.

    A ModelError if a token of the original vocabulary, or one that is needed, has none.
    """
    _check_embedded([token for token in needed if token is not None], tokenizer, rows, name)
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
    _check_embedded(out.get_vocab().values(), tokenizer, rows, name)
    named = ", ".join(map(repr, sorted(unembedded, key=unembedded.__getitem__)))
    why = "which were added to its tokenizer only; they are read as plain text"
    _LOG.warning("model %r has no embedding for %s, %s", name, textwrap.shorten(named, 200), why)
    return out


def _check_embedded(ids: Iterable[int], tokenizer: Any, rows: int, name: str) -> None:
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


def _tokens(ids: list[int], offsets: list[tuple[int, int]]) -> Tokens:
    spans = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    cuts = np.zeros(len(ids), dtype=np.int64)
    cuts[1:] = np.maximum.accumulate(spans[:-1, 1])
    starts = np.asarray(spans[:, 0] >= cuts, dtype=np.bool_)
    first = np.flatnonzero(starts)  # if several tokens have the same cut, only the first counts
    starts[first[1:][cuts[first[1:]] == cuts[first[:-1]]]] = False
    starts[:1] = True
    return Tokens(np.asarray(ids, dtype=np.int64), cuts, starts)
