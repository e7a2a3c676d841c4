"""Prints the plan of a recipe, and where its results lie. It only prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from cli.render.answers import print_plan
from cli.render.console import Console, narrow_table

if TYPE_CHECKING:
    from flows.recipe.flow import RecipeResult
    from flows.recipe.plan import RecipePlan

__all__ = ["print_recipe_plan", "print_recipe_result"]

_NAMED = 3  # steps that are named as needing something; the others are counted


def print_recipe_plan(plan: RecipePlan) -> None:
    """Print what would become of each step, then the plans of the builds that are to do."""
    console = Console()
    table = narrow_table(f"What {escape(plan.name)} would do in {escape(plan.data)}")
    for name in ("step", "state", ""):
        table.add_column(name, no_wrap=bool(name), overflow="fold")
    needed: dict[str, list[str]] = {}
    for step in plan.steps:
        waits = f"after {', '.join(step.waits_for)}" if step.waits_for else ""
        note = "; ".join(filter(None, (step.note, waits)))
        table.add_row(escape(step.step), "done" if step.done else "to do", escape(note))
        for missing in step.missing:
            needed.setdefault(missing, []).append(step.step)
    console.print(table)
    for missing, steps in needed.items():
        more = f" and {len(steps) - _NAMED} more" if len(steps) > _NAMED else ""
        line = f"not on this machine: {missing} (needed by {', '.join(steps[:_NAMED])}{more})"
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    for step in plan.steps:
        if step.build is not None:
            console.print(f"\n[bold]{escape(step.step)}[/bold]")
            print_plan(step.build)


def print_recipe_result(result: RecipeResult) -> None:
    """Print where the results of a recipe lie."""
    console = Console()
    console.print(f"{escape(result.name)}: {len(result.results)} steps, {result.seconds:.0f} s.", highlight=False)
    site = result.page.removesuffix(".md") + ".html"
    console.print(f"Results: {escape(result.page)} and {escape(site)}", soft_wrap=True, highlight=False)
    console.print(
        f"MLflow run {result.mlflow_run}, with those of the steps below it: {escape(result.runs_view)}",
        soft_wrap=True,
        highlight=False,
    )
