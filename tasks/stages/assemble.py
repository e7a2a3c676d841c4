"""Assemble: makes C*, the texts with their kept calls, from stored scores, with a build's thresholds or others.

Where a limit holds, a shard's fingerprint names its documents beyond it, so calls are judged before it is looked up.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from tasks.shards import arrow
from tasks.shards.run_shard import ShardWriter, StageOutput
from tasks.shards.stage import Inputs, Stage, at_depth, nonzero
from tasks.specs.rating_filter import RatingFilter, digests_of
from toolformer_core.annotate.assemble import OVER_LIMIT, assemble, over_cap
from toolformer_core.annotate.call_filter import SAME_CALL, CallFilter, SharedWords, outcomes_of, same_call_rank
from toolformer_core.config import MAX_CHAIN_DEPTH, AssembleConfig, canonical_json
from toolformer_core.records import ScoredCall, digest_of
from warehouse.commits import RowCounts
from warehouse.files.base import Files
from warehouse.ratings import RATING_REASONS
from warehouse.schema import CALL_OUTCOMES
from warehouse.store import Store

RATINGS = "ratings"  # in the config of an assembled shard: the filter by people's ratings that left out calls
SCORES = tuple(at_depth("score", depth) for depth in range(1, MAX_CHAIN_DEPTH + 1))  # stages whose calls take part
NOT_ANNOTATED = "not_annotated"  # in the config of an assembled shard: tools that had enough examples before it
# In the config of an assembled shard: those of `CallFilter` that concern its calls.
SHARED_WORDS, _LAST_SAME = "shared_words", "last_same"


@dataclass(frozen=True, slots=True)
class AssemblySpec:
    """All that assembling C* depends on besides the scores; what has no comment is as in `BuildSpec`."""

    run_id: str
    data: str
    config: AssembleConfig
    tool_names: Mapping[str, str]
    rating_filter: RatingFilter | None = None
    max_same_call: int | None = None
    mask_pii: bool = False
    shared_words: Mapping[str, Sequence[SharedWords]] = field(default_factory=dict)
    last_same: Mapping[str, str] = field(default_factory=dict)  # of equal calls over that limit: see `CallFilter`
    last_ranks: Mapping[str, str] = field(default_factory=dict)  # of tools over the limit: see `ExampleCap`
    not_annotated: Mapping[str, Sequence[str]] = field(default_factory=dict)  # shard -> tools that had enough examples
    overlay: Files | None = None

    def store(self) -> Store:
        return Store(self.data, files=self.overlay)


@dataclass(frozen=True, slots=True)
class JudgedCalls:
    """A shard's scored calls, and what the thresholds say of them; the limit of examples is not applied yet."""

    calls: list[ScoredCall]  # all
    rated_out: frozenset[str]  # digests of the calls that do not take part by what people say of them
    outcomes: list[tuple[str, ScoredCall | None]]  # of each, see `outcomes_of`
    tau_f: Mapping[str, float]  # by tool
    kept: list[ScoredCall]
    reasons: Counter[tuple[bool, str]]  # of the others, chains (True) apart from single calls
    shared: dict[str, list[SharedWords]]  # by document of a call
    same: frozenset[tuple[str, str]]  # equal calls and document, of those that enough other documents keep
    excess: frozenset[tuple[str, str]]  # tool and document of examples beyond the limit

    def is_over_limit(self, call: ScoredCall) -> bool:
        """Return whether a tool of a kept call, or of a chain, has enough examples without its document."""
        return any((tool, call.doc_id) in self.excess for tool in call.tools)

    def outcomes_table(self) -> pa.Table:
        outcomes = [
            (OVER_LIMIT, None) if not outcome[0] and self.is_over_limit(call) else outcome
            for call, outcome in zip(self.calls, self.outcomes, strict=True)
        ]
        return arrow.outcomes_table(self.calls, outcomes, self.tau_f)

    def row_counts(self) -> Iterator[RowCounts]:
        for chains, unit in ((False, "calls"), (True, "chains")):
            kept = [call for call in self.kept if _is_chain(call) is chains]
            over = sum(map(self.is_over_limit, kept))
            reasons = {reason: n for (of_chains, reason), n in self.reasons.items() if of_chains is chains}
            rows = len(kept) + sum(reasons.values())
            if rows or not chains:
                yield RowCounts(unit, rows, len(kept) - over, dropped=nonzero({**reasons, OVER_LIMIT: over}))


def _is_chain(call: ScoredCall) -> bool:
    return call.links > 1


_LAST = threading.local()  # the judged calls of the shard at hand: its fingerprint and its run both need them


