"""L_i(z), the weighted loss of the tokens from a position on (§4.1): calls are judged by it.

    L_i(z) = - sum_{j >= i} w_{j-i} log p(x_j | z, x_1:j-1)           z is put in front of the whole text

    w~_t = max(0, 1 - 0.2 t), normalised: 5/15, 4/15, 3/15, 2/15, 1/15, and zero from t = 5 on

The weights are normalised once, over the full window. Near the end of a text, where fewer tokens exist, the sum runs
over those with unchanged weights, so a loss there is a part of the full one and never inflated. This module knows no
calls and no thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from toolformer_core.config import PAPER_DECAY
from toolformer_core.records import AnsweredCall, ScoredCall


def weights(decay: float = PAPER_DECAY) -> NDArray[np.float64]:
    """Return the positive weights w_t for t = 0, 1, ..., which sum to 1 (§4.1).  (T,)

    Args:
        decay: decrease of the raw weight per token; the paper's 0.2 gives five weights.
    """
    return window_weights(decay, int(np.ceil(1 / decay - 1e-9)))  # the raw weight is zero at t = 1 / decay


def window_weights(decay: float, window: int) -> NDArray[np.float64]:
    """Return the positive weights of the first tokens alone, which sum to 1.  (T,) with T <= window

    Args:
        decay: decrease of the raw weight per token; 0: all weigh the same.
        window: tokens that may have a weight.
    """
    raw = 1 - decay * np.arange(window, dtype=np.float64)
    raw = raw[raw > 1e-9]
    return np.asarray(raw / raw.sum(), dtype=np.float64)


def loss(log_probs: NDArray[np.float32], w: NDArray[np.float64]) -> float:
    """Return L over the existing tokens, computed in float64.  (t,), (T,) with t <= T -> nats."""
    return 0.0 - float(w[: len(log_probs)] @ log_probs.astype(np.float64))


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
