"""Read: one document with its calls inline, everything about one of them, and what every stage dropped.

Shown are the calls of a version of C*, or of the current build, and the call that the URL names even if it was dropped.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flows.report.document_trace import KEPT, DocumentTrace, trace_document
from toolformer_core.errors import UsageError
from toolformer_core.records import Call
from toolformer_core.syntax import linearize
from viewer.data import ViewedData
from viewer.next_tokens import next_tokens, token_texts
from viewer.pages.judge import ratings_of
from viewer.query import NotThereError, Query, WrongQueryError, document_link
from warehouse.queries.documents import example_of

_MAX_CHARS = 100_000  # of the text on one page
_MAX_ROWS = 200  # of each list of what was dropped
_LONG = 2_000  # characters of an input or a response that a panel shows

OUTCOMES = {
    "kept": "in C*",
    "below_threshold": "it gains less than its tool's threshold",
    "seen_only_after": "the text has its input after the position and not before: the model looked ahead",
    "shorter_chain": "a longer chain of calls passes at the same position",
    "lower_gain": "another call at the same position gains more",
    "repeated_nearby": "the same call within five tokens gains more",
    "same_call": "enough other texts keep the same call",
    "over_limit": "its tool has enough examples",
    "position_left_out": "its position takes no part in the current C*",
    "rejected": "people's ratings reject it",
    "not_accepted": "people's ratings do not accept it",
}


class Piece(NamedTuple):
    """A part of the document: plain text, or a call with the tool's key."""

    text: str
    tool: str = ""
    link: str = ""
    chosen: bool = False
    dropped: bool = False


def page(viewed: ViewedData, query: Query, doc_id: str) -> Mapping[str, Any]:
    """Return what the page shows: `version` is name@version, `call` tool:position:n, the n-th call of a tool there."""
    version = query.text("version")
    names = viewed.names()
    try:
        trace = trace_document(viewed.store, viewed.snapshot, doc_id)
    except UsageError as exc:
        if not version:
            raise NotThereError(str(exc)) from exc
        return _of_another_corpus(viewed, names, doc_id, version)
    explanation = trace.explanation
    if explanation.dropped is not None:
        raise NotThereError(f"dropped as {explanation.dropped['reason']}: {explanation.dropped['detail']}")
    document = explanation.document or {}
    doc_id, text = document["doc_id"], document["text"]
    versions = {f"{row['name']}@{row['version']}": row["calls"] for row in explanation.datasets}
    if version and version not in versions:
        raise WrongQueryError(f"{version[:100]} does not have this document; these do: {', '.join(versions) or 'none'}")
    calls = _numbered(trace.calls)
    shown = [{**call, "nth": _nth(calls, call)} for call in _chained(versions[version])] if version else []
    shown = shown or [call for call in calls if not version and call["outcome"] == KEPT]
    chosen = _chosen(calls, query.text("call"))
    start = _start(query, text, chosen)
    return {
        "doc_id": doc_id,
        "document": document,
        "version": version,
        "versions": list(versions),
        "names": names,
        "pieces": pieces_of(text, shown, chosen, names, doc_id, version, start),
        "sections": _sections(query, doc_id, text, start),
        "chosen": chosen and _panel(viewed, trace, calls, chosen, version),
        "calls": [{**call, "link": _link_to(doc_id, call, version)} for call in calls],
        "tables": {"calls": calls},
        "dropped": {
            "prefilter": [row for row in explanation.prefiltered if not row["kept"]],
            "sample": [row for row in explanation.sampled if row["outcome"] != "ok"],
            "execute": [row for row in explanation.executed if row["failure"]],
        },
        "thresholds": trace.thresholds,
        "outcomes": OUTCOMES,
        "max_rows": _MAX_ROWS,
        "trace": trace,
    }


def pieces_of(
    text: str,
    calls: Iterable[Mapping[str, Any]],
    chosen: Mapping[str, Any] | None,
    names: Mapping[str, str],
    doc_id: str,
    version: str = "",
    start: int = 0,
) -> list[Piece]:
    """Return the text with its calls as pieces, from an offset on; the chosen call is shown in any case."""
    inline = [(call, False) for call in calls if not _same(call, chosen)]
    inline += [(chosen, chosen.get("outcome") != KEPT)] if chosen is not None else []
    stop = start + _MAX_CHARS
    out, at = [], start
    for call, dropped in sorted(inline, key=lambda one: (one[0]["position"], one[1], one[0]["tool"])):
        if not start <= call["position"] <= stop:
            continue
        out.append(Piece(text[at : call["position"]]))
        at = call["position"]
        for tool, input_, response in _links(call):
            written = linearize(Call(names.get(tool, tool), input_), response)
            out.append(Piece(written, tool, _link_to(doc_id, call, version), call is chosen, dropped))
    return [piece for piece in (*out, Piece(text[at:stop])) if piece.text]


