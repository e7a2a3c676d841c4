"""What a build would do and why, before it is paid for: shards found done, to do, and what that costs.

The plan goes through the same list of stages as the build, over an overlay of the data, so it makes no fingerprint of
its own. What costs no model is tried out: reading the corpus, a prefilter whose verdicts decide
what follows. No model is loaded and no tool is asked, so what these would answer is not known:

    | state   | meaning                                                                                  |
    |---------|------------------------------------------------------------------------------------------|
    | cached  | its commit stands, and rests on just this                                                |
    | to do   | no commit can be found for it, whatever the stages before it give                        |
    | depends | an earlier stage runs anew: if that gives the same rows as before, it is found done      |
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flows.build_dataset.estimate import Estimate, PastCommits, Total, total_of
from flows.build_dataset.notes import notes_on_build
from flows.build_dataset.parameters import BuildParameters, build_command
from flows.build_dataset.pipeline import assembly_spec_of
from flows.build_dataset.resolve import resolve
from tasks.build_spec import BuildSpec, NotInOverlayError
from tasks.example_limit import ExampleCounter, examples_in_shard, excess_examples, shard_order
from tasks.run_shard import ShardResult, ShardSpec, result_of
from tasks.stage import Inputs, Shard, Stage, run_stage, shards_of
from tasks.stages import BUILD_STAGES
from tasks.stages.assemble import ASSEMBLE
from tasks.stages.ingest import CORPUS, INGEST
from toolformer_core.config import tau_f_for
from warehouse.commits import Commit, changed_parts
from warehouse.files.base import open_files
from warehouse.files.overlay import OverlayFiles

__all__ = ["Estimate", "Plan", "PlannedShard", "StagePlan", "Total", "plan_build"]

_PILOT_DOCUMENTS = 100  # at most, of a small build to estimate from; a tenth of the corpus if that is less
CACHED, TO_DO, DEPENDS = "cached", "to do", "depends"

# What a part of a fingerprint is called to a user; `config` is told field by field.
_PARTS = {
    "answers": "tool",
    "cap": "limit of examples",
    "detector": "language detector",
    "inputs": "data",
    "model": "model",
    "not_annotated": "tools with enough examples",
    "prompt": "prompt",
    "tokenizer": "tokenizer",
    "tools": "tool names",
}
_NEW, _DAMAGED = "new", "damaged"

_Known = dict[tuple[str, str], ShardResult | None]  # (stage, tool) -> what it gave for a shard; None: not known yet


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """One shard of one stage."""

    stage: str
    tool: str  # "" where the stage runs once for all tools
    shard: str
    state: str  # cached | to do | depends
    because: tuple[str, ...] = ()  # why it is not cached; a field of a config as `name: old -> new`
    documents: int = 0


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A stage for one tool, over all shards."""

    stage: str
    tool: str
    shards: int
    cached: int
    to_do: int
    depends: int
    because: dict[str, int]  # reason -> shards that are not cached for it
    estimate: Estimate | None  # of the shards to do; None: no past run to estimate from, or nothing to do
    at_most: Estimate | None  # ... and of those that depend


@dataclass(frozen=True, slots=True)
class Plan:
    """What a build would do."""

    stages: tuple[StagePlan, ...]
    shards: tuple[PlannedShard, ...]
    documents: int
    model: str
    data: str
    pilot: str = ""  # a small build to estimate from, ready to paste, where a stage has no past run
    notes: tuple[str, ...] = ()  # what a person should know besides

    @property
    def nothing_to_do(self) -> bool:
        return all(shard.state == CACHED for shard in self.shards)

    @property
    def total(self) -> Total:
        """What is to do."""
        return total_of((own.stage, own.estimate) for own in self.stages if own.to_do)

    @property
    def total_at_most(self) -> Total:
        """What is to do if all that depends on it is to be done too."""
        return total_of((own.stage, own.at_most) for own in self.stages if own.to_do + own.depends)


