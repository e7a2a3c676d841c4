"""Prints the plan of a recipe, and where its results lie. It only prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from cli.render.answers import print_plan
from cli.render.console import Console, narrow_table

if TYPE_CHECKING:
    from flows.recipe.flow import RecipeResult
    from flows.recipe.plan import PlannedStep, RecipePlan

__all__ = ["print_recipe_plan", "print_recipe_result"]


def print_recipe_plan(plan: RecipePlan) -> None:
    """Print what would become of each step, then the plans of the builds that are to do."""
    console = Console()
    table = narrow_table(f"What {escape(plan.name)} would do in {escape(plan.data)}")
    for name in ("step", "state", ""):
        table.add_column(name, no_wrap=name == "step", overflow="fold")
    for step in plan.steps:
        table.add_row(escape(step.step), _state(step), escape(step.note))
    console.print(table)
    for step in plan.steps:
        for missing in step.missing:
            console.print(
                f"{escape(step.step)} needs what is not here: {escape(missing)}", soft_wrap=True, highlight=False
            )
    for step in plan.steps:
        if step.build is not None:
            console.print(f"\n[bold]{escape(step.step)}[/bold]")
            print_plan(step.build)


def _state(step: PlannedStep) -> str:
    if step.done:
        return "done"
    return f"to do, after {', '.join(step.waits_for)}" if step.waits_for else "to do"


def print_recipe_result(result: RecipeResult) -> None:
    """Print where the results of a recipe lie."""
    console = Console()
    console.print(f"{escape(result.name)}: {len(result.results)} steps, {result.seconds:.0f} s.", highlight=False)
    site = result.page.removesuffix(".md") + ".html"
    console.print(f"Results: {escape(result.page)} and {escape(site)}", soft_wrap=True, highlight=False)
    console.print(f"MLflow run {result.mlflow_run}, with those of the steps below it", soft_wrap=True, highlight=False)
