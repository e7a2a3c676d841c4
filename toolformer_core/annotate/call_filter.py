"""Which scored calls are kept: the one place of the rule, over columns of calls. (§2, filtering)

    | reason             | the call is dropped because                                                            |
    |--------------------|----------------------------------------------------------------------------------------|
    | position_left_out  | the filter has fewer positions than were sampled, and not this one                     |
    | of people's ratings  | people reject it, or do not accept it; the caller says which calls these are           |
    | below_threshold    | L- - L+ < tau_f of its tool                                                            |
    | seen_only_after    | MT only (App. A.1): the text holds its input after the position and not before, so the |
    |                    | model looked ahead                                                                     |
    | shorter_chain      | a longer chain of calls passes the rules above at the same position of the document    |
    | lower_gain         | another call that passes at the same position, of any tool, gains more                 |
    | repeated_nearby    | a call of the same tool and input, not dropped by the rules above, is within the five  |
    |                    | tokens by which the two are judged, and gains more: one response is enough             |
    | of a benchmark     | its position is at words that the document shares with a benchmark's item, or they are |
    |                    | among the tokens by which the call is judged                                           |
    | same_call          | enough other documents keep a call of the same tool, input and response; which of them |
    |                    | do is seeded                                                                           |

A chain is judged as its last call (see `records.ScoredCall`), by the values of that call's tool. The rules are applied
in this order, and every dropped call has exactly one reason. A call can be dropped because of a better neighbour that
is itself dropped as repeated. C*, `toolformer what-if`, the viewer and the snapshot ask this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolformer_core.config import keeps_repeats, tau_f_for
from toolformer_core.records import ScoredCall, digest_of

# The outcomes of `CallColumns.outcomes`, by number: kept, and the reasons above.
SAME_CALL = "same_call"
REASONS = (
    *("", "position_left_out", "rated_out", "below_threshold", "seen_only_after", "shorter_chain", "lower_gain"),
    *("repeated_nearby", "elsewhere"),  # the last: by what other texts hold, of benchmarks or equal calls
)
_BEATEN = ("shorter_chain", "lower_gain"), ("repeated_nearby",)  # by a call at the same position, by one nearby
_LOOKAHEAD_TOOL = "mt"

SharedWords = tuple[int, int, str]  # where a document shares words with a benchmark, in characters, and the reason

Mask = NDArray[np.bool_]  # a value for each call


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Which of the scored calls to keep."""

    tau_f: Mapping[str, float]  # nats by tool; calls of tools that are not named are dropped
    top_k: Mapping[str, int] = field(default_factory=dict)  # by tool: only a document's k first positions, as ranked
    tau_s: Mapping[str, float] = field(default_factory=dict)  # by tool: only positions with p(" [") above this
    keep_repeats: frozenset[str] = frozenset()  # the tools of which equal calls nearby are all kept
    shared_words: Mapping[str, Sequence[SharedWords]] = field(default_factory=dict)  # by document
    last_same: Mapping[str, str] = field(default_factory=dict)  # by equal calls: the last rank of a document that stays
    seed: int = 0  # of these ranks, see `same_call_rank`

    @classmethod
    def of_build(cls, tools: Iterable[str], config: Mapping[str, Any]) -> CallFilter:
        """Return the filter of a build of these tools, by what is given of its assembled shards' `AssembleConfig`."""
        keys = tuple(tools)
        others = ("top_k", "tau_s", "shared_words", "last_same", "seed")
        return cls(
            {tool: tau_f_for(tool, config.get("tau_f")) for tool in keys},
            keep_repeats=frozenset(tool for tool in keys if keeps_repeats(tool, config.get("keep_repeats"))),
            **{name: config[name] for name in others if name in config},
        )


