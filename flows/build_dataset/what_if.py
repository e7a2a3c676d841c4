"""A new version of C*, assembled by the build's own stage from stored scores with other thresholds, and these found."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flows.build_dataset.record import BuildRecord
from flows.build_dataset.versions import coverage_note, write_card, write_version
from flows.build_dataset.what_if_query import WhatIfQuery
from flows.runtime.ledger import now, open_run, reporting_to
from tasks.provenance import new_run_id
from tasks.shards.run_shard import ShardResult, result_of
from tasks.shards.stage import Inputs, Shard, files_by_stage, files_of, run_stage, shards_of
from tasks.specs.example_limit import with_limits
from tasks.specs.thresholds import find_thresholds, gains_by_tool
from tasks.stages.assemble import ASSEMBLE, NOT_ANNOTATED, SCORES, SHARED_WORDS, AssemblySpec, judged_calls
from toolformer_core.annotate.decoys import FoundThreshold
from toolformer_core.config import AssembleConfig
from toolformer_core.errors import UsageError
from toolformer_core.records import ScoredCall
from warehouse.commits import Dataset, Run, check_name
from warehouse.errors import StoreError
from warehouse.queries import Yield
from warehouse.queries.calls import WIDTH, CallInContext, Link
from warehouse.schema import WHAT_IF
from warehouse.store import Store
from warehouse.what_if import Change, StoredScores, WhatIf, stored_scores


@dataclass(frozen=True, slots=True)
class _BaseRun:
    run: Run
    record: BuildRecord
    shards: list[Shard]
    scored: dict[str, list[ShardResult]]  # shard -> results of `score`, one per tool and depth of chains
    sampled: dict[str, list[ShardResult]]  # shard -> results of `sample`, one per tool
    not_annotated: dict[str, list[str]]  # shard -> tools that had enough examples before it
    shared_words: dict[str, Any]  # document -> see `BuildSpec`
    reused: list[ShardResult]  # of all stages but `assemble`

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(self.record.tool_names)

    def inputs(self, assembly: AssemblySpec, shard: Shard) -> Inputs[AssemblySpec]:
        files = {"ingest": (shard.documents,), **files_by_stage(self.scored[shard.name])}
        if assembly.config.top_k:
            files["sample"] = files_of(self.sampled[shard.name])
        return Inputs(assembly, shard.name, files=files)


def thresholds_for(store: Store, snapshot: str | Path, rates: Sequence[float]) -> list[FoundThreshold]:
    """Return the threshold of each tool for each promised rate of false discoveries in (0, 1), by tool, then by rate.

    A UsageError: no calls are scored, or none with decoys.
    """
    if not rates:
        return []
    scores = stored_scores(snapshot)
    base = _read_base_run(store, scores)
    gains = gains_by_tool(store, base.scored, base.tools)
    if not any(one.requested for one in gains.values()):
        raise UsageError("--fdr needs calls scored with decoys: run the same toolformer build with --decoys 3")
    own = scores.assembled.get("tau_f", {})
    found = [find_thresholds(gains, dict.fromkeys(base.tools, rate), own, scores.floors) for rate in rates]
    return [one for of_tool in zip(*found, strict=True) for one in of_tool]


def materialise(store: Store, query: WhatIfQuery, name: str) -> Dataset:
    """Assemble C* with the other thresholds, as a new version of a dataset.

    A UsageError: the name is unsafe, or the scores' build has not finished; a WarehouseError: data is damaged, or lost.
    """
    try:
        check_name("dataset", name)
    except StoreError as exc:
        raise UsageError(f"--materialise: {exc}") from exc
    base = _read_base_run(store, query.stored)
    others = {tool: tau for tool, tau in query.after.tau_f.items() if tau != query.before.tau_f[tool]}
    thresholds = {**query.stored.assembled.get("tau_f", {}), **others}
    positions = {"top_k": dict(query.after.top_k), "tau_s": dict(query.after.tau_s)}
    changes = {"dataset": name, "tau_f": thresholds, "narrowing": positions}
    record = base.record.assembled_anew(query.rating_filter, **changes, keep_repeats=sorted(query.after.keep_repeats))
    about = (dict(record.parameters), base.run.corpus, base.run.model)
    run = Run(new_run_id(), WHAT_IF, now(), None, "running", *about)
    assembly = _assembly(store, query, base, after=True, run_id=run.run_id)
    assembly = replace(
        assembly,
        config=replace(assembly.config, tau_f=thresholds),
        shared_words=base.shared_words,
        max_same_call=base.record.parameters.get("max_same_call"),
    )
    notes = "Assembled from stored scores by `toolformer what-if`."
    if any(positions.values()):
        notes += f" Of the positions that were sampled, these take part: {positions}."
    if query.rating_filter is not None:
        notes += f" Of the calls, by people's ratings until {query.rating_filter.until}: {query.rating_filter.keep}."
    with open_run(store, run) as ledger, reporting_to(lambda *_: None):
        ledger.expect("assemble", len(base.shards))
        assembly = with_limits(assembly, base.scored, base.sampled)
        assembled = [run_stage(ASSEMBLE, base.inputs(assembly, shard)) for shard in base.shards]
        notes = "\n\n".join(filter(None, (notes, coverage_note(store, assembled))))
        for result in base.reused:
            ledger.expect(result.key.stage, 1)
        for result in (*base.reused, *assembled):
            ledger.add(result)
        with ledger.own_snapshot() as snapshot:
            licence = str(record.parameters.get("licence", ""))
            dataset = write_version(
                ledger, name, assembled, base.tools, thresholds, snapshot, licence=licence, notes=notes
            )
    write_card(store, dataset)
    return dataset


def compare_by_shard(store: Store, query: WhatIfQuery, n: int = 5) -> WhatIf:
    """Compare what two filters keep from all scores: the index knows no ratings.

    A chain counts for the tool of each of its calls; of the calls that come, and of those that go, `n` are returned.
    """
    base = _read_base_run(store, query.stored)
    assemblies = {after: _assembly(store, query, base, after=after) for after in (False, True)}
    counts: dict[bool, tuple[Counter[str], Counter[str]]] = {after: (Counter(), Counter()) for after in assemblies}
    moved: dict[bool, list[tuple[float, str, int, ScoredCall, Shard]]] = {False: [], True: []}
    for shard in base.shards:
        kept = {side: judged_calls(base.inputs(one, shard)).kept for side, one in assemblies.items()}
        for side, calls in kept.items():
            examples, number = counts[side]
            examples.update(tool for tool, _ in {(tool, call.doc_id) for call in calls for tool in call.tools})
            number.update(tool for call in calls for tool in call.tools)
            others = {(call.tools, call.doc_id, call.position) for call in kept[not side]}
            fresh = [call for call in calls if (call.tools, call.doc_id, call.position) not in others]
            ranked = [(-call.gain, call.doc_id, call.position, call, shard) for call in fresh]
            moved[side] = sorted([*moved[side], *ranked], key=lambda one: one[:3])[:n]

    tau_f = {False: query.before.tau_f, True: query.after.tau_f}
    changes = tuple(
        Change(*(Yield(tool, tau_f[side][tool], *(count[tool] for count in counts[side])) for side in (False, True)))
        for tool in sorted(query.before.tau_f)
    )
    comes, goes = (tuple(_in_context(store, *one[3:]) for one in moved[side]) for side in (True, False))
    return WhatIf(changes, comes, goes)


def _in_context(store: Store, call: ScoredCall, shard: Shard) -> CallInContext:
    documents = store.read(shard.documents, columns=["doc_id", "text"])
    text: str = documents["text"][documents["doc_id"].to_pylist().index(call.doc_id)].as_py()
    around = text[max(0, call.position - WIDTH) : call.position], text[call.position : call.position + WIDTH]
    links = tuple(Link(one.tool, one.input, one.response) for one in call.preceding_calls)
    return CallInContext(call.doc_id, call.tool, call.position, call.input, call.response, call.gain, *around, links)


def _assembly(store: Store, query: WhatIfQuery, base: _BaseRun, *, after: bool, run_id: str = "") -> AssemblySpec:
    call_filter, config = query.after if after else query.before, query.stored.assembled
    return AssemblySpec(
        run_id=run_id,
        data=store.root,
        config=AssembleConfig(
            tau_f=call_filter.tau_f,
            keep_repeats={tool: tool in call_filter.keep_repeats for tool in call_filter.tau_f},
            top_k=call_filter.top_k,
            tau_s=call_filter.tau_s,
            **{name: config[name] for name in ("max_examples", "seed") if name in config},
        ),
        tool_names=base.record.tool_names,
        rating_filter=query.rating_filter if after else None,
        not_annotated=base.not_annotated,
        mask_pii=base.record.parameters.get("mask_pii", False),
    )


def _read_base_run(store: Store, stored: StoredScores) -> _BaseRun:
    runs = store.runs([stored.run_id]) if stored.run_id else []
    if not runs:
        raise UsageError("the scores belong to no run: run toolformer build to its end first")
    run = runs[0]
    record = BuildRecord(run.parameters)
    commits = [commit for key in run.commits if (commit := store.read_commit(key)) is not None]
    results = {(c.stage, c.tool, c.shard): result_of(c, skipped=True) for c in commits if c.stage != "assemble"}
    configs = {c.shard: c.config for c in commits if c.stage == "assemble"}
    shards = [shard for key, result in results.items() if key[0] == "ingest" for shard in shards_of(result)]
    not_annotated = {s.name: list(configs.get(s.name, {}).get(NOT_ANNOTATED, ())) for s in shards}
    shared = {doc: one for config in configs.values() for doc, one in config.get(SHARED_WORDS, {}).items()}
    annotated = {name: [tool for tool in record.tool_names if tool not in full] for name, full in not_annotated.items()}
    try:
        scored, sampled = (
            {shard: [results[stage, tool, shard] for tool in shard_tools] for shard, shard_tools in annotated.items()}
            for stage in ("score", "sample")
        )
        for (stage, _, shard), result in results.items():
            if stage in SCORES[1:]:
                scored[shard].append(result)
    except KeyError as exc:
        raise UsageError(f"run {run.run_id} has not scored every shard: run the same toolformer build again") from exc
    return _BaseRun(run, record, shards, scored, sampled, not_annotated, shared, list(results.values()))
