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
on keeps the call, whatever its L(e(c, eps)): it is not computed, unless one of the call's decoys could pass the floor.
The gain of a decoy r' is L- - L(e(c, r')), with the same L-; where L(e(c, eps)) is not computed, the bound of it.

This stage knows no other threshold, no tools and no tokens: it asks the model for log-probabilities at character
offsets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolformer_core.annotate.decoys import DecoyPool
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
    decoys: DecoyPool | None = None,
) -> list[ScoredCall]:
    """Score executed calls of one tool.

    Args:
        lm: the model that scores.
        tool_name: the tool's name in calls, e.g. `Calculator`.
        texts: x by document id.
        items: each call with its response. Calls with the same document, position, input and response are scored
            once, and their counts are added.
        config: the decay of the weights, and the floor.
        decoys: where the calls' decoys come from; None: no call gets any.

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
        chunk = [
            _requests(tool_name, texts[doc_id], len(w), call, response, decoys)
            for doc_id in doc_ids[at : at + _DOCUMENTS_PER_CALL]
            for (_, _, response), call in by_document[doc_id].items()
        ]
        scored.update(_score_chunk(lm, texts, chunk, w, config.skips_below))
    return [scored[key] for key in order]


class _CallRequests(NamedTuple):
    """A call, and what the model is asked about it."""

    drawn: DrawnCall
    response: str
    plain: ScoreRequest
    bare: ScoreRequest  # with e(c, eps)
    full: ScoreRequest  # with e(c, r)
    decoys: tuple[ScoreRequest, ...] | None  # with e(c, r') each


def _requests(
    tool_name: str, text: str, tokens: int, drawn: DrawnCall, response: str, pool: DecoyPool | None
) -> _CallRequests:
    def asked(prefix: str) -> ScoreRequest:
        return ScoreRequest(prefix, text, drawn.position, tokens)

    def with_response(given: str) -> ScoreRequest:
        return asked(linearize(Call(tool_name, drawn.input), given))

    decoys = pool.decoys_of(drawn, response) if pool is not None else None
    return _CallRequests(
        drawn,
        response,
        plain=asked(""),
        bare=with_response(""),
        full=with_response(response),
        decoys=tuple(map(with_response, decoys)) if decoys is not None else None,
    )


def _score_chunk(
    lm: LanguageModel,
    texts: Mapping[str, str],
    calls: list[_CallRequests],
    w: NDArray[np.float64],
    floor: float,
) -> dict[tuple[str, int, str, str], ScoredCall]:
    log_probs: dict[ScoreRequest, NDArray[np.float32]] = {}

    def compute(requests: Iterable[ScoreRequest]) -> None:
        distinct = list(dict.fromkeys(requests))
        if distinct:
            log_probs.update(zip(distinct, lm.log_probs(distinct), strict=True))

    def loss(asked: ScoreRequest) -> float:
        return weighted_loss(log_probs[asked], w)

    def values(asked: ScoreRequest) -> tuple[float, ...]:
        return tuple(log_probs[asked].tolist())

    def skipped(call: _CallRequests) -> bool:
        """Return whether L(e(c, eps)) is left out: neither response can reach the floor. NaN is no bound."""
        least = min(loss(one) for one in (call.full, *(call.decoys or ())))
        return loss(call.plain) - least < floor

    if floor == -math.inf:
        compute(one for call in calls for one in (call.plain, call.bare, call.full, *(call.decoys or ())))
    else:
        compute(one for call in calls for one in (call.plain, call.full, *(call.decoys or ())))
        compute(call.bare for call in calls if not skipped(call))

    out = {}
    for call in calls:
        drawn, response = call.drawn, call.response
        before, after = _seen(drawn.input, texts[drawn.doc_id], drawn.position)
        without = skipped(call)  # even if another call's request has computed it
        smaller = loss(call.plain) if without else min(loss(call.plain), loss(call.bare))  # L-
        out[drawn.doc_id, drawn.position, drawn.input, response] = ScoredCall(
            doc_id=drawn.doc_id,
            tool=drawn.tool,
            position=drawn.position,
            input=drawn.input,
            response=response,
            log_p=drawn.log_p,
            count=drawn.count,
            loss_plain=loss(call.plain),
            loss_call=None if without else loss(call.bare),
            loss_response=loss(call.full),
            seen_before=before,
            seen_after=after,
            window_end=drawn.window_end,
            log_p_plain=values(call.plain),
            log_p_call=None if without else values(call.bare),
            log_p_response=values(call.full),
            decoy_gains=None if call.decoys is None else tuple(smaller - loss(one) for one in call.decoys),
        )
    return out


def _seen(input_: str, text: str, position: int) -> tuple[bool, bool]:
    """Return whether the text holds an input before, and after, a position, ignoring case; never for ""."""
    needle = input_.casefold()
    if not needle:
        return False, False
    return needle in text[:position].casefold(), needle in text[position:].casefold()
