"""Assemble C*: which scored calls survive, and the documents that carry them. (§2, filtering and interleaving)

    | reason          | the call is dropped because                                                               |
    |-----------------|-------------------------------------------------------------------------------------------|
    | below_threshold | L- - L+ < tau_f of its tool                                                               |
    | seen_only_after | MT only (App. A.1): its input stands after the position, not before: it was looked up      |
    | lower_gain      | another surviving call at the same position of the document, of any tool, gains more      |
    | repeated_nearby | another call that survives so far, of the same tool and input, stands within the five      |
    |                 | tokens by which the two are judged, and gains more: one answer, one call                  |
    | over_limit      | the tool has its share of examples already (25,000 in the paper, App. B); a seeded choice |

The rules are applied in that order, and every dropped call has exactly one reason. A call can be dropped as repeated
for the sake of one that is dropped so itself: of a row of such calls, each but the best has a better neighbour. Pure
functions over stored scores: a new threshold needs no model. This stage knows no files, no running tools, no tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from toolformer_core.config import TOOL_NAMES, tau_f_for
from toolformer_core.records import Call, Document, Example, InsertedCall, ScoredCall, digest_of
from toolformer_core.syntax import interleave, linearize

__all__ = ["OVER_LIMIT", "assemble", "cap_examples", "survivors"]

BELOW_THRESHOLD = "below_threshold"
SEEN_ONLY_AFTER = "seen_only_after"
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
        tau_f: filtering threshold per tool in nats; the paper's where a tool is absent (1.0; Calculator and MT 0.5).
        keep_repeats: keep calls of one tool with the same input also within five tokens of each other, as the paper
            does; calls whose window is not known are always kept.

    Returns:
        The survivors, at most one per document and position, and the dropped calls with their reasons; both in the
        order given. Of calls that gain alike, the first by tool, then input, then response survives; of repeated
        ones, the first in the text.
    """
    calls = list(scored)
    reasons = [_own_reason(call, tau_f) for call in calls]
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
        reasons[loser] = LOWER_GAIN
    if not keep_repeats:
        for i in _repeated(calls, best.values()):
            reasons[i] = REPEATED_NEARBY
    kept = [call for call, reason in zip(calls, reasons, strict=True) if not reason]
    dropped = [(call, reason) for call, reason in zip(calls, reasons, strict=True) if reason]
    return kept, dropped


def _own_reason(call: ScoredCall, tau_f: Mapping[str, float] | None) -> str:
    if not call.gain >= tau_f_for(call.tool, tau_f):  # a gain that is not a number is no gain
        return BELOW_THRESHOLD
    if call.tool == _LOOKAHEAD_TOOL and call.seen_after and not call.seen_before:
        return SEEN_ONLY_AFTER
    return ""


def _repeated(calls: Sequence[ScoredCall], standing: Iterable[int]) -> list[int]:
    """Return those of some calls that have a better one of the same tool and input within their window."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for i in standing:
        if calls[i].window_end is not None:
            alike.setdefault((calls[i].doc_id, calls[i].tool, calls[i].input), []).append(i)
    out = []
    for group in alike.values():
        group.sort(key=lambda i: calls[i].position)
        out += [i for at, i in enumerate(group) if any(_better(calls[i], calls[j]) for j in _near(calls, group, at))]
    return out


def _near(calls: Sequence[ScoredCall], group: Sequence[int], at: int) -> Iterator[int]:
    """Yield the members of a group, in the order of the text, that share the window of one of them."""
    own = calls[group[at]]
    for j in reversed(group[:at]):
        if (calls[j].window_end or 0) <= own.position:  # windows end in the order in which they begin
            break
        yield j
    for j in group[at + 1 :]:
        if calls[j].position >= (own.window_end or 0):
            break
        yield j


def _better(own: ScoredCall, other: ScoredCall) -> bool:
    return (-other.gain, other.position) < (-own.gain, own.position)


def _precedence(call: ScoredCall) -> tuple[float, str, str, str]:
    return (-call.gain, call.tool, call.input, call.response)


def assemble(document: Document, calls: Iterable[ScoredCall], names: Mapping[str, str] | None = None) -> Example | None:
    """Return x*: the document with its surviving calls in it, or None if there are none.

    Removing the recorded spans from the example's text gives the document's text back, whatever brackets it holds.

    Args:
        document: x.
        calls: surviving calls of this document, of all tools, in any order, at most one per position.
        names: a tool's name in a call by its key; the paper's five by default, and the key itself where absent.

    Raises:
        ValueError: a call is of another document, lies outside the text, or shares its position with another.
    """
    named = TOOL_NAMES if names is None else names
    ordered = sorted(calls, key=lambda c: c.position)
    if not ordered:
        return None
    for call in ordered:
        if call.doc_id != document.doc_id:
            raise ValueError(f"a call of document {call.doc_id} was given with document {document.doc_id}")
    if len({call.position for call in ordered}) < len(ordered):
        raise ValueError(f"two calls share a position of document {document.doc_id}: let `survivors` choose first")
    pieces = [
        (call.position, linearize(Call(named.get(call.tool, call.tool), call.input), call.response)) for call in ordered
    ]
    text, spans = interleave(document.text, pieces)
    inserted = tuple(
        InsertedCall(call.tool, call.position, start, end, call.input, call.response, call.gain)
        for call, (start, end) in zip(ordered, spans, strict=True)
    )
    return Example(document.doc_id, text, inserted)


def cap_examples(
    doc_ids_per_tool: Mapping[str, Iterable[str]], max_examples: int = 25_000, seed: int = 0
) -> set[tuple[str, str]]:
    """Return the (tool, document id) pairs to drop so that no tool has more than `max_examples` documents.

    Which documents stay is decided by a digest of seed, tool and document: neither the order given nor the other
    documents' shards matter. A document dropped for one tool keeps the calls of its other tools.
    """
    dropped: set[tuple[str, str]] = set()
    for tool, doc_ids in doc_ids_per_tool.items():
        ranked = sorted(set(doc_ids), key=lambda d: digest_of("cap", str(seed), tool, d))
        dropped.update((tool, doc_id) for doc_id in ranked[max_examples:])
    return dropped
