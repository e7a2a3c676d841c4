"""The commands `run`, an experiment as one file, and `demo`, the one that ships."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from cli.commands.build import Runner, checked_runner, flow_module, showing_shards
from cli.commands.finetune import showing_trainings
from cli.options import AsJson, Data, with_options
from cli.terminal import print_json
from flows.finetune.parameters import FinetuneParameters
from flows.recipe.parameters import RecipeParameters
from tasks.environment import prepare_environment
from tasks.settings import data_folder
from toolformer_core.errors import UsageError

if TYPE_CHECKING:
    from flows.evaluate.metrics import ArmFigures, EvaluateResult
    from flows.recipe.flow import RecipeResult


@with_options(RecipeParameters)
def run(
    parameters: RecipeParameters,
    plan: Annotated[bool, Option("--plan", help="Say what is done and what is to do; change nothing")] = False,
    runner: Runner = None,
    as_json: AsJson = False,
) -> None:
    """Run a recipe: builds, trainings, evaluations and exports in one file. Run it again to resume.

    Its steps are the flows, with the parameters of their commands, and name what they take from each other:

        steps:
          build: {corpus: c4.jsonl, model: EleutherAI/gpt-j-6b, tools: \\[calculator, qa]}
          finetune: {dataset: build, model: EleutherAI/gpt-j-6b, arm: \\[toolformer, cc]}
          evaluate.svamp: {task: svamp, toolformer: finetune.toolformer, cc: finetune.cc}

    All of it is checked before anything starts. Its results are one page, in Markdown and HTML, in the data folder.

    Example: toolformer run demo --plan

    Example: toolformer run experiment.yaml --data runs/c4
    """
    prepare_environment()
    if plan:
        from cli.render.progress import print_recipe_plan
        from flows.recipe.plan import plan_recipe

        planned = plan_recipe(parameters)
        print_json(planned) if as_json else print_recipe_plan(planned)
        return
    result = run_and_show(parameters, checked_runner(runner, workers=1), quiet=as_json)
    from cli.render.progress import print_recipe

    print_json(result) if as_json else print_recipe(result, parameters.data)


def run_and_show(parameters: RecipeParameters, runner: str | None = None, *, quiet: bool) -> RecipeResult:
    """Check a recipe, which starts nothing if something is wrong, run it, and show the progress of its steps."""
    from flows.recipe.resolve import resolve

    recipe = resolve(parameters)
    prepare_environment(parameters.data)
    show = partial(_show, quiet=quiet)
    with flow_module("flows.recipe.flow", parameters, recipe) as module, module.observed_by(show):
        result: RecipeResult = module.run_recipe(parameters, runner)
    return result


@contextmanager
def _show(forms: Sequence[Any], *, quiet: bool) -> Iterator[Any]:
    """Show the progress of steps that run side by side, and end them on a signal."""
    if isinstance(forms[0], FinetuneParameters):
        from flows.finetune.resolve import resolve
        from flows.forms.resolved import use_resolved

        plans = [resolve(form) for form in forms]
        with use_resolved(*zip(forms, plans, strict=True)), showing_trainings(plans, quiet=quiet) as report:
            yield report
        return
    with showing_shards(quiet=quiet):
        yield None


def demo(
    data: Data = None,
    model: Annotated[str, Option(help="'embedded', or a folder or hub name of your own")] = "embedded",
    limit: Annotated[int | None, Option(min=10, help="At most this many documents, training steps and items")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the whole loop once, small, on the embedded model and corpus. Needs no network and no server.

    It is the recipe demo: see toolformer run.

    Example: toolformer demo --data /tmp/demo

    Example: toolformer demo --data /tmp/short --limit 20
    """
    prepare_environment()
    folder = data_folder(data)
    result = run_and_show(RecipeParameters(recipe="demo", data=folder, model=model, limit=limit), quiet=as_json)
    results = result.results
    if result.left_out:
        raise UsageError(f"build: {' '.join(results['build'].nothing_kept)}")
    items, plain_items, perplexity = (results[f"evaluate.{name}"] for name in ("items", "plain-items", "perplexity"))
    table = demo_table(items, plain_items, perplexity)
    trainings = [results[f"finetune.{arm}"] for arm in ("toolformer", "cc")]
    if as_json:
        print_json({"table": table, "trainings": trainings})
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
    """Return the table that ends the demo, from the predictions in the warehouse."""
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
