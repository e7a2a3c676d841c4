"""Plans scoring: which sequences of tokens a model must read for some requests, and which answers each of them holds.

    sequence of a score      [bos] z x_1..x_j                          ends with the last requested token

Requests with the same prefix, text and window share a sequence, e.g. all plain ones of a text. A backend gives a
function from sequences to log-probabilities; this module runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolformer_core.lm.base import ScoreRequest
from toolformer_core.lm.prompt_tokenizer import PromptTokenizer
from toolformer_core.lm.tokens import tokenize
from toolformer_core.lm.windowing import score_start

Answers = Iterable[tuple[int, NDArray[np.float32]]]  # index of an answer, and its log-probabilities


class ScoreSequence(NamedTuple):
    """A sequence that a model reads, and the answers that are among the log-probabilities of its tokens."""

    ids: NDArray[np.int64]  # (t,)
    shift: int  # index in `ids` at which the text's first token would be
    answers: list[tuple[int, int, int]]  # index of the answer; its tokens [first, last) of the text


def score_requests(
    model: PromptTokenizer,
    requests: Sequence[ScoreRequest],
    score: Callable[[list[ScoreSequence]], Answers],
    longest: int,
) -> list[NDArray[np.float32]]:
    """Answer `LanguageModel.log_probs`. A prefix too long for the context gives NaN: its call cannot be scored.

    Args:
        score: returns the answers of some sequences, in any order.
        longest: tokens that a sequence may have.
    """
    texts = list(dict.fromkeys(r.text for r in requests))
    tokens = dict(zip(texts, tokenize(model.tokenizer, texts), strict=True))
    prefixes = {z: model.encode(z) if z else [] for z in dict.fromkeys(r.prefix for r in requests)}
    width = model.context_length // 2
    groups: dict[tuple[str, str, int], list[tuple[int, int, int]]] = {}
    lead = model.lead
    out: list[NDArray[np.float32]] = [np.zeros(0, dtype=np.float32)] * len(requests)
    for i, r in enumerate(requests):
        first = tokens[r.text].token_at(r.position)
        start = score_start(first, r.tokens, width)
        last = min(first + r.tokens, len(tokens[r.text].ids))
        if len(lead) + len(prefixes[r.prefix]) + last - start > longest:
            out[i] = np.full(last - first, np.nan, dtype=np.float32)
        elif first < last:
            groups.setdefault((r.prefix, r.text, start), []).append((i, first, last))
    sequences: list[ScoreSequence] = []
    for (prefix, text, start), answers in groups.items():
        end = max(last for _, _, last in answers)
        ids = [*lead, *prefixes[prefix], *tokens[text].ids[start:end].tolist()]
        shift = len(lead) + len(prefixes[prefix]) - start
        sequences.append(ScoreSequence(np.asarray(ids, dtype=np.int64), shift, answers))
    for i, log_probs in score(sequences):
        out[i] = log_probs
    return out
