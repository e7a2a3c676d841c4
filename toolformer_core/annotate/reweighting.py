"""Scored calls under other weights of the next tokens, from the log-probabilities that are stored with them.

    L(z) = - sum_t w_t log p(x_t | z)

No model is run. The losses that were not computed stay unknown, so that a call without L(e(c, eps)) is not kept; what
these might be is known to the warehouse's queries. A chain's shorter chains are scored calls of the same document, so
their losses under other weights are found among these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from toolformer_core.annotate.losses import loss
from toolformer_core.records import AnsweredCall, ScoredCall

_Place = tuple[str, int, tuple[AnsweredCall, ...]]  # document, position, chain


def reweighted(calls: Iterable[ScoredCall], weights: Sequence[float]) -> list[ScoredCall]:
    """Return calls with the losses that other weights of the next tokens give.

    Args:
        calls: of whole documents, with the chains that each chain begins with.
        weights: w_t of the tokens from a position on, no more than have a log-probability; those after weigh nothing.

    Raises:
        ValueError: a call has no log-probabilities, or a chain is there without one that it begins with.
    """
    w = np.asarray(weights, np.float64)
    judged = list(calls)
    of_chain: dict[_Place, float] = {}
    for call in judged:
        if call.log_p_plain is None or call.log_p_response is None:
            raise ValueError(f"a call of {call.tool} in document {call.doc_id} has no log-probabilities of its tokens")
        of_chain[call.doc_id, call.position, call.chain] = _loss(call.log_p_response, w)
    return [_reweighted(call, w, of_chain) for call in judged]


def _reweighted(call: ScoredCall, w: NDArray[np.float64], of_chain: dict[_Place, float]) -> ScoredCall:
    places = [(call.doc_id, call.position, call.preceding_calls[:links]) for links in range(1, call.links)]
    if missing := [place for place in places if place not in of_chain]:
        raise ValueError(f"a chain of document {call.doc_id} begins with one that was not scored: {missing[0]}")
    return replace(
        call,
        loss_plain=_loss(call.log_p_plain or (), w),
        loss_call=None if call.loss_call is None else _loss(call.log_p_call or (), w),
        loss_response=of_chain[call.doc_id, call.position, call.chain],
        loss_shorter=min((of_chain[place] for place in places), default=None),
    )


def _loss(log_p: Sequence[float], w: NDArray[np.float64]) -> float:
    return loss(np.asarray(log_p[: len(w)], np.float32), w)
