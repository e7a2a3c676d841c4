"""The command `demo`: the recipe of that name, and the tables that the README shows. `cli.main` registers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import AsJson, Data
from cli.recipe import run_and_show
from cli.terminal import print_json
from flows.recipe.parameters import RecipeParameters
from tasks.environment import prepare_environment
from tasks.settings import data_folder

if TYPE_CHECKING:
    from flows.evaluate.metrics import ArmFigures, EvaluateResult

__all__ = ["DemoRow", "demo", "demo_table", "verdict"]


def demo(
    data: Data = None,
    model: Annotated[str, typer.Option(help="'embedded', or a folder or hub name of your own")] = "embedded",
    as_json: AsJson = False,
) -> None:
    """Run the whole loop once, small, on the embedded model and corpus. Needs no network and no server.

    It is the recipe demo: see toolformer run.

    Example: toolformer demo --data /tmp/demo
    """
    prepare_environment()
    folder = data_folder(data)
    results = run_and_show(RecipeParameters(recipe="demo", data=folder, model=model), quiet=as_json).results
    items, plain_items, perplexity = (results[f"evaluate.{name}"] for name in ("items", "plain-items", "perplexity"))
    table = demo_table(items, plain_items, perplexity)
    trainings = [results[f"finetune.{arm}"] for arm in ("toolformer", "cc")]
    if as_json:
        print_json({"table": [asdict(row) for row in table], "trainings": [asdict(result) for result in trainings]})
    else:
        from cli.render.progress import print_demo, print_summary

        print_summary(results["build"])
        print_demo(table, folder, items.runs_view, trainings[0].model, verdict(items.arms))


def verdict(arms: Sequence[ArmFigures]) -> str:
    """Return what the demo came to: the finetuned model's right answers with tools, at its largest k, and without."""
    taught = sorted((arm for arm in arms if arm.arm == "toolformer"), key=lambda arm: arm.k)
    without = next(arm for arm in arms if arm.arm == "toolformer-disabled")
    return f"With tools {taught[-1].right} of {taught[-1].items} right, without {without.right}."


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One row of the demo's table."""

    arm: str
    k: int  # 0: no calls
    right: dict[str, float]  # tool that the item needs, or "all" -> percent right
    called: float  # percent of these items with a call
    needless: float | None  # percent of items with a call among those that need no tool; None: not measured at this k
    perplexity: float | None  # of the dev documents, calls disabled


def demo_table(tool_items: EvaluateResult, plain_items: EvaluateResult, perplexity: EvaluateResult) -> list[DemoRow]:
    """Return the table that ends the demo, from the predictions in the warehouse.

    Args:
        tool_items: result on the items that need a tool.
        plain_items: result on the items that need none.
        perplexity: result on the dev documents.
    """
    from warehouse.queries import rows_of

    sql = """
        SELECT evaluation, split_part(group_name, ' ', 1) AS tool, 100 * avg(correct::INT) AS right
        FROM predictions WHERE task = 'small-world' GROUP BY ALL
    """
    needless = {(arm.arm, arm.k): 100 * arm.call_rate for arm in plain_items.arms if arm.k}
    right: dict[str, dict[str, float]] = {}  # evaluation -> tool -> percent right
    for row in rows_of(Path(tool_items.snapshot), sql):
        right.setdefault(row["evaluation"], {})[row["tool"]] = row["right"]
    perplexities = {figures.arm: figures.perplexity for figures in perplexity.perplexities}
    return [
        DemoRow(
            arm=arm.arm,
            k=arm.k,
            right={**right.get(arm.evaluation, {}), "all": 100 * arm.accuracy},
            called=100 * arm.call_rate,
            needless=needless.get((arm.arm, arm.k)),
            perplexity=None if arm.k else perplexities.get(arm.arm),
        )
        for arm in tool_items.arms
    ]
