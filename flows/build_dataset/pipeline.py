"""The stages of a build as tasks: which are submitted, on what they wait, and what is used of them.

Groups of shards go through the list of stages side by side. Where a tool may end up with more examples than the limit,
or its threshold follows from all scores, C* is assembled when all shards are scored, else group by group.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prefect.futures import PrefectFuture

from flows.runtime.ledger import Ledger
from flows.runtime.runners import cut_evenly, tasks_at_most, tasks_at_once
from flows.runtime.stage_tasks import GroupResult, finished_shards, submit_stage
from tasks.settings import shared_catalog
from tasks.shards.run_shard import ShardResult, on_shard_done
from tasks.shards.stage import Shard, Stage
from tasks.specs.build_spec import BuildSpec
from tasks.specs.example_limit import ExampleCounter, examples_in_shard, shard_order, with_limits
from tasks.specs.thresholds import Decided, decide_thresholds, is_decided_late
from tasks.stages import build_stages
from tasks.stages.assemble import ASSEMBLE, SCORES, AssemblySpec
from toolformer_core.records import digest_of
from warehouse.errors import WarehouseError
from warehouse.queries import rows_of
from warehouse.snapshot.views import queries_beside

_TASK_S = 20.0  # seconds of work that a task is to take; one costs Prefect milliseconds in a thread, 0.2 s on Dask
_UNKNOWN_S = 0.05  # seconds a document, where no past run says
_PER_WORKER = 6  # groups for each task that runs at a time, so that some sample while others execute

_SQL = queries_beside(__file__)


Assembled = tuple[dict[str, ShardResult], Decided]  # C*, shard by shard, and how it was assembled


@dataclass(frozen=True, slots=True)
class _Group:
    shards: tuple[Shard, ...]
    results: dict[tuple[str, str], GroupResult | PrefectFuture[GroupResult]] = field(default_factory=dict)

    def read_by(self, stage: Stage[Any], tool: str) -> dict[str, list[GroupResult | PrefectFuture[GroupResult]]]:
        """Return what a stage that is run for a tool reads, by stage."""
        read = [(key[0], result) for key, result in self.results.items() if stage.is_read_for(tool, *key)]
        return {name: [result for of, result in read if of == name] for name in stage.reads}

    def futures(self) -> list[PrefectFuture[GroupResult]]:
        return [result for result in self.results.values() if isinstance(result, PrefectFuture)]

    def finished(self) -> dict[tuple[str, str], GroupResult]:
        """Wait for all stages, and return their results."""
        return {
            key: result if isinstance(result, GroupResult) else result.result() for key, result in self.results.items()
        }


def assembly_spec_of(spec: BuildSpec, **changes: Any) -> AssemblySpec:
    """Return how a build assembles C*; `changes` are fields with other values than the build gives them."""
    given = {"config": spec.assemble, "tool_names": spec.tool_names, "rating_filter": spec.rating_filter, **changes}
    given |= {"shared_words": spec.shared_words, "max_same_call": spec.max_same_call}
    return AssemblySpec(spec.run_id, spec.data, overlay=spec.overlay, mask_pii=spec.mask_pii, **given)


def run_pipeline(spec: BuildSpec, ledger: Ledger, shards: Sequence[Shard], workers: int) -> Assembled:
    """Take shards through all stages after the source."""
    for stage in build_stages(spec):
        if stage.per != "source":
            ledger.expect(stage.name, len(shards) * (len(spec.tools) if stage.per == "tool" else 1))
    within_limit = sum(shard.documents.rows for shard in shards) <= spec.assemble.max_examples
    # Whether no shard of C* needs to know the scores of others.
    in_one_go = within_limit and spec.max_same_call is None and not is_decided_late(spec)
    if spec.stop_when_full and not within_limit:
        groups = _annotate_until_full(spec, ledger, shards, workers)
        return _assemble(spec, ledger, groups)
    tasks_a_group = len(build_stages(spec, "tool")) * len(spec.tools) + len(build_stages(spec, "shard"))
    in_turn, seconds = _in_turn(shards, spec.run_id), seconds_per_document(ledger.snapshot)
    cut = shard_groups(in_turn, seconds, at_once=tasks_at_once(workers), most=tasks_at_most() // tasks_a_group)
    groups = [_Group(own) for own in cut]
    with on_shard_done(ledger.note):
        for group in groups:
            _submit_scoring_stages(spec, group, spec.tools)
            if in_one_go:
                _submit_assembly(spec, group, assembly_spec_of(spec))
        for result in finished_shards(future for group in groups for future in group.futures()):
            ledger.add(result)
        if not in_one_go:
            return _assemble(spec, ledger, groups)
    return _assemble_results(groups), Decided(spec.assemble)


def shard_groups(shards: Sequence[Shard], seconds: float, *, at_once: int, most: int) -> list[tuple[Shard, ...]]:
    """Cut shards, in order, into at most `most` groups of one size, give or take one.

    `seconds` are of work a document, in the slowest stage; `at_once` tasks run at a time, with six groups for each.
    """
    work_s = sum(shard.documents.rows for shard in shards) * seconds
    return cut_evenly(shards, min(most, max(math.ceil(work_s / _TASK_S), _PER_WORKER * at_once)))


def seconds_per_document(snapshot: Path) -> float:
    """Return what the slowest stage took a document, in the builds that a snapshot speaks of; 0.05 s without any."""
    try:
        return float(rows_of(snapshot, _SQL["slowest_stage"])[0]["seconds"] or _UNKNOWN_S)
    except WarehouseError:
        return _UNKNOWN_S  # it only decides how the work is cut


def _submit_scoring_stages(spec: BuildSpec, group: _Group, tools: Iterable[str]) -> None:
    stages = build_stages(spec)
    for stage in stages[: stages.index(ASSEMBLE)]:
        if stage.per != "source":
            for tool in tools if stage.per == "tool" else ("",):
                before = group.read_by(stage, tool)
                group.results[stage.name, tool] = submit_stage(stage, spec, group.shards, before, tool=tool)


def _submit_assembly(spec: BuildSpec, group: _Group, assembly: AssemblySpec) -> None:
    scored = {stage: results for stage, results in group.read_by(ASSEMBLE, "").items() if stage in SCORES and results}
    group.results[ASSEMBLE.name, ""] = submit_stage(ASSEMBLE, assembly, group.shards, scored)
    stages = build_stages(spec)
    for stage in stages[stages.index(ASSEMBLE) + 1 :]:
        group.results[stage.name, ""] = submit_stage(stage, spec, group.shards, group.read_by(stage, ""))


def _assemble(spec: BuildSpec, ledger: Ledger, groups: Sequence[_Group]) -> Assembled:
    """Assemble C* once all scores are there, so that rates can be promised and the limit of examples be kept."""
    scored: dict[str, list[ShardResult]] = {}
    lacking: dict[str, list[str]] = {}  # shard -> tools that were not annotated on it
    for group in groups:
        results = group.finished()
        for number, shard in enumerate(group.shards):
            scores = {key: group_result.shards[number] for key, group_result in results.items() if key[0] in SCORES}
            scored[shard.name] = [result for result in scores.values() if result is not None]
            lacking[shard.name] = [tool for tool in spec.tools if scores["score", tool] is None]
    decided = decide_thresholds(spec, scored)
    assembly = with_limits(assembly_spec_of(spec, config=decided.config), scored)
    for group in groups:
        not_annotated = {shard.name: lacking[shard.name] for shard in group.shards}
        _submit_assembly(spec, group, replace(assembly, not_annotated=not_annotated))
    for result in finished_shards(future for group in groups for future in group.futures()):
        ledger.add(result)
    return _assemble_results(groups), decided


def _assemble_results(groups: Sequence[_Group]) -> dict[str, ShardResult]:
    results = (result for group in groups for result in group.finished()[ASSEMBLE.name, ""].shards)
    return {result.key.shard: result for result in results if result is not None}


def _annotate_until_full(spec: BuildSpec, ledger: Ledger, shards: Sequence[Shard], workers: int) -> list[_Group]:
    """Annotate each tool's shards until it has enough examples; return what is used: `gc` removes the rest."""
    order = shard_order(shards, spec.assemble.seed)
    counter = ExampleCounter(spec.tools, spec.assemble.max_examples)
    pending: dict[tuple[str, str], _Group] = {}  # tool, shard
    used: dict[str, dict[tuple[str, str], ShardResult]] = {shard.name: {} for shard in shards}
    for index, shard in enumerate(order):
        if not counter.open_tools:
            break
        ahead = math.ceil(tasks_at_once(workers) / len(counter.open_tools))
        if shared_catalog() is not None:
            ahead *= 2  # so that flows that share the shards seldom wait for each other
        for later in _in_turn(order[index : index + ahead], spec.run_id):
            for tool in counter.open_tools:
                if (tool, later.name) not in pending:
                    group = pending[tool, later.name] = _Group((later,))
                    _submit_scoring_stages(spec, group, [tool])
        for tool in counter.open_tools:
            for key, group_result in pending.pop((tool, shard.name)).finished().items():
                for result in group_result.shards:
                    if result is not None:
                        used[shard.name][key] = result
                        ledger.add(result)
        scored = [result for (stage, _), result in used[shard.name].items() if stage == "score"]
        for _ in counter.add(examples_in_shard(assembly_spec_of(spec), scored)):
            for stage in build_stages(spec, "tool"):
                ledger.expect(stage.name, index + 1 - len(order))  # fewer by the shards after this one
    for group in pending.values():  # not used, whatever becomes of them
        for future in group.futures():
            future.wait()
    groups = [_Group(own_shards) for own_shards in cut_evenly(shards, tasks_at_most())]
    for group in groups:
        for key in (("score", tool) for tool in spec.tools):
            group.results[key] = GroupResult([used[shard.name].get(key) for shard in group.shards])
    return groups


def _in_turn(shards: Sequence[Shard], run_id: str) -> list[Shard]:
    if shared_catalog() is None:
        return list(shards)
    return sorted(shards, key=lambda shard: digest_of(run_id, shard.name))
