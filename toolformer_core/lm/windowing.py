"""Cuts documents into windows that fit the model's context, as numbers and as tokens; nothing runs here.

    scan     windows of W tokens; of those, W/8 at either end are seen but not scanned, so that every position has
             context on both sides, except at the ends of the text
    score    the first text token kept is a multiple of W/2 that depends on the position alone, so that the three losses
             of a call see the same text, with W/2 to W tokens of it on the left

Both rules are exact for a text that fits: one window, everything seen. What a scan feeds to the model is the prompt's
head, which all documents share, and behind it the document twice:

    [bos] head | x tail | x        the positions are those of the second x
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolformer_core.errors import ContextError
from toolformer_core.lm.prompt_tokenizer import CALL_RESERVE, PromptTokenizer
from toolformer_core.lm.tokens import Tokens, encode_following, tokenize
from toolformer_core.records import Prompt

__all__ = ["Window", "score_start", "window_bounds", "windows_at_end", "windows_of"]

_SMALLEST_WINDOW = 16  # a context that leaves fewer tokens than this for a document is refused


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a document as it is fed behind the head."""

    text: int  # index of the document
    ids: NDArray[np.int64]  # (t,) x tail x
    before: NDArray[np.int64]  # (n,) index in `ids` of the token in front of each scanned position
    positions: NDArray[np.int64]  # (n,) character offsets in the document


def window_bounds(n: int, width: int) -> list[tuple[int, int, int, int]]:
    """Return windows (start, end, first, last) over n tokens: tokens [start, end) are seen, [first, last) scanned.

    The scanned parts are disjoint and cover 0..n.
    """
    if n <= width:
        return [(0, n, 0, n)]
    margin = width // 8
    step = width - 2 * margin
    out = []
    start = 0
    while True:
        end = min(start + width, n)
        first = start + margin if start else 0
        last = n if end == n else end - margin
        out.append((start, end, first, last))
        if end == n:
            return out
        start += step


def score_start(token: int, tokens: int, width: int) -> int:
    """Return the first text token to keep so that `tokens` tokens from `token` on are scored within `width` tokens."""
    excess = token + tokens - width
    half = max(1, width // 2)
    return 0 if excess <= 0 else -(-excess // half) * half


def windows_of(model: PromptTokenizer, prompt: Prompt, texts: Sequence[str]) -> list[list[Window]]:
    """Return each text's windows: one if the text fits, else several (`window_bounds`).

    Raises:
        ContextError: prompt and call leave too little of the context for a document.
    """
    head_length = len(model.head_ids(prompt))
    tail = encode_following(model.tokenizer, prompt.tail)
    space = " " if prompt.head.endswith(" ") else ""
    width = (model.context_length - head_length - len(tail) - len(model.trigger) - CALL_RESERVE) // 2
    if width < _SMALLEST_WINDOW:
        raise ContextError(
            f"model {model.name!r} has a context of {model.context_description}, of which the {prompt.tool} "
            f"prompt takes {head_length}; use a shorter prompt or a model with a longer context"
        )
    # the first copy of x follows "Input:", the second one "Output:"
    first_copies = tokenize(model.tokenizer, [space + t for t in texts], follow=bool(space))
    second_copies = first_copies if space else tokenize(model.tokenizer, [" " + t for t in texts], follow=True)
    return [
        [_window(i, first, second, tail, w) for w in window_bounds(len(second.ids), width)]
        for i, (first, second) in enumerate(zip(first_copies, second_copies, strict=True))
    ]


def _window(
    text: int, first_copy: Tokens, second_copy: Tokens, tail: list[int], window: tuple[int, int, int, int]
) -> Window:
    start, end, first, last = window
    cut_from = int(second_copy.cuts[start])
    cut_to = int(second_copy.cuts[end]) if end < len(second_copy.ids) else None
    if first_copy is second_copy:
        copy = first_copy.ids[start:end]
    else:  # the first copy is tokenised without the leading space, so its cuts lie one character to the left
        a = first_copy.token_at(max(0, cut_from - 1))
        copy = first_copy.ids[a:] if cut_to is None else first_copy.ids[a : first_copy.token_at(cut_to - 1)]
    scanned = np.flatnonzero(second_copy.starts_character[first:last]) + first
    positions = np.maximum(second_copy.cuts[scanned] - 1, 0)  # the leading space is not part of the document
    keep = np.concatenate([[True], positions[1:] > positions[:-1]]) if len(positions) else np.zeros(0, dtype=np.bool_)
    ids = np.concatenate([copy, np.asarray(tail, dtype=np.int64), second_copy.ids[start:end]])
    return Window(text, ids, (scanned[keep] - start) + len(copy) + len(tail) - 1, positions[keep])


def windows_at_end(model: PromptTokenizer, prompt: Prompt, texts: Sequence[str]) -> list[Window | None]:
    """Return windows that hold a text once, behind the prompt's head, and whose only position is the text's end.

    A text that does not fit into the model's context has no window: None.

    Args:
        model: the model's tokenizer.
        prompt: its head; the tail is left out.
        texts: none of them empty.
    """
    space = " " if prompt.head.endswith(" ") else ""
    room = model.context_length - len(model.head_ids(prompt)) - len(model.trigger) - CALL_RESERVE
    windows: list[Window | None] = []
    for i, (text, tokens) in enumerate(
        zip(texts, tokenize(model.tokenizer, [space + t for t in texts], follow=True), strict=True)
    ):
        end = len(tokens.ids) - 1
        fits = len(tokens.ids) <= room
        windows.append(Window(i, tokens.ids, np.asarray([end]), np.asarray([len(text)])) if fits else None)
    return windows
