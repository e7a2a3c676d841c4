"""What is trained of a row: stretches of text, and from them the label of every token.

A promise is compared with a trainer's tokens in bytes: the bytes of the tokens, one after the other, are the text, so
no second tokenization is needed and none can differ.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from toolformer_core.export.tokens import NOT_TRAINED


class BrokenPromiseError(Exception):
    """A loader gave something else than was promised; the message says where."""


@dataclass(frozen=True, slots=True)
class Stretch:
    text: str
    trained: bool


@dataclass(frozen=True, slots=True)
class Promise:
    """What a trainer is to make of one row."""

    stretches: tuple[Stretch, ...]
    whole: bool = True  # the stretches are all there is; else other text, not trained, may stand between them
    shared: bool = True  # whether a token is trained that shares bytes with a trained stretch and with another one


def tokens_promise(row: Mapping[str, Any], start: str, end: str) -> Promise:
    """Return the promise of `tokens`, of a row of `jsonl`: all but responses, between the ends of a sequence.

    The text `start` is masked, as nothing predicts it; the text `end` is trained.
    """
    return Promise((Stretch(start, False), *_pieces(row), Stretch(end, True)), shared=False)


def segments_promise(row: Mapping[str, Any]) -> Promise:
    """Return the promise of `segments`: all but responses, and nothing around the text."""
    return Promise(tuple(_pieces(row)))


def _pieces(row: Mapping[str, Any]) -> Iterable[Stretch]:
    """Yield text and responses in turn: a response reaches up to the `]` that ends its call."""
    text, at = row["text"], 0
    for call in row["calls"]:
        end = call["end"] - len("]")
        begin = end - len(call["response"])
        yield Stretch(text[at:begin], True)
        if begin < end:
            yield Stretch(text[begin:end], False)
        at = end
    yield Stretch(text[at:], True)


def byte_pieces(tokenizer: Any) -> Callable[[Sequence[int]], list[bytes]]:
    """Return a function that gives the bytes of tokens, for a byte-level tokenizer.

    Such a tokenizer writes each byte as one character: those that can be seen in Latin-1 as themselves, the others as
    the characters from 256 on.
    """
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in seen]
    byte_of = {chr(byte): byte for byte in seen} | {chr(256 + n): byte for n, byte in enumerate(hidden)}
    names = {i: name for name, i in tokenizer.get_vocab().items()}
    added = {i: name.encode() for name, i in tokenizer.get_added_vocab().items()}

    def pieces(ids: Sequence[int]) -> list[bytes]:
        return [added[i] if i in added else bytes(byte_of[letter] for letter in names[i]) for i in ids]

    return pieces


def labels_of(ids: Sequence[int], pieces: Sequence[bytes], promise: Promise) -> list[int]:
    """Return the label of each token, its id or -100, or raise a BrokenPromiseError if they are not of that text."""
    text = b"".join(pieces)
    trained = bytearray(len(text))
    at = 0
    for stretch in promise.stretches:
        wanted = stretch.text.encode()
        begin = at if promise.whole else text.find(wanted, at)
        if begin < 0 or text[begin : begin + len(wanted)] != wanted:
            raise BrokenPromiseError(f"{_start(wanted)} should stand where there is {_start(text[at:])}")
        at = begin + len(wanted)
        if stretch.trained:
            trained[begin:at] = b"\1" * len(wanted)
    if promise.whole and at != len(text):
        raise BrokenPromiseError(f"nothing should follow where there is {_start(text[at:])}")
    decide = any if promise.shared else all
    bounds = pairwise(accumulate((len(piece) for piece in pieces), initial=0))
    return [
        token if decide(trained[begin:end]) else NOT_TRAINED for token, (begin, end) in zip(ids, bounds, strict=True)
    ]


def _start(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace"))
