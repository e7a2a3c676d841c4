"""What a build would do and why, before it is paid for: shards found done, to do, and what that costs.

The plan asks the same code as the build (`tasks.works`, and the stages themselves over a rehearsal of the data), so it
makes no fingerprint of its own. What costs no model is tried out: reading the corpus, a prefilter whose verdicts decide
what follows. No model is loaded and no tool is asked, so what these would answer is not known:

    | state   | meaning                                                                                  |
    |---------|------------------------------------------------------------------------------------------|
    | cached  | its commit stands, and rests on just this                                                |
    | to do   | no commit can be found for it, whatever the stages before it give                        |
    | depends | an earlier stage runs anew: if that gives the same rows as before, it is found done      |

Estimates are sums over past commits of the same stage and tool, in proportion to the documents of a shard. Where those
were sampled with other k and m (positions per document, draws per position), they are taken in proportion to k * m too,
the draws asked for; a document is scanned once whatever these are, so small shares of large ones come out a little low.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flows.notes import notes_on_build
from flows.parameters import BuildParameters, build_command, resolve
from tasks.assembling import over_limit
from tasks.filling import Filling, examples_of, shard_order
from tasks.shards import Done, Work, done_of
from tasks.spec import BuildSpec, NotInRehearsalError
from tasks.stages import LM_TOKENS, execute_shard, ingest_corpus, prefilter_shard, sample_shard, score_shard
from tasks.works import (
    Assembly,
    Shard,
    assemble_work,
    execute_work,
    ingest_work,
    prefilter_work,
    sample_work,
    score_work,
    shards_of,
)
from toolformer_core.config import tau_f_for
from warehouse.commits import Commit, CommitKey, changed_parts
from warehouse.files import open_files
from warehouse.rehearsal import Rehearsal
from warehouse.schema import WHAT_IF
from warehouse.store import Store

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
_Known = tuple[Done | None, Done | None]  # a tool's draws and losses of a shard, None where not known
_UNKNOWN = Done(CommitKey("", "", "", ""), (), (), 0.0, False)  # stands for what an earlier stage will give


@dataclass(frozen=True, slots=True)
class Estimate:
    """What work is expected to take."""

    seconds: float  # of work, not of waiting: several shards are worked on at once
    lm_tokens: float  # passed through the model
    bytes: float  # of data written
    shards: int  # past commits it rests on
    same_model: bool  # those were made with the model that is asked for
    same_draws: bool = True  # ... and with k and m whose product is the one asked for; else they are scaled


@dataclass(frozen=True, slots=True)
class Total:
    """What all stages together are expected to take, as far as it is known."""

    seconds: float
    lm_tokens: float
    bytes: float
    lower_bound: bool  # a stage has no past run to estimate from, and is counted as nothing
    lm_tokens_unknown: bool  # that holds for every stage with work for the model


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
        return _total((own.stage, own.estimate) for own in self.stages if own.to_do)

    @property
    def total_at_most(self) -> Total:
        """What is to do if all that depends on it is to be done too."""
        return _total((own.stage, own.at_most) for own in self.stages if own.to_do + own.depends)


def _total(estimates: Iterable[tuple[str, Estimate | None]]) -> Total:
    listed = list(estimates)
    known = [one for _, one in listed if one is not None]
    of_model = [one for stage, one in listed if stage in ("sample", "score")]
    return Total(
        seconds=sum(one.seconds for one in known),
        lm_tokens=sum(one.lm_tokens for one in known),
        bytes=sum(one.bytes for one in known),
        lower_bound=len(known) < len(listed),
        lm_tokens_unknown=bool(of_model) and not any(of_model),
    )


def plan_build(parameters: BuildParameters) -> Plan:
    """Return what a build with these parameters would do; nothing is changed.

    Raises:
        UsageError: something asked for is wrong.
    """
    spec = resolve(parameters, run_id="plan")
    with tempfile.TemporaryDirectory(prefix="toolformer-plan-") as folder:
        rehearsed = replace(spec, rehearsal=Rehearsal(open_files(spec.data), Path(folder)))
        plan = _Planner(rehearsed).plan()
    plan = replace(plan, notes=(*plan.notes, *notes_on_build(parameters)))
    if plan.total_at_most.lower_bound and (limit := min(_PILOT_DOCUMENTS, plan.documents // 10)):
        return replace(plan, pilot=build_command(parameters, limit=limit))
    return plan


class _Past:
    """The commits of earlier builds."""

    def __init__(self, store: Store) -> None:
        self._of: dict[tuple[str, str, str], list[Commit]] = {}
        self._rows: dict[str, int] = {}  # digest of a file that holds a row per document -> rows
        self._draws: dict[str, int] = {}  # digest of a file of draws -> draws asked for per document, k * m
        completed = [r for r in store.runs() if r.state == "completed" and r.commits and r.flow != WHAT_IF]
        last = {key for run in completed[-1:] for key in run.commits}
        for commit in sorted(store.commits(), key=lambda c: (c.key in last, c.created)):
            self._of.setdefault((commit.stage, commit.tool, commit.shard), []).append(commit)
            if commit.stage in ("ingest", "prefilter"):
                self._rows |= {file.digest: file.rows for file in commit.files if file.path.startswith("shards/")}
            if commit.stage == "sample":
                self._draws |= {file.digest: _draws_asked(commit.config) for file in commit.files}

    def of(self, work: Work) -> list[Commit]:
        """Return the commits of a shard, those of the last completed run last."""
        return self._of.get((work.stage, work.tool, work.shard), [])

    def estimate(self, stage: str, tool: str, documents: int, model: str, draws: int = 0) -> Estimate | None:
        """Return what so many documents would take; by commits of the same model, k and m if there are any.

        Args:
            draws: k * m that are asked for; 0 for a stage that has nothing to do with draws.
        """
        own = [c for key, found in self._of.items() if key[:2] == (stage, tool) for c in found]
        alike = [c for c in own if c.parts.get("model", model) == model]
        among = alike or own
        chosen = [c for c in among if self._share_of_draws(c, draws) == 1.0] or among
        seen = sum(map(self._documents, chosen))
        if not seen:
            return None
        share = documents / seen
        scaled = [(c, share * self._share_of_draws(c, draws)) for c in chosen]
        return Estimate(
            seconds=sum(own_share * c.seconds for c, own_share in scaled),
            lm_tokens=sum(own_share * c.counters.get(LM_TOKENS, 0) for c, own_share in scaled),
            bytes=sum(own_share * file.bytes for c, own_share in scaled for file in c.files),
            shards=len(chosen),
            same_model=bool(alike),
            same_draws=all(own_share == share for _, own_share in scaled),
        )

    def _share_of_draws(self, commit: Commit, draws: int) -> float:
        """Return how many times as many draws are asked for as the commit's were; 1 where that is not known."""
        if commit.stage == "sample":
            before = _draws_asked(commit.config)
        else:
            before = next((self._draws[one] for one in commit.inputs if one in self._draws), 0)
        return draws / before if draws and before else 1.0

    def _documents(self, commit: Commit) -> int:
        if commit.stage == "ingest":
            return sum(file.rows for file in commit.files if file.path.startswith("shards/"))
        return max((self._rows.get(one, 0) for one in commit.inputs), default=0)