def judged_calls(inputs: Inputs[AssemblySpec]) -> JudgedCalls:
    assembly, config = inputs.spec, inputs.spec.config
    calls = [call for stage in SCORES for call in inputs.records(stage, arrow.scored_of)]
    drawn = inputs.records("sample", arrow.drawn_of) if config.top_k else []
    ranks = {(call.tool, call.doc_id, call.position): call.rank for call in drawn}
    settings = {**asdict(config), SHARED_WORDS: assembly.shared_words, _LAST_SAME: assembly.last_same}
    call_filter = CallFilter.of_build(assembly.tool_names, settings)
    outcomes = outcomes_of(
        calls, call_filter, ranks, assembly.rating_filter.reasons(calls) if assembly.rating_filter else ()
    )
    judged = [(call, reason) for call, (reason, _) in zip(calls, outcomes, strict=True)]
    kept = [call for call, reason in judged if not reason]
    examples = {(tool, call.doc_id) for call in kept for tool in call.tools}
    excess = over_cap(examples, assembly.last_ranks, config.seed)
    dropped = Counter((_is_chain(call), reason) for call, reason in judged if reason)
    left_out = frozenset("/".join(digests_of(call)) for call, reason in judged if reason in RATING_REASONS)
    documents = {call.doc_id for call in calls}
    same = (call for call, reason in judged if reason == SAME_CALL)
    over = frozenset((same_call_rank(call, config.seed)[0], call.doc_id) for call in same)
    shared = {doc: list(assembly.shared_words[doc]) for doc in sorted(documents & assembly.shared_words.keys())}
    return JudgedCalls(calls, left_out, outcomes, call_filter.tau_f, kept, dropped, shared, over, frozenset(excess))


def _judged_once(inputs: Inputs[AssemblySpec]) -> JudgedCalls:
    """Return the judged calls of the shard at hand, which this thread may have judged already."""
    held: tuple[Inputs[AssemblySpec], JudgedCalls] | None = getattr(_LAST, "held", None)
    if held is None or held[0] is not inputs:
        held = _LAST.held = (inputs, judged_calls(inputs))
    return held[1]


def _run(inputs: Inputs[AssemblySpec], writer: ShardWriter) -> StageOutput:
    assembly, judged = inputs.spec, _judged_once(inputs)
    _LAST.held = None
    by_document: defaultdict[str, list[Any]] = defaultdict(list)
    for call in judged.kept:
        if not judged.is_over_limit(call):
            by_document[call.doc_id].append(call)
    documents = inputs.records("ingest", arrow.documents_of)
    assembled = (assemble(document, by_document[document.doc_id], assembly.tool_names) for document in documents)
    examples = [example for example in assembled if example is not None]
    reason = "no_surviving_call" if inputs.files.get("score") else NOT_ANNOTATED
    dropped = nonzero({reason: len(documents) - len(examples)})
    writer.write(arrow.stage_table("assemble", examples))
    writer.write(judged.outcomes_table(), stage=CALL_OUTCOMES)
    return StageOutput((*judged.row_counts(), RowCounts("documents", len(documents), len(examples), dropped)))


def _digests(inputs: Inputs[AssemblySpec]) -> Mapping[str, str]:
    assembly = inputs.spec
    limited = assembly.last_ranks or assembly.last_same or assembly.shared_words or assembly.rating_filter
    judged = _judged_once(inputs) if limited else None
    parts = {
        "cap": digest_of("over", *(f"{tool}/{doc}" for tool, doc in sorted(judged.excess if judged else ()))),
        "tools": digest_of(canonical_json(dict(assembly.tool_names))),
    }
    if not_annotated := assembly.not_annotated.get(inputs.shard, ()):
        parts["not_annotated"] = digest_of(*not_annotated)
    if judged is not None and judged.rated_out:  # else the shard is as it would be without ratings
        parts["ratings"] = digest_of(*sorted(judged.rated_out))
    if judged is not None and judged.shared:
        parts["benchmarks"] = digest_of(canonical_json(judged.shared))
    if judged is not None and judged.same:
        parts["same"] = digest_of(*(f"{same}/{doc_id}" for same, doc_id in sorted(judged.same)))
    return parts


def _config_notes(inputs: Inputs[AssemblySpec]) -> Mapping[str, Any]:
    assembly = inputs.spec
    notes: dict[str, Any] = {}
    if not_annotated := assembly.not_annotated.get(inputs.shard, ()):
        notes[NOT_ANNOTATED] = list(not_annotated)
    if assembly.rating_filter is not None and _judged_once(inputs).rated_out:
        notes[RATINGS] = {"keep": assembly.rating_filter.keep, "until": assembly.rating_filter.until}
    if assembly.shared_words and (shared := _judged_once(inputs).shared):
        notes[SHARED_WORDS] = shared
    if assembly.last_same and (over := _judged_once(inputs).same):
        notes[_LAST_SAME] = {same: assembly.last_same[same] for same, _ in sorted(over)}
    return notes


ASSEMBLE: Stage[AssemblySpec] = Stage(
    name="assemble",
    version="4",
    unit="calls",
    per="shard",
    reads=("ingest", "score", "sample", *SCORES[1:]),  # the samples only where some ranks are left out
    run=_run,
    config=lambda inputs: inputs.spec.config,
    digests=_digests,
    config_notes=_config_notes,
)
