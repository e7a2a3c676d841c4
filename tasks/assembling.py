"""Assembling C* from stored scores: the one place for a build and for a choice of other thresholds.

No model and no tool is asked. The same scores and the same choice give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tasks import translate
from tasks.shards import Done, Outcome, Writer, run_shard
from tasks.spec import claims_of
from tasks.works import NOT_ANNOTATED, Assembly, Narrowing, Shard, assemble_work
from toolformer_core.annotate.assemble import OVER_LIMIT, assemble, cap_examples, survivors
from toolformer_core.records import ScoredCall
from warehouse.commits import Balance, DataFile
from warehouse.store import Store

__all__ = ["LEFT_OUT", "assemble_part", "examples_per_tool", "over_limit", "positive", "taking_part"]

LEFT_OUT = "position_left_out"  # a reason: the choice takes fewer positions than were sampled


def assemble_part(
    assembly: Assembly,
    shard: Shard,
    scored: Sequence[Done],
    over: Sequence[tuple[str, str]],
    sampled: Sequence[Done] = (),
    not_annotated: Sequence[str] = (),
) -> Done:
    """Filter the calls of all tools by gain and write the shard's part of C*.

    Args:
        scored: the losses, of every tool that was annotated.
        over: (tool, document id) pairs beyond the limit of examples per tool.
        sampled: the draws, of every tool; needed where positions are left out.
        not_annotated: the tools that were not, because they had enough examples.
    """
    store = assembly.store
    work = assemble_work(assembly, shard, scored, over, sampled, not_annotated)

    def do(write: Writer) -> Outcome:
        calls = [call for done in scored for f in done.files for call in translate.scored_of(store.read(f))]
        own = _own(assembly, calls, sampled)
        kept, dropped = survivors(own, assembly.config.tau_f, keep_repeats=assembly.config.keep_repeats)
        reasons = Counter(reason for _, reason in dropped)
        reasons[LEFT_OUT] = len(calls) - len(own)
        beyond = set(over)
        reasons[OVER_LIMIT] = sum(1 for c in kept if (c.tool, c.doc_id) in beyond)
        kept = [c for c in kept if (c.tool, c.doc_id) not in beyond]
        by_document: dict[str, list[Any]] = {}
        for call in kept:
            by_document.setdefault(call.doc_id, []).append(call)
        documents = translate.documents_of(store.read(shard.documents))
        examples = [
            example
            for d in documents
            if (example := assemble(d, by_document.get(d.doc_id, ()), assembly.tool_names)) is not None
        ]
        without = "no_surviving_call" if scored else NOT_ANNOTATED
        balances = (
            Balance("calls", len(calls), len(kept), dropped=positive(reasons)),
            Balance(
                "documents",
                len(documents),
                len(examples),
                dropped=positive({without: len(documents) - len(examples)}),
            ),
        )
        write.table(translate.stage_table("assemble", examples))
        return Outcome(balances)

    return run_shard(store, work, assembly.run_id, do, claims_of(store))


def taking_part(
    narrowing: Narrowing, calls: list[ScoredCall], ranks: Mapping[tuple[str, str, int], int]
) -> list[ScoredCall]:
    """Return the calls at the positions that are not left out.

    Args:
        ranks: (tool, document, position) -> the position's rank in the document; read only where some are left out.
    """
    if not narrowing:
        return calls
    return [
        call
        for call in calls
        if (k := narrowing.top_k.get(call.tool)) is None or ranks[call.tool, call.doc_id, call.position] < k
        if call.log_p > narrowing.floor(call.tool)
    ]


def _own(assembly: Assembly, calls: list[ScoredCall], sampled: Sequence[Done]) -> list[ScoredCall]:
    drawn = (c for done in sampled for f in done.files for c in translate.drawn_of(assembly.store.read(f)))
    ranks = {(c.tool, c.doc_id, c.position): c.rank for c in drawn} if assembly.narrowing else {}
    return taking_part(assembly.narrowing, calls, ranks)


def over_limit(
    assembly: Assembly, scored: Mapping[str, Sequence[Done]], sampled: Mapping[str, Sequence[Done]] | None = None
) -> dict[str, list[tuple[str, str]]]:
    """Return, per shard, the (tool, document) pairs beyond the limit of examples per tool.

    Args:
        scored: shard -> the losses, of every tool.
        sampled: shard -> the draws, of every tool; needed where positions are left out.
    """
    store, config = assembly.store, assembly.config
    rows = Counter[str]()
    for dones in scored.values():
        for done in dones:
            rows[done.key.tool] += sum(file.rows for file in done.files)
    if all(n <= config.max_examples for n in rows.values()):
        return {shard: [] for shard in scored}  # fewer calls than examples allowed: nothing needs to be read
    documents: dict[str, list[str]] = {tool: [] for tool in rows}
    home: dict[str, str] = {}
    for shard, dones in scored.items():
        calls = [c for d in dones for f in d.files for c in translate.scored_of(store.read(f))]
        own = _own(assembly, calls, (sampled or {}).get(shard, ()))
        for call in survivors(own, config.tau_f, keep_repeats=config.keep_repeats)[0]:
            documents[call.tool].append(call.doc_id)
            home[call.doc_id] = shard
    dropped = cap_examples(documents, config.max_examples, config.seed)
    out: dict[str, list[tuple[str, str]]] = {shard: [] for shard in scored}
    for tool, doc_id in sorted(dropped):
        out[home[doc_id]].append((tool, doc_id))
    return out


def examples_per_tool(store: Store, files: Sequence[DataFile], tools: Sequence[str]) -> dict[str, int]:
    """Return, per tool, how many examples hold one of its calls."""
    counts = dict.fromkeys(tools, 0)
    for file in files:
        for row in store.read(file, columns=["calls"]).to_pylist():
            for tool in {call["tool"] for call in row["calls"]}:
                counts[tool] += 1
    return counts


def positive(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts that are not 0, sorted by name."""
    return {reason: n for reason, n in sorted(counts.items()) if n}