def _chained(calls: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a version's calls, those of a chain (they share their position) as one: the last, behind the others."""
    ordered = sorted(calls, key=lambda one: (one["position"], one["start"]))
    chains = itertools.groupby(ordered, lambda one: one["position"])
    return [{**last, "preceding_calls": links} for _, (*links, last) in chains]


def _numbered(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    numbers = defaultdict[tuple[str, int], Iterator[int]](itertools.count)
    return [{**call, "nth": next(numbers[_tools(call), call["position"]])} for call in calls]


def _same(call: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
    return other is not None and call["position"] == other["position"] and _links(call) == _links(other)


def _links(call: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["tool"], one["input"], one["response"]) for one in (*(call.get("preceding_calls") or ()), call)]


def _tools(call: Mapping[str, Any]) -> str:
    return "+".join(tool for tool, _, _ in _links(call))


def _link_to(doc_id: str, call: Mapping[str, Any], version: str) -> str:
    return document_link(doc_id, {**call, "tool": _tools(call)}, version)


def _nth(calls: Iterable[Mapping[str, Any]], call: Mapping[str, Any]) -> int:
    return next((one["nth"] for one in calls if _same(one, call)), 0)


def _chosen(calls: Iterable[Mapping[str, Any]], wanted: str) -> Mapping[str, Any] | None:
    named = {f"{_tools(call)}:{call['position']}:{call['nth']}": call for call in calls}
    if wanted and wanted not in named:
        raise WrongQueryError(f"the current scores of this document have no call {wanted[:100]!r}")
    return named.get(wanted)


def _start(query: Query, text: str, chosen: Mapping[str, Any] | None) -> int:
    """Return where the page's part of a long text begins: as asked for, unless the chosen call lies elsewhere."""
    start = min(query.whole("from") or 0, max(len(text) - 1, 0))
    if chosen is None or start <= chosen["position"] <= start + _MAX_CHARS:
        return start
    return max(0, int(chosen["position"]) - _MAX_CHARS // 2)


def _sections(query: Query, doc_id: str, text: str, start: int) -> list[tuple[str, str]]:
    parts = [("before this", max(0, start - _MAX_CHARS))] if start else []
    parts += [("behind this", start + _MAX_CHARS)] if start + _MAX_CHARS < len(text) else []
    return [(name, query.to(document_link(doc_id), call=None, **{"from": at or None})) for name, at in parts]


def _panel(
    viewed: ViewedData,
    trace: DocumentTrace,
    calls: Sequence[Mapping[str, Any]],
    chosen: Mapping[str, Any],
    version: str,
) -> dict[str, Any]:
    document = trace.explanation.document or {}
    build, at = viewed.build(), calls.index(chosen)
    texts = token_texts(build.model, document["text"], chosen) if build else None
    place = {"tool": chosen["tool"], "position": chosen["position"]}

    def link(call: Mapping[str, Any]) -> str:
        return _link_to(document["doc_id"], call, version)

    return {
        "call": chosen,
        "long": {name: len(chosen[name]) > _LONG for name in ("input", "response")},
        "short": {name: chosen[name][:_LONG] for name in ("input", "response")},
        "tau_f": trace.thresholds.get(chosen["tool"]),
        "position": next((row for row in trace.positions if place.items() <= row.items()), None),
        "p": math.exp(chosen["log_p"]),
        "tokens": next_tokens(chosen, texts),
        "has_texts": texts is not None,
        "ratings": ratings_of(viewed, document["doc_id"], chosen),
        "here": link(chosen).partition("#")[0],
        "rivals": [
            {**one, "link": link(one)} for one in calls if one["position"] == chosen["position"] and one is not chosen
        ],
        "neighbours": [
            *(("Previous call", link(one)) for one in calls[:at][-1:]),
            *(("Next call", link(one)) for one in calls[at + 1 :][:1]),
        ],
    }


def example_pieces(example: Mapping[str, Any]) -> list[Piece]:
    calls = sorted(example["calls"], key=lambda one: one["start"])
    return pieces_between(example["text"], ((call["start"], call["end"], call["tool"]) for call in calls))


def pieces_between(text: str, calls: Iterable[tuple[int, int, str]]) -> list[Piece]:
    """Return a text as pieces, given start, end and tool of its calls in order."""
    pieces, at = [], 0
    for start, end, tool in calls:
        pieces += [Piece(text[at:start]), Piece(text[start:end], tool)]
        at = end
    return [piece for piece in (*pieces, Piece(text[at:])) if piece.text]


def _of_another_corpus(viewed: ViewedData, names: Mapping[str, str], doc_id: str, version: str) -> dict[str, Any]:
    dataset, _, digest = version.rpartition("@")
    example = example_of(viewed.snapshot, dataset, digest, doc_id)
    if example is None:
        raise NotThereError(f"neither the current build nor {version[:100]} has a document {doc_id[:100]!r}")
    return {
        "doc_id": doc_id,
        "document": {"doc_id": doc_id, "url": None, "created": None},
        "version": version,
        "versions": [version],
        "names": names,
        "pieces": example_pieces(example),
        **{"sections": [], "chosen": None, "thresholds": {}, "trace": None},
    }
