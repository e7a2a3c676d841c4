"""What a scan reads, as tokens: the prompt's head, and a document twice behind it, in as many windows as it takes.

    sequence    [bos] head | x tail | x        the positions are those of the second x

The head is the same for every document. It runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolformer_core.errors import ContextError
from toolformer_core.lm.network import Network
from toolformer_core.lm.tokens import Tokens, encode_following, tokenize
from toolformer_core.lm.windows import scan_windows
from toolformer_core.records import Prompt

__all__ = ["Window", "windows_of"]

_CALL_RESERVE = 64  # tokens of the context kept free for a call
_SMALLEST_WINDOW = 16  # a context that leaves a document fewer tokens than this is of no use


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a document as it is fed behind the head."""

    text: int  # index of the document
    ids: NDArray[np.int64]  # (t,) x tail x
    before: NDArray[np.int64]  # (n,) index in `ids` of the token in front of each scanned position
    positions: NDArray[np.int64]  # (n,) character offsets in the document


def windows_of(network: Network, prompt: Prompt, texts: Sequence[str]) -> list[list[Window]]:
    """Return each text's windows (see `windows.scan_windows`), one if it fits.

    Raises:
        ContextError: prompt and call leave too little of the context for a document.
    """
    head_length = len(network.head_ids(prompt))
    tail = encode_following(network.tokenizer, prompt.tail)
    space = " " if prompt.head.endswith(" ") else ""
    width = (network.context_length - head_length - len(tail) - len(network.trigger) - _CALL_RESERVE) // 2
    if width < _SMALLEST_WINDOW:
        raise ContextError(
            f"model {network.name!r} has a context of {network.context_told}, of which the {prompt.tool} "
            f"prompt takes {head_length}; use a shorter prompt or a model with a longer context"
        )
    once = tokenize(network.tokenizer, [space + t for t in texts], follow=bool(space))  # x behind "Input:"
    twice = once if space else tokenize(network.tokenizer, [" " + t for t in texts], follow=True)  # behind "Output:"
    return [
        [_window(i, first, second, tail, w) for w in scan_windows(len(second.ids), width)]
        for i, (first, second) in enumerate(zip(once, twice, strict=True))
    ]


def _window(text: int, once: Tokens, twice: Tokens, tail: list[int], window: tuple[int, int, int, int]) -> Window:
    start, end, first, last = window
    from_, to = (int(twice.cuts[start]), int(twice.cuts[end]) if end < len(twice.ids) else None)
    if once is twice:
        copy = once.ids[start:end]
    else:  # the copy behind "Input:" is tokenised without the space: cut it at the same characters, one to the left
        a = once.token_at(max(0, from_ - 1))
        copy = once.ids[a:] if to is None else once.ids[a : once.token_at(to - 1)]
    scanned = np.flatnonzero(twice.starts_character[first:last]) + first
    positions = np.maximum(twice.cuts[scanned] - 1, 0)  # the leading space is ours, not the document's
    keep = np.concatenate([[True], positions[1:] > positions[:-1]]) if len(positions) else np.zeros(0, dtype=np.bool_)
    ids = np.concatenate([copy, np.asarray(tail, dtype=np.int64), twice.ids[start:end]])
    return Window(text, ids, (scanned[keep] - start) + len(copy) + len(tail) - 1, positions[keep])
