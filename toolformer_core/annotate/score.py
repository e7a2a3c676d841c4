"""Score: by how much do a call and its response help the model predict what follows? (§2, filtering)

    L_i(z) = - sum_{j >= i} w_{j-i} log p(x_j | z, x_1:j-1)           z is put in front of the whole text (§4.1)

    w~_t = max(0, 1 - 0.2 t), normalised: 5/15, 4/15, 3/15, 2/15, 1/15, and zero from t = 5 on

    | loss          | z           |
    |---------------|-------------|
    | loss_plain    | nothing     |
    | loss_call     | e(c, eps)   |
    | loss_response | e(c, r)     |

In a chain c is the last call, and z begins with the calls in front of it, each with its response. A fourth loss is then
the least one of the chains with which z begins, e(c_1, r_1) and so on, which are part of L- as well (`loss_shorter`).
The weights are normalised once, over the full window: near the end of a text a loss is a part of the full one.

L- = min(L(eps), L(e(c, eps))) is at most L(eps). Where L(eps) - L+ is below the config's floor, no tau_f from the floor
on keeps the call, so L(e(c, eps)) is not computed, unless one of the call's decoys could pass the floor. The gain of a
decoy r' is L- - L(e(c, r')), with the same L-; where L(e(c, eps)) is not computed, the bound of it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolformer_core.annotate.boundaries import number_at, numbers_in
from toolformer_core.annotate.decoys import DecoyPool
from toolformer_core.config import PAPER_DECAY, TOOL_NAMES, SampleConfig, ScoreConfig
from toolformer_core.lm.base import LanguageModel, ScoreRequest
from toolformer_core.records import AnsweredCall, Call, DrawnCall, ScoredCall
from toolformer_core.syntax import linearize, written_calls

_DOCUMENTS_PER_CALL = 64  # bounds what is passed to the model at once; it makes its own batches by tokens


def unscored(text: str, call: DrawnCall, response: str, config: SampleConfig) -> str:
    """Return why an executed call needs no score, "" if it needs one; only with `numbers="new"` there are reasons.

    | reason                 | because                                                                            |
    |------------------------|------------------------------------------------------------------------------------|
    | answers_another_number | its response is not the number that it stands before                               |
    | repeats_a_number       | the text has that number before the call already                                   |
    | holds_its_answer       | its input has that number already: `60 / 1`                                        |
    | reads_ahead            | its input has a number that stands only after the call, so who writes the text    |
    |                        | from left to right cannot know it                                                  |
    """
    if config.numbers != "new":
        return ""
    value = number_at(response)
    if value is None or value != number_at(text, call.position):
        return "answers_another_number"
    operands, before = numbers_in(call.input), numbers_in(text[: call.position])
    if abs(value) in before:
        return "repeats_a_number"
    if abs(value) in operands:
        return "holds_its_answer"
    ahead = operands - before
    return "reads_ahead" if ahead & numbers_in(text[call.position :]) else ""


def worth_scoring(
    texts: Mapping[str, str], items: Iterable[tuple[DrawnCall, str]], config: SampleConfig
) -> tuple[list[tuple[DrawnCall, str]], Counter[str]]:
    """Return the executed calls that need a score, and how many need none by reason, see `unscored`."""
    judged = [(item, unscored(texts[item[0].doc_id], *item, config)) for item in items]
    return [item for item, reason in judged if not reason], Counter(reason for _, reason in judged if reason)


def score(
    lm: LanguageModel,
    tool_name: str,
    texts: Mapping[str, str],
    items: Iterable[tuple[DrawnCall, str]],
    config: ScoreConfig,
    decoys: DecoyPool | None = None,
    names: Mapping[str, str] = TOOL_NAMES,
) -> list[ScoredCall]:
    """Score executed calls of one tool, each with its response; losses in nats, in order of first appearance.

    Calls with the same document, position, input and response are scored once, and their counts are added; so are the
    same chains. `texts` has x by document id, `names` the name in calls of each tool key that stands in front of a call
    in a chain. Without `decoys` no call gets any.
    """
    calls: dict[_Key, DrawnCall] = {}
    for drawn, response in items:
        key = (drawn.doc_id, drawn.position, drawn.input, response, drawn.preceding_calls)
        earlier = calls.get(key)
        calls[key] = drawn if earlier is None else replace(earlier, count=earlier.count + drawn.count)
    by_document: dict[str, list[_Key]] = {}
    for key in calls:
        by_document.setdefault(key[0], []).append(key)

    w = weights(config.decay)
    scored: dict[_Key, ScoredCall] = {}
    of_documents = iter(by_document.values())
    while keys := list(chain.from_iterable(islice(of_documents, _DOCUMENTS_PER_CALL))):
        chunk = [_requests(tool_name, names, texts[key[0]], len(w), calls[key], key[3], decoys) for key in keys]
        scored.update(zip(keys, _score_chunk(lm, texts, chunk, w, config.skips_below), strict=True))
    return [scored[key] for key in calls]


_Key = tuple[str, int, str, str, tuple[AnsweredCall, ...]]  # document, position, input, response, the calls in front


class _CallRequests(NamedTuple):
    drawn: DrawnCall
    response: str
    plain: ScoreRequest
    shorter: tuple[ScoreRequest, ...]  # with the chains with which z begins
    bare: ScoreRequest  # with e(c, eps)
    full: ScoreRequest  # with e(c, r)
    decoys: tuple[ScoreRequest, ...] | None  # with e(c, r') each

    def requests(self, *, bare: bool) -> tuple[ScoreRequest, ...]:
        return (self.plain, *self.shorter, *((self.bare,) if bare else ()), self.full, *(self.decoys or ()))


def _requests(
    tool_name: str,
    names: Mapping[str, str],
    text: str,
    tokens: int,
    drawn: DrawnCall,
    response: str,
    pool: DecoyPool | None,
) -> _CallRequests:
    links = [(one.tool, one.input, one.response) for one in drawn.preceding_calls]
    before = [written_calls(links[:n], names) for n in range(len(links) + 1)]  # "", e(c_1, r_1), ...

    def request(prefix: str) -> ScoreRequest:
        return ScoreRequest(prefix, text, drawn.position, tokens)

    def with_response(given: str) -> ScoreRequest:
        return request(before[-1] + linearize(Call(tool_name, drawn.input), given))

    decoys = None if pool is None else tuple(map(with_response, pool.decoys_of(drawn, response)))
    return _CallRequests(
        drawn,
        response,
        plain=request(""),
        shorter=tuple(map(request, before[1:])),
        bare=with_response(""),
        full=with_response(response),
        decoys=decoys,
    )


def _score_chunk(
    lm: LanguageModel, texts: Mapping[str, str], calls: list[_CallRequests], w: NDArray[np.float64], floor: float
) -> list[ScoredCall]:
    log_probs: dict[ScoreRequest, NDArray[np.float32]] = {}

    def compute(requests: Iterable[ScoreRequest]) -> None:
        distinct = list(dict.fromkeys(requests))
        if distinct:
            log_probs.update(zip(distinct, lm.log_probs(distinct), strict=True))

    def loss_of(request: ScoreRequest) -> float:
        return loss(log_probs[request], w)

    def values(request: ScoreRequest) -> tuple[float, ...]:
        return tuple(log_probs[request].tolist())

    def without_call(call: _CallRequests) -> float:
        """Return the least loss without the call itself."""
        return min(loss_of(one) for one in (call.plain, *call.shorter))

    def skipped(call: _CallRequests) -> bool:
        """Return whether L(e(c, eps)) is left out: neither response can reach the floor. NaN is no bound."""
        least = min(loss_of(one) for one in (call.full, *(call.decoys or ())))
        return without_call(call) - least < floor

    compute(one for call in calls for one in call.requests(bare=floor == -math.inf))
    if floor > -math.inf:
        compute(call.bare for call in calls if not skipped(call))

    out = []
    for call in calls:
        drawn = call.drawn
        before, after = _seen(drawn, texts[drawn.doc_id])
        without = skipped(call)  # even if another call's request has computed it
        smaller = without_call(call) if without else min(without_call(call), loss_of(call.bare))  # L-
        of_call = (drawn.doc_id, drawn.tool, drawn.position, drawn.input, call.response, drawn.log_p, drawn.count)
        scored = ScoredCall(
            *of_call,
            loss_plain=loss_of(call.plain),
            loss_call=None if without else loss_of(call.bare),
            loss_response=loss_of(call.full),
            seen_before=before,
            seen_after=after,
            window_end=drawn.window_end,
            log_p_plain=values(call.plain),
            log_p_call=None if without else values(call.bare),
            log_p_response=values(call.full),
            decoy_gains=None if call.decoys is None else tuple(smaller - loss_of(one) for one in call.decoys),
            preceding_calls=drawn.preceding_calls,
            loss_shorter=min(map(loss_of, call.shorter), default=None),
        )
        out.append(scored)
    return out


def _seen(drawn: DrawnCall, text: str) -> tuple[bool, bool]:
    """Return whether text or chain hold a call's input before, and after, its position, in any case; never for ""."""
    needle = drawn.input.casefold()
    if not needle:
        return False, False
    earlier = [text[: drawn.position], *(one.response for one in drawn.preceding_calls)]
    return any(needle in one.casefold() for one in earlier), needle in text[drawn.position :].casefold()


def weights(decay: float = PAPER_DECAY) -> NDArray[np.float64]:
    """Return the positive weights w_t for t = 0, 1, ..., which sum to 1; the paper's decay gives five (§4.1).  (T,)"""
    raw = 1 - decay * np.arange(int(np.ceil(1 / decay - 1e-9)), dtype=np.float64)  # zero at t = 1 / decay
    return np.asarray(raw / raw.sum(), dtype=np.float64)


def loss(log_probs: NDArray[np.float32], w: NDArray[np.float64]) -> float:
    """Return L over the existing tokens, computed in float64.  (t,), (T,) with t <= T -> nats."""
    return 0.0 - float(w[: len(log_probs)] @ log_probs.astype(np.float64))
