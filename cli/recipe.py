"""The command `run`: an experiment as one file. `cli.main` registers it; `demo` runs a recipe by `run_and_show`.

It imports what it needs when it runs, and reports mistakes before anything is started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.build import Runner, checked_runner, flow_module, showing_shards
from cli.finetune import showing_trainings
from cli.options import AsJson, with_options
from cli.terminal import print_json
from flows.finetune.parameters import FinetuneParameters
from flows.recipe.parameters import RecipeParameters
from tasks.environment import prepare_environment

if TYPE_CHECKING:
    from flows.recipe.flow import RecipeResult

__all__ = ["run", "run_and_show"]


@with_options(RecipeParameters)
def run(
    parameters: RecipeParameters,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say which steps are done and which are to do, and stop; changes nothing")
    ] = False,
    runner: Runner = None,
    as_json: AsJson = False,
) -> None:
    """Run an experiment that stands in one file: builds, trainings, evaluations, exports. Run it again to go on.

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
        from cli.render.recipe import print_recipe_plan
        from flows.recipe.plan import plan_recipe

        planned = plan_recipe(parameters)
        print_json(asdict(planned)) if as_json else print_recipe_plan(planned)
        return
    name = checked_runner(runner, workers=1)
    result = run_and_show(parameters, name, quiet=as_json)
    if as_json:
        print_json(asdict(result))
    else:
        from cli.render.recipe import print_recipe_result

        print_recipe_result(result)


def run_and_show(parameters: RecipeParameters, runner: str | None = None, *, quiet: bool) -> RecipeResult:
    """Check a recipe, run it, and show the progress of its steps.

    Raises:
        UsageError: something in it is wrong; nothing was started or written.
        typer.Exit: a signal asked its trainings to stop, and they have stopped.
        Stopped: so did something else.
    """
    from flows.recipe.resolve import resolve

    recipe = resolve(parameters)
    prepare_environment(parameters.data)
    with (
        flow_module("flows.recipe.flow", parameters, recipe) as module,
        module.observed_by(partial(_show, quiet=quiet)),
    ):
        result: RecipeResult = module.run_recipe(parameters, runner)
    return result


@contextmanager
def _show(forms: Sequence[Any], *, quiet: bool) -> Iterator[Any]:
    """Show the progress of steps that run side by side, and end them as asked to."""
    if isinstance(forms[0], FinetuneParameters):
        from flows.finetune.resolve import resolve
        from flows.forms.resolved import use_resolved

        plans = [resolve(form) for form in forms]
        with use_resolved(*zip(forms, plans, strict=True)), showing_trainings(plans, quiet=quiet) as report:
            yield report
        return
    with showing_shards(quiet=quiet):
        yield None
