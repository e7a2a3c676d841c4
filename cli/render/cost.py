"""Prints a plan by numbers (`flows.cost`): stages, hours, money, finetuning, and the assumptions."""

from dataclasses import asdict
from typing import Any

from rich.markup import escape

from cli.render.console import Console, stages_table
from flows.cost.of_build import CostPlan

_FIGURES = {  # of a stage -> its column
    "lm_tokens": "tokens",
    "gpu_hours": "GPU h",
    "tool_calls": "calls",
    "tool_hours": "tool h",
    "cpu_hours": "CPU h",
}
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))


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
    return {**asdict(plan), "total": {figure: plan.sum(figure) for figure in _FIGURES}}


def print_cost(plan: CostPlan) -> None:
    """Print a plan by numbers."""
    console = Console()

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    console.say(f"{amount(plan.documents)} documents, {plan.model}, {plan.where}", "bold")
    rows = [(one.stage, one.tool, *(amount(getattr(one, name)) for name in _FIGURES)) for one in plan.stages]
    rows.append(("in all", "", *(amount(plan.sum(name)) for name in _FIGURES)))
    console.print(stages_table("What each stage costs", tuple(_FIGURES.values()), rows, gap=0))
    if plan.sample:
        say(f"Measured from the sample build: {escape(plan.sample)}.")
    else:
        say("No sample build: run a pilot of a few hundred documents, then name its folder with --from.")
    parts = {"ingest": plan.ingest_hours, **plan.hours}
    say("Hours on the clock: " + ", ".join(f"{escape(name)} {hours(value)}" for name, value in parts.items()) + ".")
    say(f"[bold]Wall time {hours(plan.wall_hours)}[/bold]: ingest, then the longest of the others.")
    console.say(f"Bottleneck: {plan.bottleneck}.", "bold")
    say(f"[bold]Money {plan.build_money:,.2f}[/bold]: all cards and cores for the wall time.")
    t = plan.training
    where = f"{t.gpu_hours:,.1f} GPU hours" if t.gpu_hours else f"{t.cpu_hours:,.1f} core hours"
    say(
        f"[bold]Finetuning[/bold]: C* of at most {amount(t.units)} texts; {amount(t.lm_tokens)} tokens trained: "
        f"{where}, {hours(plan.training_hours)}, money {plan.training_money:,.2f}."
    )
    console.print("\nWhat it rests on: replace any of them with --assume NAME=VALUE", style="italic")
    names = max(len(line.name) for line in plan.assumptions)
    units = max(len(line.unit) for line in plan.assumptions)
    for line in plan.assumptions:
        console.say(f"{line.name:<{names}} {line.value:>13,.6g} {line.unit:<{units}} {line.origin:<8}  {line.source}")
