"""Which calls are kept, one call after another: the plain form of the rule that `call_filter` applies to columns."""

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from toolformer_core.annotate.call_filter import CallFilter
from toolformer_core.records import ScoredCall


def plain_reasons(
    calls: Sequence[ScoredCall], choice: CallFilter, ranks: Mapping[tuple[str, str, int], int] | None = None
) -> list[str]:
    log_ps = {(c.tool, c.doc_id, c.position): c.log_p for c in calls if not c.preceding_calls}
    reasons = [_reason_alone(call, choice, log_ps, ranks or {}) for call in calls]
    winners: dict[str, dict[int, ScoredCall]] = {call.doc_id: {} for call in calls}
    for call, reason in zip(calls, reasons, strict=True):
        own = winners[call.doc_id]
        if not reason and (call.position not in own or _precedence(call) < _precedence(own[call.position])):
            own[call.position] = call
    for i, call in enumerate(calls):
        if reasons[i]:
            continue
        winner = winners[call.doc_id][call.position]
        if winner is not call:
            reasons[i] = "shorter_chain" if call.links < winner.links else "lower_gain"
        elif call.tool not in choice.keep_repeats and any(
            _outdoes(other, call) for other in winners[call.doc_id].values()
        ):
            reasons[i] = "repeated_nearby"
    return reasons


def plain_survivors(
    calls: Sequence[ScoredCall], choice: CallFilter, ranks: Mapping[tuple[str, str, int], int] | None = None
) -> list[ScoredCall]:
    return [call for call, reason in zip(calls, plain_reasons(calls, choice, ranks), strict=True) if not reason]


def _reason_alone(call: ScoredCall, choice: CallFilter, log_ps: Mapping[Any, float], ranks: Mapping[Any, int]) -> str:
    opener = call.tools[0]
    k, tau_s = choice.top_k.get(opener), choice.tau_s.get(opener, 0.0)
    place = opener, call.doc_id, call.position
    if (k is not None and ranks[place] >= k) or (tau_s > 0 and not log_ps[place] > math.log(tau_s)):
        return "position_left_out"
    if call.loss_call is None or not call.gain >= choice.tau_f.get(call.tool, math.inf):
        return "below_threshold"
    return "seen_only_after" if call.tool == "mt" and call.seen_after and not call.seen_before else ""


def _precedence(call: ScoredCall) -> tuple[Any, ...]:
    links = [(one.tool, one.input, one.response) for one in call.preceding_calls]
    return -call.links, -call.gain, call.tool, call.input, call.response, links


def _outdoes(other: ScoredCall, call: ScoredCall) -> bool:
    """Return whether another call is the same one nearby and gains more; of those that gain alike, the first stays."""
    same = attrgetter("doc_id", "tool", "input", "preceding_calls")
    if same(other) != same(call):
        return False
    if call.window_end is None or other.window_end is None:
        return False
    near = other.position < call.window_end and call.position < other.window_end
    return near and (-other.gain, other.position) < (-call.gain, call.position)
