"""The stages as Prefect tasks: one task run per stage, tool and group of shards, named so (`sample calculator 0-63`).

A task takes and returns references (names, digests, paths). Prefect's own cache is off: commits decide what is done.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture, as_completed

from flows.runtime.runners import note_submitted, task_resources
from tasks.shards.run_shard import ShardResult
from tasks.shards.stage import Inputs, RunSpec, Shard, Stage, files_of, run_stage
from tasks.stages import BUILD_STAGES, EVALUATION_STAGES


class GroupResult:
    """What a stage gave for each shard of a group, in order; None: it did not run. Prefect searches plain values."""

    __slots__ = ("shards",)

    def __init__(self, shards: Sequence[ShardResult | None]) -> None:
        self.shards = tuple(shards)


GroupResults = Sequence[GroupResult | PrefectFuture[GroupResult]]  # of one stage, one a tool
Futures = list[PrefectFuture[GroupResult]]  # of one stage and run, one a group of shards
_NONE: Mapping[str, Futures] = {}


@task(cache_policy=NO_CACHE)
def _run_group(
    stage: str, spec: RunSpec, tool: str, shards: Sequence[Shard], before: Mapping[str, Sequence[GroupResult]]
) -> GroupResult:
    """Run a stage on some shards, one after another; `before`: by stage that it reads, what each tool's gave."""
    if "distributed" in sys.modules:  # else this is no Dask worker
        from flows.runtime.worker_failures import tell_beginning

        tell_beginning()
    stages = next(some for some in (BUILD_STAGES, EVALUATION_STAGES) if any(one.name == stage for one in some))
    declared = next(one for one in stages if one.name == stage)
    results = []
    for number, shard in enumerate(shards):
        files = {
            name: files_of([result for group in groups if (result := group.shards[number]) is not None])
            for name, groups in before.items()
        }
        files[stages[0].name] = (shard.documents,)  # the source, which cut the shards
        results.append(run_stage(declared, Inputs(spec, shard.name, tool, files)))
    return GroupResult(results)


def submit_stage(
    stage: Stage[Any],
    spec: RunSpec,
    shards: Sequence[Shard],
    before: Mapping[str, GroupResults],
    *,
    tool: str = "",
    name: str = "",
) -> PrefectFuture[GroupResult]:
    """Submit a stage's task for a group of shards, inside `use_runner`; see `_run_group`. `name`: the task run's."""
    run_name = name or " ".join(filter(None, (stage.name, tool, group_label(shards))))
    task = _run_group.with_options(name=stage.name, task_run_name=run_name)
    arguments: Any = {"stage": stage.name, "spec": spec, "tool": tool, "shards": shards, "before": before}
    with task_resources(model=stage.needs == "model"):
        future: PrefectFuture[GroupResult] = task.submit(**arguments)
    note_submitted(future, run_name)
    return future


def finished_shards(futures: Iterable[PrefectFuture[GroupResult]]) -> Iterator[ShardResult]:
    """Yield the shards of each group as soon as its task has finished; raise what a task raised."""
    for future in as_completed(list(futures)):
        yield from (result for result in future.result().shards if result is not None)


def run_source(stage: Stage[Any], spec: RunSpec, name: str, *, task_name: str = "") -> ShardResult:
    """Run a stage that cuts a source into shards, as a task in the flow's own thread."""

    @task(name=stage.name, task_run_name=task_name or stage.name, cache_policy=NO_CACHE)
    def run() -> ShardResult:
        return run_stage(stage, Inputs(spec, name))

    return run()


def group_label(shards: Sequence[Shard]) -> str:
    """Return the numbers in the names of some shards: `7`, `0-63`, or `12 and 3 more` where they do not follow."""
    numbers = [int(shard.name.rpartition("-")[2]) for shard in shards]
    if len(numbers) == 1:
        return str(numbers[0])
    if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]}-{numbers[-1]}"
    return f"{numbers[0]} and {len(numbers) - 1} more"


def submit_for_run(
    stage: Stage[Any], run: Any, groups: Iterable[Sequence[Shard]], about: str, before: Mapping[str, Futures] = _NONE
) -> Futures:
    """Submit a stage for groups of shards under a run's name; `before`: what it reads, by stage, a future a group."""
    return [
        submit_stage(
            stage,
            run,
            [replace(shard, name=f"{run.name}-{shard.name}") for shard in group],
            {name: [futures[number]] for name, futures in before.items()},
            name=f"{stage.name} {about} {group_label(group)}",
        )
        for number, group in enumerate(groups)
    ]


def results_of(futures: Iterable[PrefectFuture[GroupResult]]) -> list[ShardResult]:
    return [result for future in futures for result in future.result().shards if result is not None]