@dataclass(slots=True)
class _Planner:
    """Goes through the stages as the flow does, one shard after another."""

    spec: BuildSpec
    store: Store = field(init=False)
    past: _Past = field(init=False)
    planned: list[PlannedShard] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = self.spec.store()
        self.past = _Past(self.store)

    def plan(self) -> Plan:
        spec = self.spec
        work = ingest_work(spec)
        ingested = self._note(work) or ingest_corpus.fn(spec)
        shards = shards_of(ingested)
        documents = sum(shard.documents.rows for shard in shards)
        self.planned[0] = replace(self.planned[0], documents=documents)
        self._note_partly_filled(work, shards)
        tools = dict.fromkeys((shard.name for shard in shards), spec.tools)
        if spec.stop_when_full and documents > spec.assemble.max_examples:
            tools, scored = self._until_full(shards)
        else:
            scored = {shard.name: [self._chain(tool, shard) for tool in spec.tools] for shard in shards}
        self._assemble(shards, scored, tools)
        return Plan(
            tuple(self._stages()), tuple(self.planned), documents, spec.model, spec.data, notes=tuple(self.notes)
        )

    def _until_full(self, shards: list[Shard]) -> tuple[dict[str, tuple[str, ...]], dict[str, list[_Known]]]:
        """Note the stages of each tool as far as stored scores say where it has enough examples, and beyond: all.

        Returns:
            Shard -> the tools that are annotated on it, and what is known of their draws and losses.
        """
        spec = self.spec
        assembly = Assembly(self.store, spec.run_id, spec.assemble, spec.tool_names)
        filling = Filling(spec.tools, spec.assemble.max_examples)
        tools, chains, certain = {}, {}, True
        for shard in shard_order(shards, spec.assemble.seed):
            tools[shard.name] = filling.open
            chains[shard.name] = [self._chain(tool, shard) for tool in filling.open]
            scored = [done for _, done in chains[shard.name] if done is not None]
            certain = certain and len(scored) == len(filling.open)
            if certain:
                filling.add(examples_of(assembly, scored))
        if filling.open and not certain:
            self.notes.append(
                f"--stop-when-full: {', '.join(filling.open)} may have {spec.assemble.max_examples:,} examples "
                "earlier, which no score tells yet; the figures are for the whole corpus"
            )
        return tools, chains

    def _note_partly_filled(self, work: Work, shards: list[Shard]) -> None:
        """Say which shard is done anew because an earlier, smaller --limit ended within it."""
        full = self.spec.ingest.shard_documents
        for commit in reversed(self.past.of(work)):
            files = done_of(commit, skipped=True).files
            alike = {**commit.config, "limit": None} == {**work.config, "limit": None}
            alike = alike and commit.parts.get("inputs") == work.parts["inputs"]  # the same corpus
            if not alike or commit.config["limit"] in (None, work.config["limit"]) or not 0 < len(files) <= len(shards):
                continue
            had, now = files[-1].rows, shards[len(files) - 1]
            if had < min(full, now.documents.rows):
                self.notes.append(
                    f"{now.name} held {had:,} documents under --limit {commit.config['limit']:,} and holds "
                    f"{now.documents.rows:,} now: it is done anew. Limits that are multiples of --shard-documents "
                    f"({full:,}) avoid that"
                )
            return

    def _note(self, work: Work, documents: int = 0, unknown: Iterable[str] = ()) -> Done | None:
        """Note what is to become of a shard; return it if it is found done.

        Args:
            unknown: the parts of its fingerprint that rest on what is not done yet.
        """
        state, found = TO_DO, None
        if not unknown:
            found = self.store.recorded(work.key)
            damaged = found is not None and bool(self.store.damage(found))
            if damaged:
                self.store.files.delete(f"commits/{work.key.id}.json")  # of the rehearsal: the data's own stays
            found = None if damaged else found
            state = CACHED if found is not None else TO_DO
        elif self._may_be_found(work, unknown):
            state = DEPENDS
        because = () if state == CACHED else self._because(work, tuple(unknown))
        self.planned.append(PlannedShard(work.stage, work.tool, work.shard, state, because, documents))
        return None if found is None else done_of(found, skipped=True)

    def _may_be_found(self, work: Work, unknown: Iterable[str]) -> bool:
        """Say whether a commit fits all that is known of the work, the files among its inputs that are known too."""
        known = {file.digest for file in work.inputs}
        fitting = (c for c in self.past.of(work) if not self._changed(c, work, unknown))
        return any(known <= set(commit.inputs) for commit in fitting)

    def _changed(self, commit: Commit, work: Work, unknown: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in changed_parts(commit.parts, work.all_parts()) if name not in set(unknown))

    def _because(self, work: Work, unknown: tuple[str, ...]) -> tuple[str, ...]:
        past = self.past.of(work)
        if not past:
            return (_NEW,)
        last = past[-1]
        reasons: list[str] = []
        for name in self._changed(last, work, unknown):
            if name == "config":
                reasons += _fields(last.config, work.config)
            elif name == "code":
                reasons.append(f"code: {last.parts.get('code', '?')} -> {work.all_parts()['code']}")
            else:
                reasons.append(_PARTS.get(name, name))
        reasons += ["data"] if unknown and not reasons else []
        return tuple(reasons) or (_DAMAGED,)

    def _chain(self, tool: str, shard: Shard) -> _Known:
        """Note the stages of one tool and shard; return the draws and the losses, None where not known."""
        spec, n = self.spec, shard.documents.rows
        prefiltered = self._note(prefilter_work(spec, tool, shard), n)
        next_ = (sample_work(spec, tool, shard, _UNKNOWN), execute_work(spec, tool, shard, _UNKNOWN, _UNKNOWN))
        if prefiltered is None and any(self._may_be_found(work, ("inputs",)) for work in next_):
            prefiltered = self._tried(lambda: prefilter_shard(spec, tool, shard))
        before = prefiltered or _UNKNOWN
        sampled = self._note(sample_work(spec, tool, shard, before), n, _inputs(prefiltered))
        if sampled is None and prefiltered is not None and _kept(prefiltered, "documents") == 0:
            sampled = self._tried(lambda: sample_shard(spec, tool, shard, before))
        drawn = sampled or _UNKNOWN
        executed = self._note(execute_work(spec, tool, shard, before, drawn), n, _inputs(prefiltered, sampled))
        if executed is None and sampled is not None and _kept(sampled, "draws") == 0:
            executed = self._tried(lambda: execute_shard(spec, tool, shard, before, drawn))
        answered = executed or _UNKNOWN
        work = score_work(spec, tool, shard, before, drawn, answered)
        scored = self._note(work, n, _inputs(prefiltered, sampled, executed))
        if scored is None and executed is not None and _kept(executed, "calls") == 0:
            scored = self._tried(lambda: score_shard(spec, tool, shard, before, drawn, answered))
        return sampled, scored

    def _tried(self, work: Callable[[], Done]) -> Done | None:
        """Do a stage's work in the rehearsal, unless it comes to a model or tool."""
        try:
            return work()
        except NotInRehearsalError:
            return None

    def _assemble(
        self, shards: list[Shard], chains: Mapping[str, list[_Known]], tools: Mapping[str, tuple[str, ...]]
    ) -> None:
        spec = self.spec
        assembly = Assembly(self.store, spec.run_id, spec.assemble, spec.tool_names)
        known = {name: [scored for _, scored in own if scored is not None] for name, own in chains.items()}
        whole = all(len(own) == len(tools[name]) for name, own in known.items())
        over: Mapping[str, Any] = over_limit(assembly, known) if whole else {}
        below = sum(shard.documents.rows for shard in shards) <= spec.assemble.max_examples  # whatever the model draws
        limit = () if whole or below else ("cap",)
        for shard in shards:
            own = known[shard.name]
            full = [tool for tool in spec.tools if tool not in tools[shard.name]]
            unknown = (*(() if len(own) == len(tools[shard.name]) else ("inputs",)), *limit)
            if spec.stop_when_full and not whole:
                unknown = (*unknown, "not_annotated")
            work = assemble_work(assembly, shard, own, over.get(shard.name, []), not_annotated=full)
            self._note(work, shard.documents.rows, unknown)

    def _stages(self) -> Iterable[StagePlan]:
        groups: dict[tuple[str, str], list[PlannedShard]] = {}
        for stage in ("ingest", "prefilter", "sample", "execute", "score", "assemble"):
            for planned in self.planned:
                if planned.stage == stage:
                    groups.setdefault((stage, planned.tool), []).append(planned)
        model = self.spec.weights_digest
        for (stage, tool), own in groups.items():
            states = Counter(planned.state for planned in own)
            to_do = sum(planned.documents for planned in own if planned.state == TO_DO)
            depends = sum(planned.documents for planned in own if planned.state == DEPENDS)
            sampled = self.spec.sample[tool] if stage in ("sample", "execute", "score") else None
            draws = sampled.top_k * sampled.draws if sampled is not None else 0
            yield StagePlan(
                stage=stage,
                tool=tool,
                shards=len(own),
                cached=states[CACHED],
                to_do=states[TO_DO],
                depends=states[DEPENDS],
                because=dict(Counter(reason for planned in own for reason in planned.because).most_common()),
                estimate=self.past.estimate(stage, tool, to_do, model, draws) if to_do else None,
                at_most=self.past.estimate(stage, tool, to_do + depends, model, draws) if to_do + depends else None,
            )


def _draws_asked(config: Mapping[str, Any]) -> int:
    """Return k * m of a config of `sample`; 0 where it does not say."""
    return int(config.get("top_k", 0)) * int(config.get("draws", 0))


def _inputs(*before: Done | None) -> tuple[str, ...]:
    return ("inputs",) if None in before else ()


def _kept(done: Done, unit: str) -> int:
    return sum(balance.kept for balance in done.balances if balance.unit == unit)


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
