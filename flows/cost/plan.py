"""The plan of a run by numbers: what each stage costs, how long all takes, what holds it up, and the money.

The wall time is `start + ingest + the slowest lane + the end`. Ingest reads the corpus in one process, before anything
else. A lane is a resource that the rest passes through: cards, cores, each tool, the flow's process, the scheduler,
the object store; the stages overlap, so the slowest lane decides. The end is the last assembly, where a limit of
examples has to wait for all scores, and the last snapshot. With a card the tasks run on Dask, without one in threads.
Queues and stragglers are left out here; benchmarks/scale/simulate.py has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flows.build_dataset.groups import group_count
from flows.cost.assumptions import COMPUTED, CONFIG, GIVEN, Assumption
from flows.cost.basis import Basis, basis_of
from flows.cost.build import StageCost, stage_costs
from flows.cost.query import CostQuery
from flows.cost.sample import Sample
from flows.cost.training import TrainingCost, training_cost
from flows.cutting import TASKS_PER_GPU, tasks_allowed

__all__ = ["CostPlan", "Lane", "Money", "PlannedStage", "plan_cost"]

_HOUR = 3600.0
# Lanes of which there is one, however many cards and cores there are.
_FLOW, _SERVER, _SCHEDULER = "the flow's process", "Prefect's server", "the scheduler"
_WRITING, _READING = "object store, writing", "object store, reading"
_SINGLE = (_FLOW, _SERVER, _SCHEDULER, _WRITING, _READING)


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage's cost, and in how many tasks it is done."""

    cost: StageCost
    task_runs: float


@dataclass(frozen=True, slots=True)
class Lane:
    """A resource that the work between ingest and the end passes through."""

    name: str
    work_hours: float
    parallel: float  # how much of it is done at a time
    hours: float  # work_hours / parallel


@dataclass(frozen=True, slots=True)
class Money:
    """What it costs, in the unit of the prices."""

    gpu_work: float  # GPU hours at work x price
    gpu: float  # the cards for the whole wall time x price: what is paid
    cpu: float  # the cores for the whole wall time x price
    storage: float
    finetune: float  # the cards for the training x price

    @property
    def build(self) -> float:
        return self.gpu + self.cpu + self.storage

    @property
    def total(self) -> float:
        return self.build + self.finetune


@dataclass(frozen=True, slots=True)
class CostPlan:
    """What a run of that size costs."""

    query: CostQuery
    stages: tuple[PlannedStage, ...]
    lanes: tuple[Lane, ...]  # the slowest first
    start_hours: float
    ingest_hours: float  # before all else, in one process
    end_hours: float  # after all else
    wall_hours: float
    bottleneck: str  # the longest part of the wall time
    cores: float
    money: Money
    training: TrainingCost
    assumptions: tuple[Assumption, ...]
    gpu_origin: str  # computed, or "" without a card
    sample: str  # the build that was measured; "" without one

    @property
    def work_hours(self) -> float:
        """How long the cards, the cores or a tool need: the slowest lane that more cards or cores would shorten."""
        return max(lane.hours for lane in self.lanes if lane.name not in _SINGLE)

    def sum(self, figure: str) -> float:
        """Return the sum of a figure of `StageCost`, or of `task_runs`, over all stages."""
        if figure == "task_runs":
            return sum(stage.task_runs for stage in self.stages)
        return float(sum(getattr(stage.cost, figure) for stage in self.stages))


def plan_cost(query: CostQuery, sample: Sample | None = None) -> CostPlan:
    """Return what a run costs; no model is loaded, and no data file is read.

    Args:
        query: what is planned.
        sample: a finished build to measure from.

    Raises:
        UsageError: a value is wrong, see `basis_of`, or an assumption's name is unknown.
    """
    basis = basis_of(query, sample)
    cores = _cores(basis)
    costs = stage_costs(basis)
    groups = _groups(basis, costs, cores)
    stages = tuple(PlannedStage(cost, _task_runs(query, cost, groups)) for cost in costs)
    lanes = tuple(sorted(_lanes(basis, stages, cores), key=lambda lane: -lane.hours))
    start, ingest, end = _before_and_after(basis, costs, cores)
    wall = start + ingest + lanes[0].hours + end
    parts = {lanes[0].name: lanes[0].hours, "ingest, in one process": ingest, "start": start, "the end": end}
    training = training_cost(basis)
    money = _money(basis, costs, wall, cores, training)
    basis.assumptions.check()
    return CostPlan(
        query=query,
        stages=stages,
        lanes=lanes,
        start_hours=start,
        ingest_hours=ingest,
        end_hours=end,
        wall_hours=wall,
        bottleneck=max(parts, key=lambda name: parts[name]),
        cores=cores,
        money=money,
        training=training,
        assumptions=basis.assumptions.lines,
        gpu_origin=COMPUTED if query.gpu else "",
        sample=sample.source if sample is not None else "",
    )