class CallColumns:
    """Scored calls of whole documents: a row is a call, or a chain.

    Rows stand document by document, position by position, and at a position the longest chain first, of these the one
    that gains most, of these the first by tool, input, response and the calls in front.

    Args:
        kinds: the kinds of calls: the tools of a chain in order; a single call has one.
        kind: (n,) the number of each call's kind.
        doc: (n,) a number of its document.
        position: (n,) offset in the document.
        gain: (n,) nats; NaN: the call is never kept.
        rank: (n,) of the position in its document.
        log_p: (n,) log p(" [") at the position; NaN: unknown, and above no tau_s.
        alike: (n,) a number that calls of one kind and document share if their inputs, and the calls in front, are
            the same.
        window_end: (n,) offset after the tokens by which the call is judged; negative: nothing is near the call.
        ahead: (n,) whether the model looked ahead; None: nowhere.
        elsewhere: (n,) whether other texts cost the call its place, if it has one; None: nowhere, or not known.
    """

    def __init__(
        self,
        kinds: Sequence[tuple[str, ...]],
        kind: NDArray[np.integer[Any]],
        doc: NDArray[np.integer[Any]],
        position: NDArray[np.integer[Any]],
        gain: NDArray[np.float64],
        rank: NDArray[np.integer[Any]],
        log_p: NDArray[np.float64],
        *,
        alike: NDArray[np.integer[Any]],
        window_end: NDArray[np.integer[Any]],
        ahead: Mask | None = None,
        elsewhere: Mask | None = None,
    ) -> None:
        self.kinds, self.kind, self.doc, self.position, self.gain = kinds, kind, doc, position, gain
        self.rank, self._log_p, self._ahead, self._elsewhere = rank, log_p, ahead, elsewhere
        self._place = np.cumsum(_changes(doc) | _changes(position), dtype=np.int32) - 1
        self._worse, self._better = self._repeats(alike, window_end)

    def __len__(self) -> int:
        return len(self.gain)

    def kept(self, call_filter: CallFilter) -> Mask:
        return self._kept(call_filter, self.allowed(call_filter))[-1]

    def allowed(self, call_filter: CallFilter) -> Mask:
        allowed = self._passing(call_filter) & self._placed(call_filter)
        return allowed if self._ahead is None else allowed & ~self._ahead

    def outcomes(self, call_filter: CallFilter, rated_out: Mask) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return what becomes of each call, a number of `REASONS`, and the row of the call that won over it, or -1.

        Over a repeated call wins, of those nearby that gain more, the one that gains most, of these the first. Calls
        that are `rated_out` (n,) take no part by what people say of them.
        """
        won, apart, kept = self._kept(call_filter, self.allowed(call_filter) & ~rated_out)
        links = np.array([len(kind) for kind in self.kinds], np.intp)[self.kind]
        winner = np.full(len(self), -1, np.intp)  # by place, then by call
        winner[self._place[won]] = np.flatnonzero(won)
        winner = winner[self._place]
        better = np.full(len(self), -1, np.intp)
        pairs = np.flatnonzero(won[self._better])
        pairs = pairs[np.lexsort((-self.position[self._better[pairs]], self.gain[self._better[pairs]]))]
        better[self._worse[pairs]] = self._better[pairs]  # the last one stays
        ahead = np.zeros(len(self), np.bool_) if self._ahead is None else self._ahead
        reasons = [
            *(kept, ~self._placed(call_filter), rated_out, ~self._passing(call_filter), ahead),
            *(links < np.where(winner < 0, 0, links[winner]), ~won, ~apart),
        ]
        outcomes = np.select(reasons, range(len(reasons)), len(reasons))
        at_place, nearby = (np.isin(outcomes, list(map(REASONS.index, names))) for names in _BEATEN)
        return outcomes, np.where(at_place, winner, np.where(nearby, better, -1))

    def count(self, kept: Mask) -> dict[str, tuple[int, int]]:
        """Return examples (documents) and calls by tool; a chain counts for the tool of each of its calls."""
        kind, doc = self.kind[kept], self.doc[kept]
        counts = {}
        for tool in sorted({tool for tools in self.kinds for tool in tools}):
            calls = np.array([tools.count(tool) for tools in self.kinds], np.int64)[kind]
            counts[tool] = int(_changes(doc[calls > 0]).sum()), int(calls.sum())
        return counts

    def _passing(self, call_filter: CallFilter) -> Mask:
        tau_f = np.array([call_filter.tau_f.get(tools[-1], math.inf) for tools in self.kinds], np.float64)
        passing: Mask = self.gain >= tau_f[self.kind]  # false for NaN
        return passing

    def _placed(self, call_filter: CallFilter) -> Mask:
        """Return which calls stand at positions that take part."""
        placed = np.ones(len(self), np.bool_)
        if call_filter.top_k:
            top_k = [call_filter.top_k.get(tools[0], np.iinfo(np.int64).max) for tools in self.kinds]
            placed &= self.rank < np.array(top_k, np.int64)[self.kind]
        if any(tau_s > 0 for tau_s in call_filter.tau_s.values()):
            tau_s = [call_filter.tau_s.get(tools[0], 0.0) for tools in self.kinds]
            least = np.array([math.log(value) if value > 0 else -math.inf for value in tau_s])[self.kind]
            placed &= (self._log_p > least) | (least == -math.inf)
        return placed

    def _kept(self, call_filter: CallFilter, allowed: Mask) -> tuple[Mask, Mask, Mask]:
        """Return which calls are the best allowed ones of their positions, which of these no repeat, which are kept."""
        found = np.flatnonzero(allowed)
        won = np.zeros(len(self), np.bool_)
        won[found[_changes(self._place[found])]] = True
        keeps = np.array([tools[-1] in call_filter.keep_repeats for tools in self.kinds], np.bool_)
        apart = won.copy()
        apart[self._worse[won[self._better] & ~keeps[self.kind[self._worse]]]] = False
        return won, apart, apart if self._elsewhere is None else apart & ~self._elsewhere

    def _repeats(
        self, alike: NDArray[np.integer[Any]], window_end: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the pairs of equal calls in each other's windows: the call that gains less, and the other one."""
        rows = np.flatnonzero(window_end >= 0).astype(np.int32)
        keys = [values[rows] for values in (self.position, alike, self.kind, self.doc)]
        order = np.lexsort(keys)
        rows, (start, *same) = rows[order], [values[order] for values in keys]
        end, gain = window_end[rows], self.gain[rows]
        worse, better = [rows[:0]], [rows[:0]]
        for step in range(1, len(rows)):  # compares each call with the one `step` places after it
            near = (start[step:] < end[:-step]) & (start[:-step] < end[step:])
            for values in same:
                near &= values[step:] == values[:-step]
            if not near.any():  # windows end in the order in which they start, so none further on is near
                break
            first, second = rows[:-step][near], rows[step:][near]
            later_is_better = gain[step:][near] > gain[:-step][near]
            worse.append(np.where(later_is_better, first, second))
            better.append(np.where(later_is_better, second, first))
        return np.concatenate(worse), np.concatenate(better)