def plan_build(parameters: BuildParameters) -> Plan:
    """Return what a build with these parameters would do; nothing is changed.

    Raises:
        UsageError: something asked for is wrong.
    """
    spec = resolve(parameters, run_id="plan")
    with tempfile.TemporaryDirectory(prefix="toolformer-plan-") as folder:
        overlaid = replace(spec, overlay=OverlayFiles(open_files(spec.data), Path(folder)))
        plan = _Planner(overlaid).plan()
    plan = replace(plan, notes=(*plan.notes, *notes_on_build(parameters)))
    if plan.total_at_most.lower_bound and (limit := min(_PILOT_DOCUMENTS, plan.documents // 10)):
        return replace(plan, pilot=build_command(parameters, limit=limit))
    return plan


@dataclass(slots=True)
class _Planner:
    """Goes through the stages as the flow does, one shard after another."""

    spec: BuildSpec
    past: PastCommits = field(init=False)
    planned: list[PlannedShard] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.past = PastCommits(self.spec.store())

    def plan(self) -> Plan:
        spec = self.spec
        source = Inputs(spec, CORPUS)
        source_spec = INGEST.shard_spec(source)
        shards = shards_of(self._note(source_spec) or run_stage(INGEST, source))
        documents = sum(shard.documents.rows for shard in shards)
        self.planned[0] = replace(self.planned[0], documents=documents)
        self._note_partly_filled(source_spec, shards)
        if spec.stop_when_full and documents > spec.assemble.max_examples:
            tools, known = self._until_full(shards)
        else:
            tools = dict.fromkeys((shard.name for shard in shards), spec.tools)
            known = {shard.name: self._annotate(shard, spec.tools) for shard in shards}
        self._assemble(shards, known, tools)
        return Plan(
            tuple(self._stages()), tuple(self.planned), documents, spec.model, spec.data, notes=tuple(self.notes)
        )

    def _until_full(self, shards: list[Shard]) -> tuple[dict[str, tuple[str, ...]], dict[str, _Known]]:
        """Note the stages of each tool as far as stored scores say where it has enough examples, and beyond: all.

        Returns:
            Shard -> the tools that are annotated on it, and what is known of their stages.
        """
        spec = self.spec
        counter = ExampleCounter(spec.tools, spec.assemble.max_examples)
        tools, known, certain = {}, {}, True
        for shard in shard_order(shards, spec.assemble.seed):
            tools[shard.name] = counter.open_tools
            known[shard.name] = self._annotate(shard, counter.open_tools)
            scored = _scored(known[shard.name])
            certain = certain and len(scored) == len(counter.open_tools)
            if certain:
                counter.add(examples_in_shard(assembly_spec_of(spec), scored))
        if counter.open_tools and not certain:
            self.notes.append(
                f"--stop-when-full: {', '.join(counter.open_tools)} may have {spec.assemble.max_examples:,} examples "
                "earlier, which no score tells yet; the figures are for the whole corpus"
            )
        return tools, known

    def _note_partly_filled(self, source: ShardSpec, shards: list[Shard]) -> None:
        """Say which shard is done anew because an earlier, smaller --limit ended within it."""
        full = self.spec.ingest.shard_documents
        for commit in reversed(self.past.of(source)):
            files = result_of(commit, skipped=True).files
            alike = {**commit.config, "limit": None} == {**source.config, "limit": None}
            alike = alike and commit.parts.get("inputs") == source.parts["inputs"]  # the same corpus
            if (
                not alike
                or commit.config["limit"] in (None, source.config["limit"])
                or not 0 < len(files) <= len(shards)
            ):
                continue
            had, now = files[-1].rows, shards[len(files) - 1]
            if had < min(full, now.documents.rows):
                self.notes.append(
                    f"{now.name} held {had:,} documents under --limit {commit.config['limit']:,} and holds "
                    f"{now.documents.rows:,} now: it is done anew. Limits that are multiples of --shard-documents "
                    f"({full:,}) avoid that"
                )
            return

    def _note(self, spec: ShardSpec, documents: int = 0, unknown: Iterable[str] = ()) -> ShardResult | None:
        """Note what is to become of a shard; return it if it is found done.

        Args:
            unknown: the parts of its fingerprint that rest on what is not done yet.
        """
        state, found = TO_DO, None
        if not unknown:
            store = self.spec.store()
            found = store.read_commit(spec.key)
            damaged = found is not None and bool(store.damage(found))
            if damaged:
                store.files.delete(f"commits/{spec.key.id}.json")  # of the overlay: the data's own stays
            found = None if damaged else found
            state = CACHED if found is not None else TO_DO
        elif self._may_be_found(spec, unknown):
            state = DEPENDS
        because = () if state == CACHED else self._because(spec, tuple(unknown))
        self.planned.append(PlannedShard(spec.stage, spec.tool, spec.shard, state, because, documents))
        return None if found is None else result_of(found, skipped=True)

    def _may_be_found(self, spec: ShardSpec, unknown: Iterable[str]) -> bool:
        """Say whether a commit fits all that is known of the spec, the files among its inputs that are known too."""
        known = {file.digest for file in spec.inputs}
        fitting = (c for c in self.past.of(spec) if not self._changed(c, spec, unknown))
        return any(known <= set(commit.inputs) for commit in fitting)

    def _changed(self, commit: Commit, spec: ShardSpec, unknown: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in changed_parts(commit.parts, spec.all_parts()) if name not in set(unknown))

    def _because(self, spec: ShardSpec, unknown: tuple[str, ...]) -> tuple[str, ...]:
        past = self.past.of(spec)
        if not past:
            return (_NEW,)
        last = past[-1]
        reasons: list[str] = []
        for name in self._changed(last, spec, unknown):
            if name == "config":
                reasons += _fields(last.config, spec.config)
            elif name == "code":
                reasons.append(f"code: {last.parts.get('code', '?')} -> {spec.all_parts()['code']}")
            else:
                reasons.append(_PARTS.get(name, name))
        reasons += ["data"] if unknown and not reasons else []
        return tuple(reasons) or (_DAMAGED,)

    def _annotate(self, shard: Shard, tools: Iterable[str]) -> _Known:
        """Note the stages in front of `assemble` for a shard; return what is known of their results."""
        known: _Known = {}
        for stage in BUILD_STAGES[: BUILD_STAGES.index(ASSEMBLE)]:
            if stage.per != "source":
                for tool in tools if stage.per == "tool" else ("",):
                    known[stage.name, tool] = self._note_stage(stage, tool, shard, known)
        return known

    def _note_stage(self, stage: Stage[Any], tool: str, shard: Shard, known: _Known) -> ShardResult | None:
        before = {
            key: result for key, result in known.items() if key[0] in stage.reads and tool in ("", key[1] or tool)
        }
        files = {
            name: tuple(f for key, result in before.items() if key[0] == name and result for f in result.files)
            for name in stage.reads
        }
        inputs = Inputs(self.spec, shard.name, tool, {**files, INGEST.name: (shard.documents,)})
        unknown = ("inputs",) if None in before.values() else ()
        result = self._note(stage.shard_spec(inputs), shard.documents.rows, unknown)
        if result is None and not unknown and self._is_free(stage, inputs, before):
            try:
                return run_stage(stage, inputs)
            except NotInOverlayError:
                return None
        return result

    def _is_free(self, stage: Stage[Any], inputs: Inputs[BuildSpec], before: _Known) -> bool:
        """Return whether a stage is tried out: it asks nobody and a commit may rest on it, or it has nothing to ask."""
        if stage.needs:
            last = [result for key, result in before.items() if key[0] == stage.reads[-1]]
            return all(result is not None and result.counts[-1].kept == 0 for result in last)
        later = [own for own in BUILD_STAGES if stage.name in own.reads and own.per == stage.per]
        return any(self._may_be_found(own.shard_spec(replace(inputs, files={})), ("inputs",)) for own in later)

    def _assemble(self, shards: list[Shard], known: Mapping[str, _Known], tools: Mapping[str, tuple[str, ...]]) -> None:
        spec = self.spec
        scored = {name: _scored(own) for name, own in known.items()}
        whole = all(len(own) == len(tools[name]) for name, own in scored.items())
        excess: Mapping[str, Any] = excess_examples(assembly_spec_of(spec), scored) if whole else {}
        below = sum(shard.documents.rows for shard in shards) <= spec.assemble.max_examples  # whatever the model draws
        limit = () if whole or below else ("cap",)
        full = {shard.name: [tool for tool in spec.tools if tool not in tools[shard.name]] for shard in shards}
        assembly = assembly_spec_of(spec, excess=excess, not_annotated=full)
        for shard in shards:
            own = scored[shard.name]
            unknown = (*(() if len(own) == len(tools[shard.name]) else ("inputs",)), *limit)
            if spec.stop_when_full and not whole:
                unknown = (*unknown, "not_annotated")
            files = {INGEST.name: (shard.documents,), "score": tuple(f for result in own for f in result.files)}
            assembled = self._note(
                ASSEMBLE.shard_spec(Inputs(assembly, shard.name, files=files)), shard.documents.rows, unknown
            )
            results = {**known[shard.name], (ASSEMBLE.name, ""): assembled}
            for stage in BUILD_STAGES[BUILD_STAGES.index(ASSEMBLE) + 1 :]:
                results[stage.name, ""] = self._note_stage(stage, "", shard, results)

    def _stages(self) -> Iterable[StagePlan]:
        groups: dict[tuple[str, str], list[PlannedShard]] = {}
        for stage in BUILD_STAGES:
            for planned in self.planned:
                if planned.stage == stage.name:
                    groups.setdefault((stage.name, planned.tool), []).append(planned)
        model = self.spec.weights_digest
        of_draws = {
            stage.name for stage in BUILD_STAGES if stage.per == "tool" and "sample" in (stage.name, *stage.reads)
        }
        for (name, tool), own in groups.items():
            states = Counter(planned.state for planned in own)
            to_do = sum(planned.documents for planned in own if planned.state == TO_DO)
            depends = sum(planned.documents for planned in own if planned.state == DEPENDS)
            config = self.spec.sample[tool] if name in of_draws else None
            draws = config.top_k * config.draws if config is not None else 0
            yield StagePlan(
                stage=name,
                tool=tool,
                shards=len(own),
                cached=states[CACHED],
                to_do=states[TO_DO],
                depends=states[DEPENDS],
                because=dict(Counter(reason for planned in own for reason in planned.because).most_common()),
                estimate=self.past.estimate(name, tool, to_do, model, draws) if to_do else None,
                at_most=self.past.estimate(name, tool, to_do + depends, model, draws) if to_do + depends else None,
            )


def _scored(known: _Known) -> list[ShardResult]:
    return [result for (stage, _), result in known.items() if stage == "score" and result is not None]


def _fields(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the fields that differ, as `name: old -> new`; those of a table by their own names."""
    out = []
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if prefix == "tau_f.":  # what is not told is the paper's
            was, now = tau_f_for(name, old), tau_f_for(name, new)
        if isinstance(was, Mapping) or isinstance(now, Mapping):
            out += _fields(was or {}, now or {}, f"{prefix}{name}.")
        elif was != now:
            shown = ["not set" if value is None else str(value) for value in (was, now)]
            out.append(f"{prefix}{name}: {shown[0]} -> {shown[1]}")
    return out
