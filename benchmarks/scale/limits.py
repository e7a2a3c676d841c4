"""What a run needs besides workers, and from which size on one of these holds it up: each constant with its origin.

Each limit is a resource of which there is one. Its load is the time that it alone needs, as a share of the run's time:
above 1 it decides how long the run takes, however many workers there are. For memory it is the share of what the flow's
process may hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flows.cost.plan import CostPlan

__all__ = ["CONSTANTS", "Constant", "Load", "loads"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that was measured here or that a vendor documents."""

    value: float
    unit: str
    origin: str


CONSTANTS = {
    "submit_s": Constant(
        0.2, "s a task", "Dask through Prefect: 200 tasks took 40 s to be handed over (flows/cutting.py)"
    ),
    "server_s": Constant(0.05, "s CPU a task", "Prefect's server (flows/cutting.py; benchmarks/overhead.py)"),
    "record_s": Constant(0.00021, "s a commit", "python benchmarks/reconcile.py --commits 5000: catalog 1.06 s"),
    "snapshot_s": Constant(0.00012, "s a commit", "python benchmarks/reconcile.py --commits 5000: snapshot 0.61 s"),
    "scored_s": Constant(1.2e-6, "s a scored call", "python benchmarks/ask.py: 10 million calls published in 11.7 s"),
    "list_s": Constant(14e-6, "s a commit", "python benchmarks/reconcile.py: a start with 5,000 commits 0.07 s"),
    "result_bytes": Constant(1475.0, "bytes a commit", "python benchmarks/scale/simulate.py --measure"),
    "flow_bytes": Constant(1.5e9, "bytes", "what the flow's process may hold (aim of this repository)"),
    "request_s": Constant(
        0.05, "s a request", "Amazon S3 (timeouts and retries): small requests take tens of milliseconds"
    ),
    "puts": Constant(3500.0, "requests/s", "Amazon S3, per partitioned prefix"),
    "gets": Constant(5500.0, "requests/s", "Amazon S3, per partitioned prefix"),
    "listed": Constant(1000.0, "keys a request", "Amazon S3 ListObjectsV2"),
    "requests": Constant(
        7.0, "requests a commit", "two writes and five reads (warehouse/store.py, tasks/run_shard.py)"
    ),
    "noted": Constant(2.0, "requests a commit", "the flow reads each commit and its file's size (flows/ledger.py)"),
}


@dataclass(frozen=True, slots=True)
class Load:
    """How much of the run's time, or of its bound, a resource needs."""

    name: str
    share: float
    constants: tuple[str, ...]


def _value(name: str) -> float:
    return CONSTANTS[name].value


def loads(plan: CostPlan, makespan_s: float, *, remote: bool) -> list[Load]:
    """Return all loads, the heaviest first.

    Args:
        plan: of the run.
        makespan_s: how long its workers need.
        remote: whether its data lies in an object store.
    """
    tasks, commits = plan.sum("task_runs"), plan.sum("commits")
    scored = sum(stage.cost.units for stage in plan.stages if stage.cost.stage == "score")

    def load(name: str, seconds: float, constants: Sequence[str]) -> Load:
        return Load(name, seconds / makespan_s, tuple(constants))

    found = [
        load("scheduler: tasks handed over", tasks * _value("submit_s"), ["submit_s"]),
        load("Prefect's server: task runs", tasks * _value("server_s"), ["server_s"]),
        load("catalog: rows of commits", commits * _value("record_s"), ["record_s"]),
        load(
            "snapshot: one publication",
            commits * _value("snapshot_s") + scored * _value("scored_s"),
            ["snapshot_s", "scored_s"],
        ),
        load("start: commits listed", commits * _value("list_s"), ["list_s"]),
        load("ingest: one process reads", 3600 * plan.ingest_hours, []),
        Load(
            "flow's memory: results of shards",
            commits * _value("result_bytes") / _value("flow_bytes"),
            ("result_bytes", "flow_bytes"),
        ),
    ]
    if remote:
        found += [
            load(
                "flow's process: commits read", commits * _value("noted") * _value("request_s"), ["noted", "request_s"]
            ),
            load("object store: writes", commits * 2 / _value("puts"), ["requests", "puts"]),
            load("object store: reads", commits * 5 / _value("gets"), ["requests", "gets"]),
            load(
                "object store: commits listed",
                math.ceil(commits / _value("listed")) * _value("request_s"),
                ["listed", "request_s"],
            ),
        ]
    return sorted(found, key=lambda one: -one.share)
