"""Assemble C*: selects the scored calls that survive and inserts them into documents. (§2, filtering and interleaving)

    | reason          | the call is dropped because                                                               |
    |-----------------|-------------------------------------------------------------------------------------------|
    | below_threshold | L- - L+ < tau_f of its tool                                                               |
    | seen_only_after | MT only (App. A.1): the text holds its input after the position and not before, so the    |
    |                 | model looked ahead                                                                        |
    | shorter_chain   | a longer chain of calls passes the rules above at the same position of the document       |
    | lower_gain      | another surviving call at the same position of the document, of any tool, gains more      |
    | repeated_nearby | a call of the same tool and input, not dropped by the rules above, is within the five     |
    |                 | tokens by which the two are judged, and gains more: one response is enough                |
    | over_limit      | the tool has enough examples (25,000 in the paper, App. B); which ones stay is seeded     |

A chain is judged as its last call (see `records.ScoredCall`), by the threshold of that call's tool.

The rules are applied in this order, and every dropped call has exactly one reason. A call can be dropped because of a
better neighbour that is itself dropped as repeated: in a chain of such calls, all but the best have a better neighbour.
These are pure functions over stored scores, so a new threshold needs no model. This stage knows no files, no running
tools and no tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolformer_core.config import TOOL_NAMES, tau_f_for
from toolformer_core.records import AnsweredCall, Call, Document, Example, InsertedCall, ScoredCall, digest_of
from toolformer_core.syntax import interleave, linearize

__all__ = [
    "OVER_LIMIT",
    "ExampleCap",
    "assemble",
    "cap_examples",
    "cap_rank",
    "looked_ahead",
    "may_be_kept",
    "over_cap",
    "survivors",
]

BELOW_THRESHOLD = "below_threshold"
SEEN_ONLY_AFTER = "seen_only_after"
SHORTER_CHAIN = "shorter_chain"
LOWER_GAIN = "lower_gain"
REPEATED_NEARBY = "repeated_nearby"
OVER_LIMIT = "over_limit"

_LOOKAHEAD_TOOL = "mt"


def survivors(
    scored: Iterable[ScoredCall], tau_f: Mapping[str, float] | None = None, *, keep_repeats: bool = False
) -> tuple[list[ScoredCall], list[tuple[ScoredCall, str]]]:
    """Split scored calls, of any documents and tools, into those that survive and those that do not.

    Args:
        scored: the calls, in any order.
        tau_f: filtering threshold per tool in nats; for a missing tool the paper's (1.0; Calculator and MT 0.5).
        keep_repeats: as in the paper, keep calls of one tool with the same input even within five tokens of each
            other. Calls whose window is unknown are always kept.

    Returns:
        The survivors, at most one call or chain per document and position, and the dropped calls with their reasons;
        both in the order given. If two calls gain the same, the first by tool, input and response survives; of repeated
        calls, the first in the text.
    """
    calls = list(scored)
    reasons = [_reason_alone(call, tau_f) for call in calls]
    best: dict[tuple[str, int], int] = {}
    for i, call in enumerate(calls):
        if reasons[i]:
            continue
        place = (call.doc_id, call.position)
        rival = best.get(place)
        if rival is None:
            best[place] = i
            continue
        winner, loser = (i, rival) if _precedence(call) < _precedence(calls[rival]) else (rival, i)
        best[place] = winner
        reasons[loser] = SHORTER_CHAIN if calls[loser].links < calls[winner].links else LOWER_GAIN
    if not keep_repeats:
        for i in _repeated(calls, best.values()):
            reasons[i] = REPEATED_NEARBY
    kept = [call for call, reason in zip(calls, reasons, strict=True) if not reason]
    dropped = [(call, reason) for call, reason in zip(calls, reasons, strict=True) if reason]
    return kept, dropped


def _reason_alone(call: ScoredCall, tau_f: Mapping[str, float] | None) -> str:
    """Return the reason that does not depend on other calls; "" if there is none."""
    # Written so that a NaN gain is dropped. Where the gain is only bounded, the bound is below every threshold in use.
    if call.loss_call is None or not call.gain >= tau_f_for(call.tool, tau_f):
        return BELOW_THRESHOLD
    return SEEN_ONLY_AFTER if looked_ahead(call) else ""


def looked_ahead(call: ScoredCall) -> bool:
    """Return whether the model knew a call's input from what follows it (MT only, App. A.1): it is never kept."""
    return call.tool == _LOOKAHEAD_TOOL and call.seen_after and not call.seen_before


def may_be_kept(call: ScoredCall) -> bool:
    """Return whether there is a threshold at which a call, alone in its document, would be kept."""
    return not math.isnan(call.gain) and not looked_ahead(call)


def _repeated(calls: Sequence[ScoredCall], candidates: Iterable[int]) -> list[int]:
    """Return the candidates that have a better call of the same tool and input within their window."""
    groups: dict[tuple[str, str, str, tuple[AnsweredCall, ...]], list[int]] = {}
    for i in candidates:
        call = calls[i]
        if call.window_end is not None:
            groups.setdefault((call.doc_id, call.tool, call.input, call.behind), []).append(i)
    out = []
    for group in groups.values():
        group.sort(key=lambda i: calls[i].position)
        out += [i for at, i in enumerate(group) if any(_is_better(calls[j], calls[i]) for j in _near(calls, group, at))]
    return out


