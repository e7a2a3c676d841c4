"""What a run needs besides workers, and from which size on one of these holds it up: each constant with its origin.

Each limit is a resource of which there is one. Its load is the time that it alone needs, as a share of the run's time:
above 1 it decides how long the run takes, however many workers there are. For memory it is the share of what the flow's
process may hold. Loads are computed from a plan; nothing is simulated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from flows.cost.defaults import SINGLE
from flows.cost.plan import CostPlan

__all__ = ["Constant", "Load", "constants_of", "loads"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that was measured here or that a vendor documents."""

    value: float
    unit: str
    origin: str


# Lines of the plan's assumptions, so --assume replaces them.
_OF_PLAN = (
    "submit_s",
    "task_cpu_s",
    "commit_ms",
    "publish_us",
    "puts_per_commit",
    "gets_per_commit",
    "puts_per_second",
    "gets_per_second",
)
_FURTHER = {
    "dispatch_s": Constant(0.075, "s a task", "from its readiness to its first shard: 55 to 96 ms on Dask"),
    "dask_cpu_s": Constant(
        0.45, "s CPU a task", "flow, server, scheduler, workers; benchmarks/gpu_wait.py --documents 800: 33 s, 70 tasks"
    ),
    "snapshot_ms": Constant(0.12, "ms a commit", "python benchmarks/reconcile.py --commits 5000: snapshot 0.61 s"),
    "list_ms": Constant(0.014, "ms a commit", "python benchmarks/reconcile.py: a start with 5,000 commits 0.07 s"),
    "result_bytes": Constant(1475.0, "bytes a commit", "python benchmarks/scale/simulate.py --measure"),
    "flow_bytes": Constant(1.5e9, "bytes", "what the flow's process may hold (aim of this repository)"),
    "request_s": Constant(
        0.05, "s a request", "Amazon S3 (timeouts and retries): small requests take tens of milliseconds"
    ),
    "listed": Constant(1000.0, "keys a request", "Amazon S3 ListObjectsV2"),
    "noted": Constant(2.0, "requests a commit", "the flow reads each commit and its file's size (flows/ledger.py)"),
}


@dataclass(frozen=True, slots=True)
class Load:
    """How much of the run's time, or of its bound, a resource needs."""

    name: str
    share: float
    constants: tuple[str, ...]


def constants_of(assume: Mapping[str, float]) -> dict[str, Constant]:
    """Return all constants by name.

    Args:
        assume: values that a user gave for a plan's assumptions.
    """
    of_plan = {
        name: Constant(assume.get(name, line.value), line.unit, "given" if name in assume else line.source)
        for name in _OF_PLAN
        if (line := SINGLE[name])
    }
    return of_plan | _FURTHER


def loads(plan: CostPlan, *, remote: bool) -> list[Load]:
    """Return all loads, the heaviest first.

    Args:
        plan: of the run; its time is what its cards, cores and tools need.
        remote: whether its data lies in an object store.
    """
    value = {name: constant.value for name, constant in constants_of(plan.query.assume).items()}
    tasks, commits = plan.sum("task_runs"), plan.sum("commits")
    scored = sum(stage.cost.units for stage in plan.stages if stage.cost.stage == "score")

    def load(name: str, seconds: float, *constants: str) -> Load:
        return Load(name, seconds / (3600 * plan.work_hours), constants)

    publication_s = commits * value["snapshot_ms"] / 1e3 + scored * value["publish_us"] / 1e6
    memory = commits * value["result_bytes"] / value["flow_bytes"]
    found = [
        load("scheduler: tasks handed over", tasks * value["submit_s"], "submit_s"),
        load("Prefect's server: task runs", tasks * value["task_cpu_s"], "task_cpu_s"),
        load("catalog: rows of commits", commits * value["commit_ms"] / 1e3, "commit_ms"),
        load("snapshot: one publication", publication_s, "snapshot_ms", "publish_us"),
        load("start: commits listed", commits * value["list_ms"] / 1e3, "list_ms"),
        load("ingest: one process reads", 3600 * plan.ingest_hours, "ingest_ms"),
        Load("flow's memory: results of shards", memory, ("result_bytes", "flow_bytes")),
    ]
    if remote:
        puts, gets = commits * value["puts_per_commit"], commits * value["gets_per_commit"]
        lists = math.ceil(commits / value["listed"])
        noted_s = commits * value["noted"] * value["request_s"]
        found += [
            load("flow's process: commits read", noted_s, "noted", "request_s"),
            load("object store: writes", puts / value["puts_per_second"], "puts_per_commit", "puts_per_second"),
            load("object store: reads", gets / value["gets_per_second"], "gets_per_commit", "gets_per_second"),
            load("object store: commits listed", lists * value["request_s"], "listed", "request_s"),
        ]
    return sorted(found, key=lambda one: -one.share)
