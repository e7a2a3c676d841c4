"""What a model reads: documents in windows that fit its context, and sequences for scores; nothing runs here.

    scan     windows of W tokens; of those, W/8 at either end are seen but not scanned; in each the text stands twice:
             [bos] head | x tail | x, or behind an insertion [bos] head | x tail | x_1:i-1 e(c_1, r_1) ...
    score    the first text token kept is a multiple of W/2 that depends on the position alone, so that the three losses
             of a call see the same text, with W/2 to W tokens of it on the left

Both rules are exact for a text that fits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolformer_core.errors import ContextError
from toolformer_core.lm.base import DrawRequest, Insertion, ScoreRequest
from toolformer_core.lm.prompt_tokenizer import CALL_RESERVE, PromptTokenizer
from toolformer_core.lm.tokens import Tokens, tokenize
from toolformer_core.records import Prompt

_SMALLEST_WINDOW = 16  # a context that leaves fewer tokens than this for a document is refused


@dataclass(frozen=True, slots=True)
class Window:
    text: int  # index of the document
    ids: NDArray[np.int64]  # (t,) x tail x
    before: NDArray[np.int64]  # (n,) index in `ids` of the token in front of each scanned position
    positions: NDArray[np.int64]  # (n,) character offsets in the document


def window_bounds(n: int, width: int) -> list[tuple[int, int, int, int]]:
    """Return windows (start, end, first, last) over n tokens: [start, end) are seen, [first, last) scanned."""
    margin = width // 8
    out: list[tuple[int, int, int, int]] = []
    start = end = 0
    while not out or end < n:
        end = min(start + width, n)
        out.append((start, end, start + margin if start else 0, n if end == n else end - margin))
        start += width - 2 * margin
    return out


def score_start(token: int, tokens: int, width: int) -> int:
    """Return the first text token to keep so that `tokens` tokens from `token` on are scored within `width` tokens."""
    excess = token + tokens - width
    half = max(1, width // 2)
    return 0 if excess <= 0 else -(-excess // half) * half


def windows_of(model: PromptTokenizer, prompt: Prompt, texts: Sequence[str | Insertion]) -> list[list[Window]]:
    """Return each text's windows, one if it fits; of an insertion one, or none. A ContextError if there is no room."""
    head_length = len(model.head_ids(prompt))
    tail = model.tail_ids(prompt)
    width = (model.context_length - head_length - len(tail) - len(model.trigger) - CALL_RESERVE) // 2
    if width < _SMALLEST_WINDOW:
        raise ContextError(
            f"model {model.name!r} has a context of {model.context_description}, of which the {prompt.tool} "
            f"prompt takes {head_length}; use a shorter prompt or a model with a longer context"
        )
    read = [text.text if isinstance(text, Insertion) else text for text in texts]
    written = [text.written if isinstance(text, Insertion) else text for text in texts]
    after_space = prompt.head.endswith(" ")
    second = _copies(model.tokenizer, [*read, *written] if after_space else written, " ")
    first = second if after_space else _copies(model.tokenizer, read, "")
    windows: list[list[Window]] = []
    for i, text in enumerate(texts):
        copies = (first[read[i]], second[written[i]], tail)
        if isinstance(text, Insertion):
            windows.append(_insertion_window(i, text.position, *copies, 2 * width))
        else:
            windows.append([_window(i, *copies, w) for w in window_bounds(len(copies[1].tokens.ids), width)])
    return windows


class _Copy(NamedTuple):
    tokens: Tokens
    lead: int  # characters of its tokens that stand in front of the document: 1 for a space, else 0


def _copies(tokenizer: Any, texts: Iterable[str], space: str) -> dict[str, _Copy]:
    distinct = list(dict.fromkeys(texts))
    tokenized = tokenize(tokenizer, [space + text for text in distinct], follow=bool(space))
    return {text: _Copy(tokens, len(space)) for text, tokens in zip(distinct, tokenized, strict=True)}


def _window(
    text: int, first_copy: _Copy, second_copy: _Copy, tail: list[int], window: tuple[int, int, int, int]
) -> Window:
    start, end, first, last = window
    tokens, lead = second_copy
    if first_copy is second_copy:
        copy = tokens.ids[start:end]
    else:  # the same characters, which may lie in other tokens
        other, shift = first_copy.tokens, first_copy.lead - lead
        a = other.token_at(int(tokens.cuts[start]) + shift) if start else 0
        copy = other.ids[a : other.token_at(int(tokens.cuts[end]) + shift)] if end < len(tokens.ids) else other.ids[a:]
    scanned = np.flatnonzero(tokens.starts_character[first:last]) + first
    positions = np.maximum(tokens.cuts[scanned] - lead, 0)  # a leading space is not part of the document
    keep = np.concatenate([[True], positions[1:] > positions[:-1]]) if len(positions) else np.zeros(0, dtype=np.bool_)
    ids = np.concatenate([copy, np.asarray(tail, dtype=np.int64), tokens.ids[start:end]])
    return Window(text, ids, (scanned[keep] - start) + len(copy) + len(tail) - 1, positions[keep])


