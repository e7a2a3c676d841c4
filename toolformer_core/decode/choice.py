"""What the model chooses next, for many sequences at once: the most likely token, or a draw, and the rank of " [".

A draw is the inverse distribution function at a number that depends on the sequence's seed and length alone, as in
`lm.drawing`: nothing else in the batch can change it. Rows say what they forbid and what they ask; see `row`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from toolformer_core.decode.row import Row
from toolformer_core.lm.drawing import uniform

__all__ = ["Choice", "choose"]

Choice = tuple[int, int, Callable[[], int]]  # what `Row.take` asks for


def choose(logits: torch.Tensor, rows: Sequence[Row]) -> list[Choice]:
    """Return each row's choice.

    Args:
        logits: (n, V), float32; changed in place.
        rows: n rows.
    """
    forbidden = [(i, row.forbidden) for i, row in enumerate(rows)]
    banned = [(i, token) for i, token in forbidden if token is not None]
    if banned:
        at = torch.tensor(banned, device=logits.device)
        logits[at[:, 0], at[:, 1]] = -torch.inf
    triggers = [row.trigger for row in rows]
    best = logits.argmax(dim=1)
    if any(t is not None for t in triggers):
        wanted = torch.tensor([t or 0 for t in triggers], device=logits.device)
        ranks = (logits > logits.gather(1, wanted[:, None])).sum(dim=1)
        own, rank = torch.stack([best, ranks]).tolist()
    else:
        own, rank = best.tolist(), [0] * len(rows)
    for i, row in enumerate(rows):
        if row.draws:
            own[i] = _draw(logits[i], row)
    return [(own[i], rank[i], partial(_other, logits[i], row)) for i, row in enumerate(rows)]


def _other(logits: torch.Tensor, row: Row) -> int:
    """What a row would choose if its trigger were impossible."""
    logits = logits.clone()
    if row.trigger is not None:
        logits[row.trigger] = -torch.inf
    return _draw(logits, row) if row.draws else int(logits.argmax())


def _draw(logits: torch.Tensor, row: Row) -> int:
    probabilities = torch.softmax(logits.double() / row.settings.temperature, dim=0)  # (V,)
    order = None
    if row.settings.top_p < 1:
        probabilities, order = probabilities.sort(descending=True, stable=True)
        before = probabilities.cumsum(0) - probabilities
        probabilities = probabilities.masked_fill(before >= row.settings.top_p, 0)
    edges = probabilities.cumsum(0)
    u = float(uniform(np.asarray([row.settings.seed], dtype=np.uint64), len(row.ids))[0]) * float(edges[-1])
    at = int(torch.searchsorted(edges, torch.tensor(u, dtype=edges.dtype, device=edges.device), right=True))
    at = min(at, len(edges) - 1)
    return at if order is None else int(order[at])
