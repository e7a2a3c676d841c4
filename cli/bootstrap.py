"""The command `bootstrap`. `cli.main` registers it.

It imports what it needs when it runs, and reports mistakes before anything is started.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.build import DaskWorkers, Runner, runner_options
from cli.options import AsJson, with_options
from cli.terminal import exit_on_signal, hide_logged_failures, print_json
from flows.bootstrap.parameters import BootstrapParameters
from tasks.environment import prepare_environment

if TYPE_CHECKING:
    from flows.bootstrap.flow import BootstrapResult
    from flows.bootstrap.plan import RoundsPlan

__all__ = ["bootstrap"]


@with_options(BootstrapParameters)
def bootstrap(
    parameters: BootstrapParameters,
    runner: Runner = None,
    dask_workers: DaskWorkers = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the rounds would cost at most, and stop")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Teach a model in rounds: annotate, finetune, and annotate again with the model that came of it.

    From round 1 on the finetuned model samples, the base model scores, and a fresh base model is finetuned. Each
    round is a dataset, a training and, with --task, evaluations; all are runs in MLflow below one. It stops when a
    round gains nothing. Stop it at any time; run it again to go on.

    Example: toolformer bootstrap --corpus c4.jsonl --model EleutherAI/gpt-j-6b --rounds 3 --task svamp=SVAMP.json
    """
    prepare_environment()
    runner, workers = runner_options(runner, parameters.workers, dask_workers, parameters.gpus)
    parameters = parameters.model_copy(update={"workers": workers})
    from flows.bootstrap.plan import plan_rounds

    plan = plan_rounds(parameters)  # finds mistakes before anything is started
    if dry_run:
        print_json(asdict(plan)) if as_json else _print_plan(plan)
        return
    prepare_environment(parameters.data)
    from flows.disk import explain_full_disk
    from flows.server import start_server, wait_for_server

    with explain_full_disk(parameters.data):
        start_server()
        from cli.render.progress import BuildDisplay
        from flows.bootstrap.flow import run_bootstrap
        from flows.ledger import reporting_to

        wait_for_server()
        hide_logged_failures()
        with BuildDisplay(quiet=as_json) as display, reporting_to(display), exit_on_signal(display):
            result = run_bootstrap(parameters, runner)
    if as_json:
        print_json(asdict(result))
    else:
        _print_result(result)


def _print_plan(plan: RoundsPlan) -> None:
    print(f"{plan.rounds} rounds on {plan.documents:,} documents, at most:")
    print(f"  annotation  {plan.lm_tokens:,.0f} LM tokens, {plan.tool_calls:,.0f} calls of tools")
    print(f"              {plan.annotation_hours:.2f} hours")
    print(f"  training    {plan.trained_tokens:,.0f} tokens, {plan.training_hours:.2f} hours")
    print("toolformer plan --documents N tells every number behind these and what they rest on")


def _print_result(result: BootstrapResult) -> None:
    from rich.markup import escape

    from cli.render.console import Console, narrow_table

    console = Console(highlight=False, soft_wrap=True)
    table = narrow_table("Rounds")
    figures = ("round", "examples", "well-formed", "calls/1,000 docs", "calls/M tokens", "dev ppl", "accuracy")
    for name in figures:
        table.add_column(name, justify="right")
    for one in result.rounds:
        well_formed = f"{one.well_formed / one.draws:.2f}" if one.draws else "-"
        rates = (f"{one.calls_per_thousand:.1f}", f"{one.calls_per_million_tokens:.1f}")
        measured = ("-" if value is None else f"{value:.3f}" for value in (one.dev_perplexity, one.accuracy))
        table.add_row(str(one.number), f"{one.examples:,}", well_formed, *rates, *measured)
    console.print(table)
    console.print(f"stopped: {escape(result.stopped)}")
    for one in result.rounds:
        model = f", taught {one.checkpoint}" if one.checkpoint else ""
        by = f"sampled by {one.sampled_by}, scored by {one.scored_by}"
        console.print(escape(f"round {one.number}: {one.dataset}, {by}{model}"))