def reasons_of(
    calls: Sequence[ScoredCall],
    call_filter: CallFilter,
    ranks: Mapping[tuple[str, str, int], int] | None = None,
    rated_out: Sequence[str] = (),
) -> list[str]:
    """Return why each call is dropped; "" if it is kept. The arguments are those of `outcomes_of`."""
    return [reason for reason, _ in outcomes_of(calls, call_filter, ranks, rated_out)]


def outcomes_of(
    calls: Sequence[ScoredCall],
    call_filter: CallFilter,
    ranks: Mapping[tuple[str, str, int], int] | None = None,
    rated_out: Sequence[str] = (),
) -> list[tuple[str, ScoredCall | None]]:
    """Return why each call is dropped, "" if it is kept, and the call that won over it.

    At most one call or chain is kept at a position. If two calls gain the same, the first by tool, input and response
    is kept; of repeated calls, the first in the text. The calls are those of whole documents, beside a chain the call
    that it begins with. `ranks`, of (tool, document, position), are needed if the filter has `top_k`; `rated_out` has
    for each call the reason why it takes no part by what people say of it, or "".
    """
    gains = [math.nan if call.loss_call is None else call.gain for call in calls]
    order = sorted(range(len(calls)), key=lambda i: (*_place(calls[i]), *_precedence(calls[i], gains[i])))
    ordered = [calls[i] for i in order]
    kinds: dict[tuple[str, ...], int] = {}
    docs: dict[str, int] = {}
    inputs: dict[Any, int] = {}
    openers = [(call.tools[0], *_place(call)) for call in ordered]
    log_ps = {opener: call.log_p for opener, call in zip(openers, ordered, strict=True) if call.links == 1}
    elsewhere = [_elsewhere(call, call_filter) for call in ordered]
    columns = CallColumns(
        kind=np.array([kinds.setdefault(call.tools, len(kinds)) for call in ordered], np.intp),
        kinds=tuple(kinds),
        doc=np.array([docs.setdefault(call.doc_id, len(docs)) for call in ordered], np.int64),
        position=np.array([call.position for call in ordered], np.int64),
        gain=np.array([gains[i] for i in order], np.float64),
        rank=np.array([(ranks or {})[opener] if call_filter.top_k else 0 for opener in openers], np.int64),
        log_p=np.array([log_ps[opener] if call_filter.tau_s else 0.0 for opener in openers], np.float64),
        alike=np.array([inputs.setdefault((one.input, one.preceding_calls), len(inputs)) for one in ordered], np.int64),
        window_end=np.array([-1 if call.window_end is None else call.window_end for call in ordered], np.int64),
        ahead=np.array([looked_ahead(call) for call in ordered], np.bool_),
        elsewhere=np.array([reason != "" for reason in elsewhere], np.bool_),
    )
    left_out = np.array([bool(rated_out) and rated_out[i] != "" for i in order], np.bool_)
    outcomes: list[tuple[str, ScoredCall | None]] = [("", None)] * len(calls)
    for i, outcome, winner, other in zip(order, *columns.outcomes(call_filter, left_out), elsewhere, strict=True):
        name = REASONS[outcome]
        reason = rated_out[i] if name == "rated_out" else other if name == "elsewhere" else name
        outcomes[i] = reason, None if winner < 0 else ordered[winner]
    return outcomes


