"""A run of a given size simulated: how long it takes, who waits, and which constant holds a larger one up.

    python benchmarks/scale/simulate.py [--documents 1e9] [--gpu h100] [--gpu-count 64] [--model gpt-j-6b] [--json]
    python benchmarks/scale/simulate.py --against          two real builds on Dask here, predicted and measured
    python benchmarks/scale/simulate.py --against FOLDER   ... and the builds that plan_check.py --keep FOLDER left
    python benchmarks/scale/simulate.py --measure          the memory that a finished shard takes in the flow

The stages' work is that of `toolformer plan --documents` (the same options; --from and --assume as well). The plan
divides work by workers; the simulation also has tasks that are handed over one after another, workers that die and
shards that are claimed again, stragglers, slow tools and the latency of an object store (`simulation.py`).

Simulated is the run of the size that is given. At 10 and 100 times its documents and cards nothing is simulated:
`limits.py` computes from the plans of these sizes what each resource needs of which there is one.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.report import parser_of, print_json, say
from benchmarks.scale.limits import Load, constants_of, loads
from benchmarks.scale.simulation import simulate
from benchmarks.scale.world import Outcome, Stage, World
from flows.build_dataset.parameters import BuildParameters
from flows.cost.of_build import cost_of_build
from flows.cost.plan import CostPlan

_HOUR = 3600.0
_DAY = 24 * _HOUR
_SIZES = (1, 10, 100)
# What may go wrong, one after another and all at once. Deaths and stragglers are assumed: a week between two failures
# of a worker, one chunk of a task in a hundred three times as slow.
_TROUBLES: dict[str, dict[str, Any]] = {
    "nothing goes wrong": {},
    "workers die": {"fail_per_hour": 1 / 168, "restart_s": 300.0, "claims": True},
    "stragglers": {"straggler_share": 0.01, "straggler_factor": 3.0},
    "tools 100 times as slow": {"slow_tool": 100.0},
    "object store": {"remote": True},
}


def world_of(plan: CostPlan, *, remote: bool = False, **settings: Any) -> World:
    """Return the world in which a planned run takes place.

    Args:
        plan: of the run, on cards.
        remote: its data lies in an object store.
        settings: fields of the world that differ.
    """
    documents = plan.query.documents
    lines = {line.name: line.value for line in plan.assumptions}
    value = {name: constant.value for name, constant in constants_of(plan.query.assume).items()}
    stages = [
        Stage(
            cost.stage,
            cost.tool,
            cpu_s=cost.cpu_hours * _HOUR / documents,
            model_s=cost.gpu_hours * _HOUR / documents,
            calls=cost.tool_calls / documents,
            call_s=lines.get(f"{cost.tool}.call_seconds", lines.get("call_seconds", 0.0)),
        )
        for stage in plan.stages
        if (cost := stage.cost).stage != "ingest"
    ]
    note_s = value["commit_ms"] / 1000
    if remote:
        settings["request_s"] = value["request_s"]
        settings["requests"] = value["puts_per_commit"] + value["gets_per_commit"]
        note_s += value["noted"] * value["request_s"]
    world = World(
        documents=documents,
        shard_documents=plan.query.shard_documents,
        stages=tuple(stages),
        cards=plan.query.gpu_count,
        workers=int(plan.cores),
        submit_s=value["submit_s"],
        task_s=value["dispatch_s"],
        note_s=note_s,
        start_s=_HOUR * (plan.start_hours + plan.ingest_hours),
        end_s=_HOUR * plan.end_hours,
        all_scores_first=documents > plan.query.max_examples,
    )
    return replace(world, **settings)


def outcomes_of(plan: CostPlan) -> dict[str, Outcome]:
    """Return what becomes of a run in each of the troubles, and in all of them at once."""
    every = {name: value for settings in _TROUBLES.values() for name, value in settings.items()}
    troubles = {**_TROUBLES, "all of these": every}
    return {name: simulate(world_of(plan, **settings)) for name, settings in troubles.items()}


def plan_of(args: argparse.Namespace, times: int = 1) -> CostPlan:
    """Return the plan of a run of so many times the size, on so many times the cards."""
    parameters = BuildParameters(corpus="", data="none", model=args.model, shard_documents=args.shard_documents)
    return cost_of_build(
        parameters,
        args.documents * times,
        gpu=args.gpu,
        gpu_count=args.gpu_count * times,
        gpu_price=args.gpu_price,
        sample=args.sample,
        assume=args.assume,
    )


def report(args: argparse.Namespace) -> dict[str, Any]:
    """Print the plan, the simulations and the limits of larger sizes, and return them."""
    plans = {times: plan_of(args, times) for times in _SIZES}
    plan = plans[1]
    say(
        f"{args.documents:,.0f} documents in shards of {args.shard_documents:,}, {args.model}, "
        f"{args.gpu_count} x {args.gpu}"
    )
    tasks, commits = plan.sum("task_runs"), plan.sum("commits")
    say(f"plan: {plan.wall_hours / 24:.1f} days, {tasks:,.0f} tasks, {commits:,.0f} commits")
    outcomes = outcomes_of(plan)
    _print_outcomes(outcomes)
    found = {times: loads(plan, remote=True) for times, plan in plans.items()}
    _print_loads(found, plan.work_hours / 24)
    say("\nconstants")
    for name, constant in constants_of(plan.query.assume).items():
        say(f"  {name:<15} {constant.value:>10.6g} {constant.unit:<18} {constant.origin}")
    return {
        "plan_days": plan.wall_hours / 24,
        "outcomes": {name: asdict(o) for name, o in outcomes.items()},
        "loads": {times: [asdict(one) for one in of_size] for times, of_size in found.items()},
    }


def _print_outcomes(outcomes: dict[str, Outcome]) -> None:
    say(f"{'simulated':<26}{'days':>8}{'cards busy':>12}{'workers busy':>14}{'deaths':>8}{'flow busy':>11}")
    for name, o in outcomes.items():
        say(
            f"{name:<26}{o.makespan_s / _DAY:>8.1f}{o.card_busy:>12.1%}{o.worker_busy:>14.1%}{o.deaths:>8,}"
            f"{o.flow_busy_s / o.makespan_s:>11.1%}"
        )


def _print_loads(found: dict[int, list[Load]], days: float) -> None:
    """Print the loads of each size, and what breaks first."""
    say(f"\ncomputed: load of what there is one of, of the {days:.1f} days that the workers need; above 1 it decides")
    say(f"{'':<36}" + "".join(f"{f'{times} x':>9}" for times in found))
    for name in [one.name for one in found[max(found)]]:
        shares = [next(one.share for one in of_size if one.name == name) for of_size in found.values()]
        say(f"{name:<36}" + "".join(f"{share:>9.3g}" for share in shares))
    for times, of_size in found.items():
        broken = [one for one in of_size if one.share > 1]
        first = f"{broken[0].name} ({', '.join(broken[0].constants)})" if broken else "nothing"
        say(f"at {times} x breaks first: {first}; above 1: {', '.join(one.name for one in broken) or 'none'}")


def main() -> None:
    parser = parser_of(__doc__)
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
    args = parser.parse_args()
    if args.measure:
        from benchmarks.scale.real_runs import result_bytes

        found: Any = {"result_bytes": result_bytes()}
        say(f"a finished shard takes {found['result_bytes']:,.0f} bytes in the flow's process")
    elif args.against is not None:
        from benchmarks.scale.real_runs import compare

        found = compare(Path(args.against).absolute() if args.against else None)
    else:
        found = report(args)
    if args.json:
        print_json(found)


if __name__ == "__main__":
    main()
