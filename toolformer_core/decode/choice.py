"""Chooses the next token of many sequences at once, with the rank and p of " [".

A sample is taken by inverse CDF at a number that depends only on the sequence's seed and length (`lm.hf.sampling`).
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from toolformer_core.decode.sequence import DecodeSequence
from toolformer_core.lm.base import uniform

Choice = tuple[int, int, Callable[[], int], float]  # the arguments of `DecodeSequence.advance`


def choose(logits: torch.Tensor, sequences: Sequence[DecodeSequence]) -> list[Choice]:
    """Return the choice for each of n sequences by their logits (n, V), float32, which are changed in place."""
    if banned := [(i, token) for i, s in enumerate(sequences) if (token := s.forbidden) is not None]:
        at = torch.tensor(banned, device=logits.device)
        logits[at[:, 0], at[:, 1]] = -torch.inf
    triggers = [sequence.trigger for sequence in sequences]
    best = logits.argmax(dim=1)
    if any(t is not None for t in triggers):
        trigger = torch.tensor([t or 0 for t in triggers], device=logits.device)
        ranks = (logits > logits.gather(1, trigger[:, None])).sum(dim=1)
        tokens, rank = torch.stack([best, ranks]).tolist()
    else:
        tokens, rank = best.tolist(), [0] * len(sequences)
    probabilities = _probabilities(logits, sequences)
    for i, sequence in enumerate(sequences):
        if sequence.draws:
            tokens[i] = _sample(logits[i], sequence)
    return [
        (tokens[i], rank[i], partial(_alternative, logits[i], sequence), probabilities.get(i, 1.0))
        for i, sequence in enumerate(sequences)
    ]


def _probabilities(logits: torch.Tensor, sequences: Sequence[DecodeSequence]) -> dict[int, float]:
    """Return the probability of the trigger of each sequence that needs it, by the sequence's index."""
    at = {i: trigger for i, s in enumerate(sequences) if s.needs_probability and (trigger := s.trigger) is not None}
    if not at:
        return {}
    rows, tokens = (torch.tensor(x, device=logits.device) for x in (list(at), list(at.values())))
    log_p = logits[rows, tokens] - logits[rows].logsumexp(dim=1)
    return dict(zip(at, log_p.exp().tolist(), strict=True))


def _alternative(logits: torch.Tensor, sequence: DecodeSequence) -> int:
    """Return the token that would be chosen if the sequence's trigger were impossible."""
    logits = logits.clone()
    if sequence.trigger is not None:
        logits[sequence.trigger] = -torch.inf
    return _sample(logits, sequence) if sequence.draws else int(logits.argmax())


def _sample(logits: torch.Tensor, sequence: DecodeSequence) -> int:
    settings = sequence.settings
    probabilities = torch.softmax(logits.double() / settings.temperature, dim=0)  # (V,)
    order = None
    if settings.top_p < 1:
        probabilities, order = probabilities.sort(descending=True, stable=True)
        before = probabilities.cumsum(0) - probabilities
        probabilities = probabilities.masked_fill(before >= settings.top_p, 0)
    edges = probabilities.cumsum(0)
    u = float(uniform(np.asarray([settings.seed], dtype=np.uint64), len(sequence.ids))[0]) * float(edges[-1])
    at = int(torch.searchsorted(edges, torch.tensor(u, dtype=edges.dtype, device=edges.device), right=True))
    at = min(at, len(edges) - 1)
    return at if order is None else int(order[at])