def same_call_rank(call: ScoredCall, seed: int) -> tuple[str, str]:
    """Return what equal calls or chains of all documents share, and the rank of this one's document, as 64-bit hex."""
    same = digest_of("same", *(part for one in call.chain for part in (one.tool, one.input, one.response)))[:16]
    return same, digest_of("rank", str(seed), same, call.doc_id)[:16]


def _elsewhere(call: ScoredCall, call_filter: CallFilter) -> str:
    """Return why other texts cost a call its place; "" if they do not."""
    end = call.position + 1 if call.window_end is None else call.window_end
    for first, last, reason in call_filter.shared_words.get(call.doc_id, ()):
        if first < end and call.position < last:
            return reason
    if not call_filter.last_same:
        return ""
    same, rank = same_call_rank(call, call_filter.seed)
    return SAME_CALL if rank > call_filter.last_same.get(same, rank) else ""


def looked_ahead(call: ScoredCall) -> bool:
    """Return whether the model knew a call's input from what follows it (MT only, App. A.1): it is never kept."""
    return call.tool == _LOOKAHEAD_TOOL and call.seen_after and not call.seen_before


def may_be_kept(call: ScoredCall) -> bool:
    """Return whether there is a threshold at which a call, alone in its document, would be kept."""
    return not math.isnan(call.gain) and not looked_ahead(call)


def _place(call: ScoredCall) -> tuple[str, int]:
    return call.doc_id, call.position


def _precedence(call: ScoredCall, gain: float) -> tuple[Any, ...]:
    """Return what sorts the calls of a position; those without a gain come last."""
    links = tuple((one.tool, one.input, one.response) for one in call.preceding_calls)
    return -call.links, math.inf if math.isnan(gain) else -gain, call.tool, call.input, call.response, links


def _changes(values: NDArray[Any]) -> Mask:
    changes = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes
