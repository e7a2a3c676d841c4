"""The plan of a build, by its own stages over an overlay of the data: what is done, what is to do, why, at what cost.

A shard is `cached` if a commit with its fingerprint exists, `to do` if none fits, whatever the stages before it give,
and `depends` if an earlier stage runs anew: if that gives the same rows as last time, it is found done.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flows.build_dataset.estimate import CACHED, DEPENDS, TO_DO, PastCommits, Plan, PlannedShard, StagePlan
from flows.build_dataset.notes import notes_on_build, notes_on_chains
from flows.build_dataset.parameters import BuildParameters, build_command
from flows.build_dataset.pipeline import assembly_spec_of
from flows.build_dataset.remote_model import scan_notes
from flows.build_dataset.resolve import resolve
from tasks.shards.retry import last_inputs, transient_failures
from tasks.shards.run_shard import ShardResult, ShardSpec, result_of
from tasks.shards.stage import Inputs, Shard, Stage, files_by_stage, run_stage, shards_of
from tasks.specs.build_spec import BuildSpec, NotInOverlayError
from tasks.specs.example_limit import ExampleCounter, examples_in_shard, shard_order, with_limits
from tasks.specs.thresholds import decide_thresholds, is_decided_late
from tasks.stages import build_stages
from tasks.stages.assemble import ASSEMBLE, SCORES
from tasks.stages.ingest import CORPUS, INGEST, with_latest_date, with_shared_words
from toolformer_core.config import keeps_repeats, tau_f_for
from warehouse.commits import Commit, changed_parts
from warehouse.files.overlay import OverlayFiles
from warehouse.files.remote import open_files

_PILOT_DOCUMENTS = 100  # documents of the pilot run that costs are estimated from; a tenth of the corpus if less

# Part of a fingerprint -> its name in reasons, if that is another; of the part `config` each changed field is a reason.
_PART_NAMES = {
    "answers": "tool",
    "benchmarks": "words of benchmarks",
    "cap": "limit of examples",
    "detector": "language detector",
    "follows": "failures retried",
    "inputs": "data",
    "logprobs": "tokens that the server tells",
    "not_annotated": "tools with enough examples",
    "same": "limit of equal calls",
    "starts": "starts of chains",
    "tools": "tool names",
}

_Results = dict[tuple[str, str], ShardResult | None]  # (stage, tool) -> its result for one shard; None: not known yet


def plan_build(parameters: BuildParameters) -> Plan:
    """Return what a build with these parameters would do; nothing is changed."""
    spec = resolve(parameters)
    with tempfile.TemporaryDirectory(prefix="toolformer-plan-") as folder:
        spec = replace(spec, overlay=OverlayFiles(open_files(spec.data), Path(folder)))
        plan = _Planner(spec, PastCommits(spec.store()), build_stages(spec)).plan()
    plan = replace(plan, notes=(*plan.notes, *scan_notes(spec), *notes_on_build(parameters)))
    if plan.total_at_most.lower_bound and (limit := min(_PILOT_DOCUMENTS, plan.documents // 10)):
        return replace(plan, pilot=build_command(parameters, limit=limit))
    return plan


@dataclass(slots=True)
class _Planner:
    """Goes through the stages as the flow does, shard by shard, and records the state of each."""

    spec: BuildSpec
    past: PastCommits
    stages: list[Stage[Any]]
    planned: list[PlannedShard] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    transient: Counter[tuple[str, bool]] = field(default_factory=Counter)  # tool, retried -> failures

    def plan(self) -> Plan:
        source = Inputs(self.spec, CORPUS)
        ingested = self._add_shard(INGEST.shard_spec(source)) or run_stage(INGEST, source)
        shards = shards_of(ingested)
        self.spec = spec = with_shared_words(with_latest_date(self.spec, ingested))
        documents = sum(shard.documents.rows for shard in shards)
        self.planned[0] = replace(self.planned[0], documents=documents)
        if spec.stop_when_full and documents > spec.assemble.max_examples:
            tools, results = self._add_annotation_until_full(shards)
        else:
            tools = dict.fromkeys((shard.name for shard in shards), spec.tools)
            results = {shard.name: self._add_annotation(shard, spec.tools) for shard in shards}
        self._add_assembly(shards, results, tools)
        notes = (*self.notes, *self._transient_notes(), *notes_on_chains(spec, documents))
        return Plan(tuple(self._stage_plans()), tuple(self.planned), documents, spec.model, spec.data, notes=notes)

    def _add_annotation_until_full(self, shards: list[Shard]) -> tuple[dict[str, tuple[str, ...]], dict[str, _Results]]:
        """Plan each shard for the tools that do not have enough examples yet; return these and results, by shard."""
        spec = self.spec
        counter = ExampleCounter(spec.tools, spec.assemble.max_examples)
        tools, results, certain = {}, {}, True  # certain: all shards so far have stored scores; then tools stay open
        for shard in shard_order(shards, spec.assemble.seed):
            tools[shard.name] = counter.open_tools
            results[shard.name] = self._add_annotation(shard, counter.open_tools)
            scored = _score_results(results[shard.name])
            certain = certain and len(scored) == len(counter.open_tools)
            if certain:
                counter.add(examples_in_shard(assembly_spec_of(spec), scored))
        if counter.open_tools and not certain:
            self.notes.append(
                f"--stop-when-full: {', '.join(counter.open_tools)} may have {spec.assemble.max_examples:,} examples "
                "earlier, which no score tells yet; the figures are for the whole corpus"
            )
        return tools, results

    def _add_shard(self, spec: ShardSpec, documents: int = 0, unknown: Iterable[str] = ()) -> ShardResult | None:
        """Add a shard to the plan; return its result if it is done. Parts of the fingerprint may be `unknown` yet."""
        store = self.spec.store()
        commit = None if unknown else store.read_commit(spec.key)
        if commit is not None and store.damage(commit):
            store.files.delete(f"commits/{spec.key.id}.json")  # in the overlay; that of the data folder stays
            commit = None
        if commit is not None:
            self.planned.append(PlannedShard(spec.stage, spec.tool, spec.shard, CACHED, (), documents))
            return result_of(commit, skipped=True)
        state = DEPENDS if unknown and self._may_be_done(spec, unknown) else TO_DO
        reasons = self._reasons(spec, tuple(unknown))
        self.planned.append(PlannedShard(spec.stage, spec.tool, spec.shard, state, reasons, documents))
        return None

    def _may_be_done(self, spec: ShardSpec, unknown: Iterable[str]) -> bool:
        digests = {file.digest for file in spec.inputs}
        fitting = (c for c in self.past.commits_of(spec) if not self._changed_parts(c, spec, unknown))
        return any(digests <= set(commit.inputs) for commit in fitting)

    def _changed_parts(self, commit: Commit, spec: ShardSpec, unknown: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in changed_parts(commit.parts, spec.all_parts()) if name not in set(unknown))

    def _reasons(self, spec: ShardSpec, unknown: tuple[str, ...]) -> tuple[str, ...]:
        past = self.past.commits_of(spec)
        if not past:
            return ("new",)
        last, reasons = past[-1], list[str]()
        for name in self._changed_parts(last, spec, unknown):
            if name == "config":
                reasons += _changed_fields(last.config, spec.config)
            elif name == "code":
                reasons.append(f"code: {last.parts.get('code', '?')} -> {spec.all_parts()['code']}")
            else:
                reasons.append(_PART_NAMES.get(name, name))
        return tuple(reasons) or ("data" if unknown else "damaged",)

    def _add_annotation(self, shard: Shard, tools: Iterable[str]) -> _Results:
        results: _Results = {}
        for stage in self.stages[: self.stages.index(ASSEMBLE)]:
            if stage.per != "source":
                for tool in tools if stage.per == "tool" else ("",):
                    results[stage.name, tool] = self._add_stage(stage, tool, shard, results)
        return results

    def _add_stage(self, stage: Stage[Any], tool: str, shard: Shard, results: _Results) -> ShardResult | None:
        """Plan a stage for one shard; run it in the overlay if that costs nothing. Return its result if it is known."""
        read = {key: result for key, result in results.items() if stage.is_read_for(tool, *key)}
        files = {
            name: tuple(f for key, result in read.items() if key[0] == name and result for f in result.files)
            for name in stage.reads
        }
        inputs = Inputs(self.spec, shard.name, tool, {**files, INGEST.name: (shard.documents,)})
        unknown = ("inputs",) if None in read.values() else ()
        inputs = inputs if unknown else last_inputs(stage, inputs)
        result = self._add_shard(stage.shard_spec(inputs), shard.documents.rows, unknown)
        self._count_transient(stage, inputs, result)
        if result is None and not unknown and self._is_run_in_overlay(stage, inputs, read):
            try:
                return run_stage(stage, inputs)
            except NotInOverlayError:
                return None
        return result

    def _count_transient(self, stage: Stage[Any], inputs: Inputs[BuildSpec], result: ShardResult | None) -> None:
        """Count the failures that need not come again: those in the shard's commit, or in the one that it follows."""
        commit = inputs.follows
        if stage.follow is not None and result is not None:
            commit = self.spec.store().read_commit(result.key)
        if commit is not None and (failures := transient_failures(commit)):
            self.transient[inputs.tool, result is None] += failures

    def _transient_notes(self) -> Iterable[str]:
        for (tool, again), failures in sorted(self.transient.items()):
            if again:
                yield f"--answers retry: {failures:,} calls of {tool} that failed for passing reasons are retried"
            elif not self.spec.retry_failures_before:
                yield f"{failures:,} questions to {tool} failed for passing reasons: --answers retry asks them again"

    def _is_run_in_overlay(self, stage: Stage[Any], inputs: Inputs[BuildSpec], read: _Results) -> bool:
        """Return whether a stage is run while planning: if it costs no model or tool, and a later one may be done."""
        if stage.needs:  # run only without rows to work on
            last = [name for name in stage.reads if any(key[0] == name for key in read)][-1]
            results = [result for key, result in read.items() if key[0] == last]
            return all(result is not None and result.counts[-1].kept == 0 for result in results)
        later = [other for other in self.stages if stage.name in other.reads and other.per == stage.per]
        return any(self._may_be_done(other.shard_spec(replace(inputs, files={})), ("inputs",)) for other in later)

    def _add_assembly(
        self, shards: list[Shard], results: Mapping[str, _Results], tools: Mapping[str, tuple[str, ...]]
    ) -> None:
        spec = self.spec
        scored = {shard: _score_results(shard_results) for shard, shard_results in results.items()}
        expected = {shard: spec.chains.depth * len(of_shard) for shard, of_shard in tools.items()}
        all_scored = all(len(shard_results) == expected[shard] for shard, shard_results in scored.items())
        assembly = assembly_spec_of(spec)
        if all_scored and is_decided_late(spec):
            assembly = replace(assembly, config=decide_thresholds(spec, scored).config)
        # With so few documents no tool can exceed the limit on examples, whatever the model draws.
        below_limit = sum(shard.documents.rows for shard in shards) <= spec.assemble.max_examples
        depends_on_all = {
            "cap": not below_limit,
            "same": spec.max_same_call is not None,
            "config": is_decided_late(spec),
            "not_annotated": spec.stop_when_full,
        }
        of_all = [part for part, depends in depends_on_all.items() if depends and not all_scored]
        not_annotated = {shard.name: [tool for tool in spec.tools if tool not in tools[shard.name]] for shard in shards}
        assembly = replace(with_limits(assembly, scored) if all_scored else assembly, not_annotated=not_annotated)
        for shard in shards:
            scores = scored[shard.name]
            unknown = [*([] if len(scores) == expected[shard.name] else ["inputs", "benchmarks"]), *of_all]
            files = {INGEST.name: (shard.documents,), **files_by_stage(scores)}
            assembled = self._add_shard(
                ASSEMBLE.shard_spec(Inputs(assembly, shard.name, files=files)), shard.documents.rows, unknown
            )
            shard_results = {**results[shard.name], (ASSEMBLE.name, ""): assembled}
            for stage in self.stages[self.stages.index(ASSEMBLE) + 1 :]:
                shard_results[stage.name, ""] = self._add_stage(stage, "", shard, shard_results)

    def _stage_plans(self) -> Iterable[StagePlan]:
        groups: dict[tuple[str, str], list[PlannedShard]] = {}
        order = [stage.name for stage in self.stages]
        for planned in sorted(self.planned, key=lambda one: order.index(one.stage)):
            groups.setdefault((planned.stage, planned.tool), []).append(planned)
        draw_stages = {  # whose cost grows with the number of samples
            stage.name for stage in self.stages if stage.per == "tool" and "sample" in (stage.name, *stage.reads)
        }
        model = self.spec.weights_digest
        for (name, tool), group in groups.items():
            states, documents = Counter(planned.state for planned in group), Counter[str]()
            for planned in group:
                documents[planned.state] += planned.documents
            to_do, at_most = documents[TO_DO], documents[TO_DO] + documents[DEPENDS]
            samples = self.spec.sample[tool].top_k * self.spec.sample[tool].samples if name in draw_stages else 0
            yield StagePlan(
                stage=name,
                tool=tool,
                shards=len(group),
                cached=states[CACHED],
                to_do=states[TO_DO],
                depends=states[DEPENDS],
                because=dict(Counter(reason for planned in group for reason in planned.because).most_common()),
                estimate=self.past.estimate(name, tool, to_do, model, samples) if to_do else None,
                at_most=self.past.estimate(name, tool, at_most, model, samples) if at_most else None,
            )


def _score_results(results: _Results) -> list[ShardResult]:
    return [result for (stage, _), result in results.items() if stage in SCORES and result is not None]


def _changed_fields(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    changes = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if prefix == "tau_f.":  # a threshold that is not set is the paper's
            before, after = tau_f_for(name, old), tau_f_for(name, new)
        elif prefix == "keep_repeats.":  # ... is the tool's
            before, after = keeps_repeats(name, old), keeps_repeats(name, new)
        if isinstance(before, Mapping) or isinstance(after, Mapping):
            changes += _changed_fields(before or {}, after or {}, f"{prefix}{name}.")
        elif before != after:
            texts = ["not set" if value is None else str(value) for value in (before, after)]
            changes.append(f"{prefix}{name}: {texts[0]} -> {texts[1]}")
    return changes
