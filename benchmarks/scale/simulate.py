"""A run of any size simulated: how long it takes, who waits, and which constant holds it up at ten times the size.

    python benchmarks/scale/simulate.py [--documents 1e9] [--gpu h100] [--gpu-count 64] [--model gpt-j-6b] [--json]
    python benchmarks/scale/simulate.py --against          two real builds on Dask here, predicted and measured
    python benchmarks/scale/simulate.py --against FOLDER   ... and the builds that plan_check.py --keep FOLDER left
    python benchmarks/scale/simulate.py --measure          the memory that a finished shard takes in the flow

The stages' work is that of `toolformer plan --documents` (the same options; --from and --assume as well). The plan
divides work by workers; the simulation also has tasks that are handed over one after another, workers that die and
shards that are claimed again, stragglers, slow tools and the latency of an object store (`simulation.py`), and
`limits.py` knows of what there is only one. Simulated sizes are 1, 10 and 100 times the documents, with as many times
the cards.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.scale.limits import CONSTANTS, Load, loads
from benchmarks.scale.simulation import simulate
from benchmarks.scale.world import Outcome, Stage, World
from flows.build_dataset.parameters import BuildParameters
from flows.cost.of_build import cost_of_build
from flows.cost.plan import CostPlan

_HOUR = 3600.0
_DAY = 24 * _HOUR
# What may go wrong, one after another and all at once. Deaths and stragglers are assumed: a week between two failures
# of a worker, one chunk of a task in a hundred three times as slow.
_TROUBLES: dict[str, dict[str, Any]] = {
    "nothing goes wrong": {},
    "workers die": {"fail_per_hour": 1 / 168, "restart_s": 300.0, "claims": True},
    "stragglers": {"straggler_share": 0.01, "straggler_factor": 3.0},
    "tools 100 times as slow": {"slow_tool": 100.0},
    "object store": {"request_s": CONSTANTS["request_s"].value, "requests": CONSTANTS["requests"].value},
}


def world_of(plan: CostPlan, *, cards: int, workers: int, remote: bool = False) -> World:
    """Return the world in which a planned run takes place."""
    documents = plan.query.documents
    calls = {line.name: line.value for line in plan.assumptions}
    stages = [
        Stage(
            cost.stage,
            cost.tool,
            cpu_s=cost.cpu_hours * _HOUR / documents,
            model_s=cost.gpu_hours * _HOUR / documents,
            calls=cost.tool_calls / documents,
            call_s=calls.get(f"{cost.tool}.call_seconds", calls.get("call_seconds", 0.0)),
        )
        for stage in plan.stages
        if (cost := stage.cost).stage != "ingest"
    ]
    note_s = CONSTANTS["record_s"].value
    note_s += CONSTANTS["noted"].value * CONSTANTS["request_s"].value if remote else 0.0
    return World(
        documents=documents,
        shard_documents=plan.query.shard_documents,
        stages=tuple(stages),
        cards=cards,
        workers=workers,
        submit_s=CONSTANTS["submit_s"].value,
        task_s=0.075,  # 55 to 96 ms on Dask
        note_s=note_s,
        start_s=_HOUR * (plan.start_hours + plan.ingest_hours),
        end_s=_HOUR * plan.end_hours,
        all_scores_first=documents > plan.query.max_examples,
    )


def troubles(plan: CostPlan, cards: int, workers: int) -> dict[str, Outcome]:
    """Return what becomes of a run in each of the troubles, and in all of them at once."""
    every = {name: value for settings in _TROUBLES.values() for name, value in settings.items()}
    return {
        name: simulate(
            replace(world_of(plan, cards=cards, workers=workers, remote="request_s" in settings), **settings)
        )
        for name, settings in {**_TROUBLES, "all of these": every}.items()
    }


def plan_of(a: argparse.Namespace, times: int = 1) -> CostPlan:
    """Return the plan of a run of so many times the size, on so many times the cards."""
    parameters = BuildParameters(corpus="", data="none", model=a.model, shard_documents=a.shard_documents)
    return cost_of_build(
        parameters,
        a.documents * times,
        gpu=a.gpu,
        gpu_count=a.gpu_count * times,
        gpu_price=a.gpu_price,
        sample=a.sample,
        assume=a.assume,
    )


def say(text: str = "") -> None:
    print(text, flush=True)  # noqa: T201


def report(a: argparse.Namespace) -> dict[str, Any]:
    """Simulate the sizes, print what was found, and return it."""
    plan = plan_of(a)
    workers = int(plan.cores)
    say(f"{a.documents:,.0f} documents, {a.model}, {a.gpu_count} x {a.gpu}, shards of {a.shard_documents:,}")
    say(
        f"plan: {plan.wall_hours / 24:.1f} days, {plan.sum('task_runs'):,.0f} tasks, {plan.sum('commits'):,.0f} commits"
    )
    say(f"{'simulated':<26}{'days':>8}{'cards busy':>12}{'workers busy':>14}{'deaths':>8}{'flow busy':>11}")
    outcomes = troubles(plan, a.gpu_count, workers)
    for name, o in outcomes.items():
        say(
            f"{name:<26}{o.makespan_s / _DAY:>8.1f}{o.card_busy:>12.1%}{o.worker_busy:>14.1%}{o.deaths:>8,}"
            f"{o.flow_busy_s / o.makespan_s:>11.1%}"
        )
    sizes: dict[int, list[Load]] = {}
    for times in (1, 10, 100):
        larger = plan_of(a, times)
        makespan = _HOUR * larger.lanes[0].hours  # as its workers allow
        sizes[times] = loads(larger, makespan, remote=True)
    days = plan.lanes[0].hours / 24
    say(f"\nLoad of what there is one of, of the {days:.1f} days that the workers need; above 1 it decides")
    say(f"{'':<36}{'1 x':>9}{'10 x':>9}{'100 x':>9}")
    for name in [one.name for one in sizes[100]]:
        shares = [next(one.share for one in found if one.name == name) for found in sizes.values()]
        say(f"{name:<36}" + "".join(f"{share:>9.3g}" for share in shares))
    for times, found in sizes.items():
        broken = [one for one in found if one.share > 1]
        first = f"{broken[0].name} ({', '.join(broken[0].constants)})" if broken else "nothing"
        say(f"at {times} x breaks first: {first}; above 1: {', '.join(one.name for one in broken) or 'none'}")
    say("\nconstants")
    for name, constant in CONSTANTS.items():
        say(f"  {name:<13}{constant.value:>10.6g} {constant.unit:<18} {constant.origin}")
    return {
        "plan_days": plan.wall_hours / 24,
        "outcomes": {name: asdict(o) for name, o in outcomes.items()},
        "loads": {times: [asdict(one) for one in found] for times, found in sizes.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=float, default=1e9)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--gpu-count", type=int, default=64)
    parser.add_argument("--gpu-price", type=float, default=2.5)
    parser.add_argument("--model", default="gpt-j-6b")
    parser.add_argument("--shard-documents", type=int, default=256)
    parser.add_argument("--from", dest="sample", help="data folder of a sample build")
    parser.add_argument("--assume", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--against", nargs="?", const="", metavar="FOLDER", help="compare with real builds here")
    parser.add_argument("--measure", action="store_true", help="measure the memory of a finished shard")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    a = parser.parse_args()
    if a.measure:
        from benchmarks.scale.real_runs import result_bytes

        found: Any = {"result_bytes": result_bytes()}
        say(f"a finished shard takes {found['result_bytes']:,.0f} bytes in the flow's process")
    elif a.against is not None:
        from benchmarks.scale.real_runs import compare

        found = compare(Path(a.against).absolute() if a.against else None, say)
    else:
        found = report(a)
    if a.json:
        say(json.dumps(found))


if __name__ == "__main__":
    main()
