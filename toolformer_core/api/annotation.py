"""What annotating a text returns: the text with its calls, each call's gain, and why a call was dropped."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from toolformer_core.annotate.assemble import assemble
from toolformer_core.annotate.call_filter import CallFilter, reasons_of
from toolformer_core.annotate.in_memory import ToolRun
from toolformer_core.annotate.sample import SampledDocument
from toolformer_core.records import Document, Execution, PrefilterResult, ScoredCall
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import repeating_tools

FILTERED_OUT = "filtered_out"
_OF_SCORED = "tool input response position count log_p loss_plain loss_call loss_response gain".split()


@dataclass(frozen=True, slots=True)
class CandidateCall:
    """A call that was drawn and answered, with its losses, kept or not.

    A loss is a weighted sum over the five tokens after the position (§2 and §4.1 of the paper), in nats.
    """

    tool: str  # key
    input: str
    response: str
    position: int  # in the text: the call stands in front of the character at this offset
    count: int  # how many samples gave this call
    log_p: float  # log p(" [") at the position, natural log
    loss_plain: float  # L(eps): no call
    loss_call: float | None  # L(e(c, eps)): the call without its response; None: not computed, as no tau_f needs it
    loss_response: float  # L(e(c, r)): the call with its response
    gain: float  # min(loss_plain, loss_call) - loss_response; without loss_call an upper bound
    tau_f: float  # the smallest gain with which a call of this tool is kept
    kept: bool
    reason: str  # below_threshold | seen_only_after | lower_gain | repeated_nearby; "" if kept
    span: tuple[int, int] | None  # where the call stands in the annotated text, [start, end); None if it is dropped


@dataclass(frozen=True, slots=True)
class UnansweredCall:
    """A call that was drawn, and to which the tool gave no response."""

    tool: str  # key
    input: str
    position: int
    count: int  # how many samples gave this call
    failure: str  # timeout | crashed | empty, or the tool's own reason
    detail: str


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What became of a text with one tool before its calls were scored."""

    tool: str  # key
    outcome: str  # filtered_out | no_position (p(" [") is above tau_s nowhere) | no_call (no draw is a call) | sampled
    prefilter: str  # why the prefilter kept or dropped the text: equation, few_numbers, ...; not_filtered
    samples: Mapping[str, int]  # how many samples are ok, unterminated, wrong_tool or unparsable


@dataclass(frozen=True, slots=True)
class Annotation:
    """A text, and everything that was tried in it."""

    text: str
    annotated: str  # the text with the kept calls in it; the text itself if there are none
    calls: tuple[CandidateCall, ...]  # in the order of the text; at one position, the largest gain first
    unanswered: tuple[UnansweredCall, ...]  # in the order of the text
    tools: Mapping[str, ToolOutcome]  # by key, in the order in which the tools were given

    @property
    def kept(self) -> tuple[CandidateCall, ...]:
        """The calls that stand in the annotated text."""
        return tuple(call for call in self.calls if call.kept)


def annotations_of(
    documents: Iterable[Document],
    tools: Mapping[str, Tool],
    prefiltered: Mapping[str, Mapping[str, PrefilterResult]],
    runs: Mapping[str, ToolRun],
    tau_f: Mapping[str, float],
    keep_repeats: bool | None = None,
) -> dict[str, Annotation]:
    """Return the annotation of every document, by its id; the prefilter's results are by tool and document id.

    `tau_f` has every tool's threshold, in nats; `runs` what the stages returned. `keep_repeats`: see `repeating_tools`.
    """
    scored = [call for run in runs.values() for call in run.scored]
    call_filter = CallFilter(tau_f, keep_repeats=repeating_tools(tools, keep_repeats))
    calls_and_reasons: dict[str, list[tuple[ScoredCall, str]]] = {}  # by document; reason "": the call is kept
    for call, reason in zip(scored, reasons_of(scored, call_filter), strict=True):
        calls_and_reasons.setdefault(call.doc_id, []).append((call, reason))
    sampled = {key: {document.doc_id: document for document in run.sampled} for key, run in runs.items()}
    out = {}
    for document in documents:
        doc_id = document.doc_id
        results_by_tool = {key: (prefiltered[key][doc_id], sampled[key].get(doc_id)) for key in tools}
        unanswered = [
            call
            for key, (result, of_document) in results_by_tool.items()
            for call in _unanswered(of_document, result.context, runs[key].executions)
        ]
        annotated, calls = _calls(document, calls_and_reasons.get(doc_id, []), tools, tau_f)
        out[doc_id] = Annotation(
            text=document.text,
            annotated=annotated,
            calls=calls,
            unanswered=tuple(sorted(unanswered, key=lambda call: call.position)),
            tools={key: _outcome(key, *results) for key, results in results_by_tool.items()},
        )
    return out


def _calls(
    document: Document,
    calls_and_reasons: list[tuple[ScoredCall, str]],
    tools: Mapping[str, Tool],
    tau_f: Mapping[str, float],
) -> tuple[str, tuple[CandidateCall, ...]]:
    """Return the annotated text, and the scored calls in the order of the text."""
    names = {key: tool.name for key, tool in tools.items()}
    example = assemble(document, [call for call, reason in calls_and_reasons if not reason], names)
    spans = {call.position: (call.start, call.end) for call in example.calls} if example else {}
    calls = [
        CandidateCall(
            **{name: getattr(call, name) for name in _OF_SCORED},
            tau_f=tau_f[call.tool],
            kept=not reason,
            reason=reason,
            span=None if reason else spans[call.position],
        )
        for call, reason in calls_and_reasons
    ]
    calls.sort(key=lambda call: (call.position, math.inf if math.isnan(call.gain) else -call.gain))
    return example.text if example else document.text, tuple(calls)


def _unanswered(
    sampled: SampledDocument | None, context: str, executions: Mapping[tuple[str, str], Execution]
) -> Iterator[UnansweredCall]:
    counts: Counter[tuple[int, str]] = Counter()
    for call in sampled.calls if sampled else ():
        if call.outcome == "ok" and executions[call.input, context].failure:
            counts[call.position, call.input] += call.count
    for (position, input_), count in counts.items():
        execution = executions[input_, context]
        yield UnansweredCall(execution.tool, input_, position, count, execution.failure, execution.detail)


def _outcome(key: str, result: PrefilterResult, sampled: SampledDocument | None) -> ToolOutcome:
    samples = Counter(call.outcome for call in (sampled.calls if sampled else ()) for _ in range(call.count))
    return ToolOutcome(key, sampled.outcome if sampled else FILTERED_OUT, result.reason, dict(samples))