def _cores(basis: Basis) -> float:
    """Return the cores beside the cards; without cards, the workers."""
    query, lines = basis.query, basis.assumptions
    if query.gpu:
        cores = query.gpu_count * basis.single("cores_per_gpu")
        return lines.add("cores", cores, "cores", COMPUTED, "gpu-count x cores_per_gpu", positive=True)
    return lines.add("cores", query.workers, "cores", CONFIG, "--workers, each with a core", positive=True)


def _tasks_at_once(query: CostQuery, cores: float) -> int:
    """Return how many tasks run at a time: three for each card, one for each core."""
    at_cards = TASKS_PER_GPU * query.gpu_count if query.gpu else 0
    return at_cards + int(max(1.0, cores))


def _groups(basis: Basis, costs: list[StageCost], cores: float) -> int:
    """Return into how many groups the flow cuts the shards."""
    query = basis.query
    at_once = _tasks_at_once(query, cores)
    groups = group_count(
        math.ceil(query.documents / query.shard_documents),
        _HOUR * max(cost.gpu_hours + cost.cpu_hours for cost in costs if cost.tool),
        at_once=at_once,
        tasks_a_group=sum(1 for cost in costs if cost.stage != "ingest"),
        tasks_at_most=tasks_allowed(at_once if query.gpu else 0),
    )
    source = "flows/build_dataset/groups.py, as the build cuts"
    return int(basis.assumptions.add("groups", groups, "groups", COMPUTED, source, positive=True))


def _task_runs(query: CostQuery, cost: StageCost, groups: int) -> float:
    """Return in how many tasks a stage is done: one a group; one a shard where a tool stops once it has enough."""
    alone = query.stop_when_full and query.documents > query.max_examples and cost.tool
    return cost.commits if alone else min(groups, cost.commits)


def _lanes(basis: Basis, stages: tuple[PlannedStage, ...], cores: float) -> list[Lane]:
    query = basis.query
    between = [stage.cost for stage in stages if stage.cost.stage not in ("ingest", "assemble")]
    tasks = sum(stage.task_runs for stage in stages)
    commits = sum(stage.cost.commits for stage in stages)
    lanes = [_lane("cores", sum(cost.cpu_hours for cost in between), cores)]
    if query.gpu:
        busy = basis.single("gpu_busy_share")
        lanes.append(_lane("cards", sum(cost.gpu_hours for cost in between), query.gpu_count * busy))
    for tool in basis.tools:
        asked = sum(cost.tool_hours for cost in between if cost.tool == tool.key)
        lanes.append(_lane(f"tool {tool.key}", asked, tool.calls_at_once * cores))
    lanes.append(_lane(_FLOW, commits * basis.single("commit_ms") / 1000 / _HOUR, 1))
    lanes.append(_lane(_SERVER, tasks * basis.single("task_cpu_s") / _HOUR, 1))
    each = basis.single("submit_s") if query.gpu else basis.single("thread_task_s")
    lanes.append(_lane(_SCHEDULER, tasks * each / _HOUR, 1))
    if query.remote:
        puts, gets = commits * basis.single("puts_per_commit"), commits * basis.single("gets_per_commit")
        lanes.append(_lane(_WRITING, puts / basis.single("puts_per_second") / _HOUR, 1))
        lanes.append(_lane(_READING, gets / basis.single("gets_per_second") / _HOUR, 1))
    return lanes


def _lane(name: str, work_hours: float, parallel: float) -> Lane:
    return Lane(name, work_hours, parallel, work_hours / parallel)


def _before_and_after(basis: Basis, costs: list[StageCost], cores: float) -> tuple[float, float, float]:
    """Return hours: of the start, of ingest, and of what follows the last score."""
    by_stage = {cost.stage: cost for cost in costs if not cost.tool}
    scored = sum(cost.units for cost in costs if cost.stage == "score")
    assembly = by_stage["assemble"].cpu_hours / cores
    end = assembly + scored * basis.single("publish_us") / 1e6 / _HOUR
    return basis.single("start_s") / _HOUR, by_stage["ingest"].cpu_hours, end


def _money(basis: Basis, costs: list[StageCost], wall: float, cores: float, training: TrainingCost) -> Money:
    query, lines = basis.query, basis.assumptions
    price = 0.0
    if query.gpu:
        price = lines.add("gpu_price", query.gpu_price or 0.0, "per card-hour", GIVEN, "--gpu-price")
    cpu_price = basis.single("cpu_price")
    gigabyte_months = sum(cost.bytes for cost in costs) / 1e9 * basis.single("storage_months")
    return Money(
        gpu_work=price * sum(cost.gpu_hours for cost in costs),
        gpu=price * query.gpu_count * wall if query.gpu else 0.0,
        cpu=cpu_price * cores * wall,
        storage=gigabyte_months * basis.single("storage_price"),
        finetune=price * training.gpu_hours + cpu_price * training.cpu_hours,
    )