def _near(calls: Sequence[ScoredCall], group: Sequence[int], at: int) -> Iterator[int]:
    """Yield the members of a group, which is in text order, that share a window with member `at`."""
    call = calls[group[at]]
    for j in reversed(group[:at]):
        if (calls[j].window_end or 0) <= call.position:  # windows end in the order in which they start
            break
        yield j
    for j in group[at + 1 :]:
        if calls[j].position >= (call.window_end or 0):
            break
        yield j


def _is_better(other: ScoredCall, call: ScoredCall) -> bool:
    return (-other.gain, other.position) < (-call.gain, call.position)


def _precedence(call: ScoredCall) -> tuple[int, float, str, str, str, tuple[tuple[str, str, str], ...]]:
    behind = tuple((one.tool, one.input, one.response) for one in call.behind)
    return (-call.links, -call.gain, call.tool, call.input, call.response, behind)


def assemble(document: Document, calls: Iterable[ScoredCall], names: Mapping[str, str] | None = None) -> Example | None:
    """Return x*: the document with its surviving calls inserted, or None if there are none.

    Removing the recorded spans from the example's text restores the document's text, whatever brackets it holds. The
    calls of a chain stand one behind another, and each has the position and the gain of the chain.

    Args:
        document: x.
        calls: surviving calls of this document, of all tools, in any order, at most one per position.
        names: the name in calls of each tool key; by default those of the paper's five. For a missing key, the key.

    Raises:
        ValueError: a call is of another document, lies outside the text, or shares its position with another one.
    """
    name_of = TOOL_NAMES if names is None else names
    ordered = sorted(calls, key=lambda c: c.position)
    if not ordered:
        return None
    for call in ordered:
        if call.doc_id != document.doc_id:
            raise ValueError(f"a call of document {call.doc_id} was given with document {document.doc_id}")
    if len({call.position for call in ordered}) < len(ordered):
        raise ValueError(f"two calls share a position of document {document.doc_id}; select calls with `survivors`")
    links = [(call, link) for call in ordered for link in call.chain]
    pieces = [
        (call.position, linearize(Call(name_of.get(link.tool, link.tool), link.input), link.response))
        for call, link in links
    ]
    text, spans = interleave(document.text, pieces)
    inserted = tuple(
        InsertedCall(link.tool, call.position, start, end, link.input, link.response, call.gain)
        for (call, link), (start, end) in zip(links, spans, strict=True)
    )
    return Example(document.doc_id, text, inserted)


class ExampleCap:
    """Finds which documents stay if no tool may have more than so many.

    A digest of seed, tool and document ranks a tool's documents, and the lowest stay: their order and the shards do not
    matter. Only ranks of documents that may still stay are held, so memory does not grow with the corpus. A document
    that is dropped for one tool keeps the calls of its other tools.

    Args:
        max_examples: documents per tool at most.
        seed: of the ranks.
    """

    def __init__(self, max_examples: int, seed: int) -> None:
        self._most = max_examples
        self._seed = seed
        self._ranks: dict[str, set[str]] = {}
        self._last: dict[str, str] = {}  # tool with too many documents -> the highest rank that may still stay

    def add(self, tool: str, doc_ids: Iterable[str]) -> None:
        """Add documents with a surviving call of a tool; adding one twice changes nothing."""
        ranks = self._ranks.setdefault(tool, set())
        last = self._last.get(tool)
        for doc_id in doc_ids:
            rank = cap_rank(self._seed, tool, doc_id)
            if last is None or rank <= last:
                ranks.add(rank)
        if len(ranks) > 2 * self._most:
            self._cut(tool)

    def _cut(self, tool: str) -> None:
        lowest = sorted(self._ranks[tool])[: self._most]
        self._ranks[tool], self._last[tool] = set(lowest), lowest[-1]

    def last_ranks(self) -> dict[str, str]:
        """Return, for every tool that has too many documents, the rank of the last one that stays; see `cap_rank`."""
        for tool, ranks in self._ranks.items():
            if len(ranks) > self._most:
                self._cut(tool)
        return dict(self._last)


def cap_rank(seed: int, tool: str, doc_id: str) -> str:
    """Return the rank of a document among those with a call of a tool, as text that sorts."""
    return digest_of("cap", str(seed), tool, doc_id)


def over_cap(pairs: Iterable[tuple[str, str]], last_ranks: Mapping[str, str], seed: int) -> set[tuple[str, str]]:
    """Return those (tool, document id) pairs that are beyond the limit.

    Args:
        pairs: the pairs.
        last_ranks: what `ExampleCap.last_ranks` returned.
        seed: the same as there.
    """
    return {
        (tool, doc_id)
        for tool, doc_id in pairs
        if tool in last_ranks and cap_rank(seed, tool, doc_id) > last_ranks[tool]
    }


def cap_examples(
    doc_ids_per_tool: Mapping[str, Iterable[str]], max_examples: int = 25_000, seed: int = 0
) -> set[tuple[str, str]]:
    """Return the (tool, document id) pairs to drop so that no tool has more than `max_examples` documents."""
    pairs = {(tool, doc_id) for tool, doc_ids in doc_ids_per_tool.items() for doc_id in doc_ids}
    cap = ExampleCap(max_examples, seed)
    for tool, doc_id in pairs:
        cap.add(tool, [doc_id])
    return over_cap(pairs, cap.last_ranks(), seed)
