"""The commands `evaluate` and `tables`. `cli.main` registers them.

They import what they need when they run, and report mistakes before anything is started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.build import DaskWorkers, Runner, runner_options
from cli.options import AsJson, Data, with_options
from cli.terminal import exit_on_signal, hide_logged_failures, print_json
from cli.warehouse import built_store
from flows.evaluate.parameters import EvaluateParameters
from tasks.settings import data_folder, prepare_environment

if TYPE_CHECKING:
    from flows.evaluate.metrics import ArmFigures, EvaluateResult

__all__ = ["evaluate", "run_evaluations", "tables"]

_NO_FIGURE = "-"


@with_options(EvaluateParameters)
def evaluate(
    parameters: EvaluateParameters, runner: Runner = None, dask_workers: DaskWorkers = None, as_json: AsJson = False
) -> None:
    """Put a benchmark to a model, with tools and without. Stop it at any time; run it again to go on.

    Example: toolformer evaluate --task svamp --path SVAMP.json --model EleutherAI/gpt-j-6b --k 0,1,3,10
    """
    prepare_environment()
    runner, workers = runner_options(runner, parameters.workers, dask_workers, parameters.gpus)
    asked = parameters.model_copy(update={"workers": workers})
    from flows.evaluate.resolve import resolve

    resolve(asked)
    prepare_environment(asked.data)
    (result,) = run_evaluations([asked], runner, quiet=as_json)
    if as_json:
        print_json(_without_nan(asdict(result)))
    else:
        _print_evaluated(result)


def run_evaluations(
    asked: Sequence[EvaluateParameters], runner: str | None = None, *, quiet: bool
) -> list[EvaluateResult]:
    """Run evaluations one after another and show their progress."""
    from flows.disk import explain_full_disk
    from flows.server import start_server, wait_for_server

    with explain_full_disk(asked[0].data):
        start_server()
        from cli.render.progress import BuildDisplay
        from flows.evaluate.flow import run_evaluate
        from flows.ledger import reporting_to

        wait_for_server()
        hide_logged_failures()
        results = []
        for parameters in asked:
            with BuildDisplay(quiet=quiet) as display, reporting_to(display), exit_on_signal(display):
                results.append(run_evaluate(parameters, runner))
        return results


def _without_nan(value: Any) -> Any:
    """Return a value with null in place of nan, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and value != value else value


def _percent(value: float) -> str:
    return _NO_FIGURE if value != value else f"{100 * value:.1f}"


def _print_evaluated(result: EvaluateResult) -> None:
    """Print the figures of every arm, the paper's figures, and where to find more."""
    from rich.markup import escape

    from cli.render.console import Console

    console = Console()
    _print_arms(console, result)
    if result.perplexities:
        _print_perplexities(console, result)
    if result.paper:
        told = ", ".join(f"{name} {value:g}" for name, value in result.paper.items())
        console.print(f"The paper: {told}", highlight=False)
    elif result.perplexities:
        console.print(
            "The paper measured WikiText and CCNet, and this text is not known to be one of them, so no figure of the "
            "paper is shown. If it is WikiText: --task wikitext.",
            highlight=False,
        )
    if result.rejected:
        told = ", ".join(f"{reason} {n:,}" for reason, n in result.rejected.items())
        console.print(f"Rows left out: {told} (with their lines in the table rejects)", highlight=False)
    found = f", {result.skipped} found done" if result.skipped else ""
    console.print(f"{result.done} shards worked on{found}, {result.seconds:.0f} s.", highlight=False)
    console.print(f"MLflow run {result.mlflow_run} in {escape(result.tracking)}", soft_wrap=True, highlight=False)
    view = "perplexity" if result.perplexities else "accuracy"
    ask = f'duckdb -readonly {escape(result.snapshot)} "FROM {view}"'
    console.print(f"Ask it anything: {ask}", soft_wrap=True, highlight=False)


def _print_arms(console: Any, result: EvaluateResult) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    if not result.arms:
        return
    told = " ".join(filter(None, (result.title, result.source)))
    title = f"{escape(told)}: percent right of {result.items:,} items"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("arm", no_wrap=True)
    for name in ("right", "95 %", "calls", "with", "without", "p", "p (off)"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in result.arms:
        interval = f"{_percent(one.low)}-{_percent(one.high)}"
        split = [_percent(share) for share in (one.call_rate, one.accuracy_called, one.accuracy_uncalled)]
        table.add_row(_label(one), _percent(one.accuracy), interval, *split, *_tests(one))
    console.print(table)
    told = (
        "calls: percent of items with a call; right with one, and without; p: McNemar's exact test against the base, "
    )
    console.print(told + "and against the same model with tools off.", highlight=False)
    for one in result.arms:
        if one.rates:
            called = ", ".join(f"{tool} {_percent(rate)}" for tool, rate in one.rates.items())
            console.print(f"{_label(one)} called, percent of items: {called}", highlight=False)
    if failed := max(one.failed for one in result.arms):
        console.print(f"{failed} items do not fit into the model's context; they count as wrong.", highlight=False)


def _label(one: ArmFigures) -> str:
    return f"{one.arm}, k={one.k}" if one.k else one.arm


def _tests(one: ArmFigures) -> list[str]:
    return [_NO_FIGURE if c is None else f"{c.p:.2g}" for c in (one.versus_base, one.versus_disabled)]


def _print_perplexities(console: Any, result: EvaluateResult) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    title = f"{escape(result.title)} {escape(result.source)}, tools disabled"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("arm")
    for name in ("texts", "tokens", "perplexity"):
        table.add_column(name, justify="right")
    for one in result.perplexities:
        figure = _NO_FIGURE if one.perplexity != one.perplexity else f"{one.perplexity:.3f}"
        table.add_row(one.arm, f"{one.texts:,}", f"{one.tokens:,}", figure)
    console.print(table)


def tables(
    data: Data = None,
    model: Annotated[
        str | None, typer.Option(help="The base model, as it was named to evaluate (default: the last one evaluated)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The paper's Tables 2 to 10 and Figure 4 from what has been run, beside the paper's figures.

    Example: toolformer tables --data runs/c4
    """
    from cli.render.paper_tables import print_tables
    from flows.evaluate.tables import paper_tables
    from warehouse.snapshot.publish import SNAPSHOT

    found = paper_tables(built_store(data).local_folder / SNAPSHOT, data_folder(data), model)
    if as_json:
        print_json([asdict(table) for table in found])
    else:
        print_tables(found)
