"""Score: by how much do a call and its response help the model predict what follows? (§2, filtering)

    L_i(z) = - sum_{j >= i} w_{j-i} log p(x_j | z, x_1:j-1)           z is put in front of the whole text

    | loss          | z           |
    |---------------|-------------|
    | loss_plain    | nothing     |
    | loss_call     | e(c, eps)   |
    | loss_response | e(c, r)     |

The weights are those of `losses`. The losses and the log-probabilities they are made of are kept for every call;
`assemble` decides from them which calls survive.

L- = min(L(eps), L(e(c, eps))) is at most L(eps). Where L(eps) - L+ is below the config's floor, no tau_f from the floor
on keeps the call, whatever its L(e(c, eps)): it is not computed. This stage knows no other threshold, no tools and no
tokens: it asks the model for log-probabilities at character offsets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from toolformer_core.annotate.losses import loss as weighted_loss
from toolformer_core.annotate.losses import weights
from toolformer_core.config import ScoreConfig
from toolformer_core.lm.base import LanguageModel, ScoreRequest
from toolformer_core.records import Call, DrawnCall, ScoredCall
from toolformer_core.syntax import linearize

__all__ = ["score"]

_DOCUMENTS_PER_CALL = 64  # bounds what is passed to the model at once; it makes its own batches by tokens


def score(
    lm: LanguageModel,
    tool_name: str,
    texts: Mapping[str, str],
    items: Iterable[tuple[DrawnCall, str]],
    config: ScoreConfig,
) -> list[ScoredCall]:
    """Score executed calls of one tool.

    Args:
        lm: the model that scores.
        tool_name: the tool's name in calls, e.g. `Calculator`.
        texts: x by document id.
        items: each call with its response. Calls with the same document, position, input and response are scored
            once, and their counts are added.
        config: the decay of the weights, and the floor.

    Returns:
        One `ScoredCall` per distinct call, in order of first appearance; losses in nats.

    Raises:
        KeyError: a call's document is not among the texts.
    """
    by_document: dict[str, dict[tuple[int, str, str], DrawnCall]] = {}
    order: dict[tuple[str, int, str, str], None] = {}
    for drawn, response in items:
        calls = by_document.setdefault(drawn.doc_id, {})
        key = (drawn.position, drawn.input, response)
        earlier = calls.get(key)
        calls[key] = drawn if earlier is None else replace(earlier, count=earlier.count + drawn.count)
        order.setdefault((drawn.doc_id, *key))

    w = weights(config.decay)
    scored: dict[tuple[str, int, str, str], ScoredCall] = {}
    doc_ids = list(by_document)
    for at in range(0, len(doc_ids), _DOCUMENTS_PER_CALL):
        chunk = doc_ids[at : at + _DOCUMENTS_PER_CALL]
        distinct = [(d, call, key[2]) for d in chunk for key, call in by_document[d].items()]
        scored.update(_score_chunk(lm, tool_name, texts, distinct, w, config.skips_below))
    return [scored[key] for key in order]


def _score_chunk(
    lm: LanguageModel,
    tool_name: str,
    texts: Mapping[str, str],
    calls: list[tuple[str, DrawnCall, str]],
    w: NDArray[np.float64],
    floor: float,
) -> dict[tuple[str, int, str, str], ScoredCall]:
    def request(drawn: DrawnCall, prefix: str) -> ScoreRequest:
        return ScoreRequest(prefix, texts[drawn.doc_id], drawn.position, len(w))

    log_probs: dict[ScoreRequest, NDArray[np.float32]] = {}

    def compute(requests: Iterable[ScoreRequest]) -> None:
        distinct = list(dict.fromkeys(requests))
        if distinct:
            log_probs.update(zip(distinct, lm.log_probs(distinct), strict=True))

    def loss(asked: ScoreRequest) -> float:
        return weighted_loss(log_probs[asked], w)

    def values(asked: ScoreRequest) -> tuple[float, ...]:
        return tuple(log_probs[asked].tolist())

    plain = [request(drawn, "") for _, drawn, _ in calls]
    bare = [request(drawn, linearize(Call(tool_name, drawn.input), "")) for _, drawn, _ in calls]
    full = [request(drawn, linearize(Call(tool_name, drawn.input), response)) for _, drawn, response in calls]
    if floor == -math.inf:
        compute(one for three in zip(plain, bare, full, strict=True) for one in three)
    else:
        compute(one for two in zip(plain, full, strict=True) for one in two)
        bounds = [loss(p) - loss(f) for p, f in zip(plain, full, strict=True)]
        compute(one for one, bound in zip(bare, bounds, strict=True) if not bound < floor)  # NaN is no bound

    out = {}
    for (doc_id, drawn, response), p, b, f in zip(calls, plain, bare, full, strict=True):
        before, after = _seen(drawn.input, texts[doc_id], drawn.position)
        skipped = loss(p) - loss(f) < floor  # even if another call's request has computed it
        out[doc_id, drawn.position, drawn.input, response] = ScoredCall(
            doc_id=doc_id,
            tool=drawn.tool,
            position=drawn.position,
            input=drawn.input,
            response=response,
            log_p=drawn.log_p,
            count=drawn.count,
            loss_plain=loss(p),
            loss_call=None if skipped else loss(b),
            loss_response=loss(f),
            seen_before=before,
            seen_after=after,
            window_end=drawn.window_end,
            log_p_plain=values(p),
            log_p_call=None if skipped else values(b),
            log_p_response=values(f),
        )
    return out


def _seen(input_: str, text: str, position: int) -> tuple[bool, bool]:
    """Return whether the text holds an input before, and after, a position, ignoring case; never for ""."""
    needle = input_.casefold()
    if not needle:
        return False, False
    return needle in text[:position].casefold(), needle in text[position:].casefold()
