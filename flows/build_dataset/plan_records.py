"""What a plan of a build says: shards with their states, stages with their estimates, the sum of both.

How it is found out is in `plan`.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.build_dataset.estimate import Estimate, Total, total_of

CACHED, TO_DO, DEPENDS = "cached", "to do", "depends"  # see `plan`


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """One shard of one stage."""

    stage: str
    tool: str  # "" where the stage runs once for all tools
    shard: str
    state: str  # cached | to do | depends
    because: tuple[str, ...] = ()  # why it is not cached; a changed field of a config as `name: old -> new`
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
    because: dict[str, int]  # reason -> number of shards that are not cached for this reason
    estimate: Estimate | None  # for the shards to do; None: no past run to estimate from, or nothing to do
    at_most: Estimate | None  # for the shards to do and those that depend


@dataclass(frozen=True, slots=True)
class Plan:
    """What a build would do."""

    stages: tuple[StagePlan, ...]
    shards: tuple[PlannedShard, ...]
    documents: int
    model: str
    data: str
    score_model: str = ""  # scores what `model` samples; "": `model` itself
    pilot: str = ""  # command of a small build to estimate from, if a stage has no past run
    notes: tuple[str, ...] = ()  # sentences for the user

    @property
    def nothing_to_do(self) -> bool:
        return all(shard.state == CACHED for shard in self.shards)

    @property
    def total(self) -> Total:
        """The estimate for the shards to do, over all stages."""
        return total_of((stage.stage, stage.estimate) for stage in self.stages if stage.to_do)

    @property
    def total_at_most(self) -> Total:
        """The estimate if every shard that depends on an earlier stage is to do as well."""
        return total_of((stage.stage, stage.at_most) for stage in self.stages if stage.to_do + stage.depends)