def _insertion_window(
    text: int, position: int, first_copy: _Copy, second_copy: _Copy, tail: list[int], room: int
) -> list[Window]:
    """Return the window whose only position is after the inserted calls; none if both copies exceed `room` tokens."""
    first, second = first_copy.tokens, second_copy.tokens
    seen, start = first.ids, 0  # of the first copy; token of the second copy where it begins
    calls = len(second.ids) - second.token_at(position + second_copy.lead)
    if len(seen) + len(second.ids) > room:
        width = (room - calls) // 2
        if width < _SMALLEST_WINDOW:
            return []
        at = min(first.token_at(position + first_copy.lead), len(seen) - 1)
        bounds = window_bounds(len(seen), width)
        a, b = next((a, b) for a, b, begin, end in bounds if begin <= at < end)
        start = second.token_at(int(first.cuts[a]) - first_copy.lead + second_copy.lead) if a else 0
        seen = seen[a:b]
    ids = np.concatenate([seen, np.asarray(tail, dtype=np.int64), second.ids[start:]])
    return [Window(text, ids, np.asarray([len(ids) - 1]), np.asarray([position]))]


def windows_at_end(model: PromptTokenizer, prompt: Prompt, texts: Sequence[str]) -> list[list[Window]]:
    """Return windows that hold a text once, after the prompt's head alone, with its end as the position; or none."""
    space = " " if prompt.head.endswith(" ") else ""
    room = model.context_length - len(model.head_ids(prompt)) - len(model.trigger) - CALL_RESERVE
    windows = []
    for i, tokens in enumerate(tokenize(model.tokenizer, [space + text for text in texts], follow=True)):
        end = Window(i, tokens.ids, np.asarray([len(tokens.ids) - 1]), np.asarray([len(texts[i])]))
        windows.append([end] if len(tokens.ids) <= room else [])
    return windows


def draw_places(windows: Sequence[Window], requests: Sequence[DrawRequest]) -> list[tuple[int, int]]:
    """Return, per request, the index of its window, and of the token in front of its position, else a ValueError."""
    found = {
        (window.text, position): (at, before)
        for at, window in enumerate(windows)
        for position, before in zip(window.positions.tolist(), window.before.tolist(), strict=True)
    }
    for request in requests:
        if (request.text, request.position) not in found:
            raise ValueError(f"text {request.text} has no position {request.position} in this scan")
    return [found[request.text, request.position] for request in requests]


class ScoreSequence(NamedTuple):
    """A sequence [bos] z x_1..x_j that a model reads, and the answers of all requests that share it."""

    ids: NDArray[np.int64]  # (t,)
    shift: int  # index in `ids` at which the text's first token would be
    answers: list[tuple[int, int, int]]  # index of the answer; its tokens [first, last) of the text


# gives indices of answers, and their log-probabilities
Score = Callable[[list[ScoreSequence]], Iterable[tuple[int, NDArray[np.float32]]]]


def score_requests(
    model: PromptTokenizer, requests: Sequence[ScoreRequest], score: Score, longest: int
) -> list[NDArray[np.float32]]:
    """Answer `LanguageModel.log_probs` by sequences of at most `longest` tokens; NaN for a prefix too long for them."""
    texts = list(dict.fromkeys(r.text for r in requests))
    tokens = dict(zip(texts, tokenize(model.tokenizer, texts), strict=True))
    leads = {z: [*model.lead, *(model.encode(z) if z else [])] for z in dict.fromkeys(r.prefix for r in requests)}
    groups: dict[tuple[str, str, int], list[tuple[int, int, int]]] = {}
    out: list[NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)] * len(requests)
    for i, r in enumerate(requests):
        first = tokens[r.text].token_at(r.position)
        start = score_start(first, r.tokens, model.context_length // 2)
        last = min(first + r.tokens, len(tokens[r.text].ids))
        if len(leads[r.prefix]) + last - start > longest:
            out[i] = np.full(last - first, np.nan, dtype=np.float32)
        elif first < last:
            groups.setdefault((r.prefix, r.text, start), []).append((i, first, last))
    sequences: list[ScoreSequence] = []
    for (prefix, text, start), answers in groups.items():
        end = max(last for _, _, last in answers)
        ids = [*leads[prefix], *tokens[text].ids[start:end].tolist()]
        sequences.append(ScoreSequence(np.asarray(ids, dtype=np.int64), len(leads[prefix]) - start, answers))
    for i, log_probs in score(sequences):
        out[i] = log_probs
    return out
