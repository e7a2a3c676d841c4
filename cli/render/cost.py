"""Prints a plan by numbers (`flows.cost.plan`): stages, lanes, money, finetuning, and what it rests on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from cli.render.console import Console

if TYPE_CHECKING:
    from flows.cost.plan import CostPlan

__all__ = ["amount", "cost_as_json", "hours", "print_cost"]

_FIGURES = {  # of a stage -> its column
    "lm_tokens": "tokens",
    "gpu_hours": "GPU h",
    "tool_calls": "calls",
    "tool_hours": "tool h",
    "cpu_hours": "CPU h",
    "bytes": "bytes",
    "commits": "commits",
    "task_runs": "tasks",
}
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))
_SHOWN_LANES = 5


def amount(value: float) -> str:
    """Return a number in three digits, with a prefix (k, M, G, T, P) from ten thousand on; "" for 0."""
    if not value:
        return ""
    for size, prefix in _PREFIXES:
        if value >= size:
            return f"{value / (size if size != 1e4 else 1e3):.3g}{prefix}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def hours(value: float) -> str:
    """Return hours as a person says them: seconds, minutes, hours or days."""
    if value < 1 / 60:
        return f"{3600 * value:.1f} s"
    if value < 2:
        return f"{60 * value:.0f} min"
    return f"{value:,.1f} h" if value < 72 else f"{value / 24:,.1f} days"


def cost_as_json(plan: CostPlan) -> dict[str, Any]:
    """Return a plan as plain values, with its sums."""
    fields = asdict(plan)
    totals = {figure: plan.sum(figure) for figure in _FIGURES}
    stages = [{**stage["cost"], "task_runs": stage["task_runs"]} for stage in fields.pop("stages")]
    money = {**fields.pop("money"), "build": plan.money.build, "total": plan.money.total}
    return {**fields, "stages": stages, "total": totals, "money": money}


def print_cost(plan: CostPlan) -> None:
    """Print a plan by numbers."""
    console = Console()
    query = plan.query
    where = f"{query.gpu_count} x {query.gpu}" if query.gpu else f"{query.workers} workers without a card"
    _say(console, f"[bold]{amount(query.documents)} documents, {escape(query.model)}, {escape(where)}[/bold]")
    if query.score_model:
        shape = f"is computed with the shape of {escape(query.model)}; what a sample build has measured stands"
        _say(console, f"Scoring by {escape(query.score_model)} {shape}.")
    _print_stages(console, plan)
    if plan.gpu_origin:
        _say(console, f"GPU hours are {plan.gpu_origin}: of one card at work, from FLOPs and memory traffic.")
    if plan.sample:
        _say(console, f"Measured from the sample build: {escape(plan.sample)}.")
    else:
        _say(console, "No sample build: run a pilot of a few hundred documents, then name its folder with --from.")
    _print_time(console, plan)
    _print_money(console, plan)
    _print_training(console, plan)
    _print_assumptions(console, plan)


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, pad_edge=False)


def _print_stages(console: Console, plan: CostPlan) -> None:
    rows = [
        (stage.cost.stage, stage.cost.tool, *(amount(_figure(stage, name)) for name in _FIGURES))
        for stage in plan.stages
    ]
    rows.append(("in all", "", *(amount(plan.sum(name)) for name in _FIGURES)))
    used = [0, 1, *(column for column in range(2, 2 + len(_FIGURES)) if any(row[column] for row in rows))]
    headers = ("stage", "tool", *_FIGURES.values())
    table = _table("What each stage costs")
    for column in used:
        table.add_column(headers[column], justify="right" if column > 1 else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(row[column] for column in used), style="bold" if row is rows[-1] else "")
    console.print(table)


def _figure(stage: Any, name: str) -> float:
    return float(stage.task_runs if name == "task_runs" else getattr(stage.cost, name))


def _print_time(console: Console, plan: CostPlan) -> None:
    table = _table("What the work passes through")
    for name in ("lane", "hours of work", "at a time", "takes"):
        table.add_column(name, justify="left" if name == "lane" else "right", no_wrap=True)
    for lane in plan.lanes[:_SHOWN_LANES]:
        table.add_row(lane.name, amount(lane.work_hours), amount(lane.parallel), hours(lane.hours))
    console.print(table)
    parts = {"start": plan.start_hours, "ingest": plan.ingest_hours, "slowest lane": plan.lanes[0].hours}
    told = " + ".join(f"{name} {hours(value)}" for name, value in {**parts, "end": plan.end_hours}.items())
    _say(console, f"[bold]Wall time {hours(plan.wall_hours)}[/bold] = {told}.")
    _say(console, f"[bold]Bottleneck: {escape(plan.bottleneck)}.[/bold]")


def _print_money(console: Console, plan: CostPlan) -> None:
    money, query = plan.money, plan.query
    parts = [f"cores {money.cpu:,.2f}", f"storage {money.storage:,.2f}"]
    if query.gpu:
        idle = f"; of it {money.gpu_work:,.2f} for cards at work"
        parts.insert(0, f"cards {money.gpu:,.2f} ({query.gpu_count} for the wall time{idle})")
    _say(console, f"[bold]Money {money.build:,.2f}[/bold] = {' + '.join(parts)}.")


def _print_training(console: Console, plan: CostPlan) -> None:
    t = plan.training
    where = f"{t.gpu_hours:,.1f} GPU hours" if plan.query.gpu else f"{t.cpu_hours:,.1f} core hours"
    _say(
        console,
        f"[bold]Finetuning[/bold]: C* of at most {amount(t.texts)} texts, {amount(t.corpus_tokens)} tokens; "
        f"{t.steps:,.0f} steps train {amount(t.trained_tokens)} tokens ({t.passes:.2g} times C*): {where}, "
        f"{hours(t.hours)}, money {plan.money.finetune:,.2f}; a checkpoint has {amount(t.checkpoint_bytes)} bytes.",
    )
    if t.fits is False:
        _say(
            console,
            f"[yellow]Weights, gradients and optimiser take {t.memory_gb:,.0f} GB a card, more than it has: use more "
            "cards, or the profile lora.[/yellow]",
        )


def _print_assumptions(console: Console, plan: CostPlan) -> None:
    console.print("\nWhat it rests on: replace any of them with --assume NAME=VALUE", style="italic")
    names = max(len(line.name) for line in plan.assumptions)
    units = max(len(line.unit) for line in plan.assumptions)
    for line in plan.assumptions:
        told = f"{line.name:<{names}} {line.value:>13,.6g} {line.unit:<{units}} {line.origin:<8}  {line.source}"
        console.print(told, highlight=False, soft_wrap=True, markup=False)
