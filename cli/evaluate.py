"""The commands `evaluate` and `tables`. `cli.main` registers them.

They import what they need when they run, and report mistakes before anything is started.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.build import Runner, checked_runner, flow_module, showing_shards
from cli.options import AsJson, Data, with_options
from cli.terminal import print_json
from cli.warehouse import built_store
from flows.commands import sql_command
from flows.evaluate.parameters import EvaluateParameters
from tasks.environment import prepare_environment
from tasks.settings import data_folder

if TYPE_CHECKING:
    from flows.evaluate.metrics import ArmFigures, EvaluateResult


_NO_FIGURE = "-"


@with_options(EvaluateParameters)
def evaluate(parameters: EvaluateParameters, runner: Runner = None, as_json: AsJson = False) -> None:
    """Put a benchmark to a model, with tools and without. Stop it at any time; run it again to go on.

    Example: toolformer evaluate --task svamp --path SVAMP.json --model EleutherAI/gpt-j-6b --k 0,1,3,10
    """
    prepare_environment()
    runner = checked_runner(runner, parameters.workers, parameters.gpus)
    from flows.evaluate.resolve import resolve

    plan = resolve(parameters)
    prepare_environment(parameters.data)
    with flow_module("flows.evaluate.flow", parameters, plan) as module, showing_shards(quiet=as_json):
        result = module.run_evaluate(parameters, runner)
    if as_json:
        print_json(asdict(result))
    else:
        _print_result(result)


def _format_percent(share: float) -> str:
    return _NO_FIGURE if share != share else f"{100 * share:.1f}"


def _format_number(number: float | None) -> str:
    return _NO_FIGURE if number is None or number != number else f"{number:.2f}"


def _print_result(result: EvaluateResult) -> None:
    """Print the figures of every arm, the paper's figures, and where to find more."""
    from rich.markup import escape

    from cli.render.console import Console

    console = Console()
    _print_arms(console, result)
    if result.perplexities:
        _print_perplexities(console, result)
    if result.paper:
        figures = ", ".join(f"{name} {value:g}" for name, value in result.paper.items())
        console.print(f"The paper: {figures}", highlight=False)
    elif result.perplexities:
        console.print(
            "The paper measured WikiText and CCNet, and this text is not known to be one of them, so no figure of the "
            "paper is shown. If it is WikiText: --task wikitext.",
            highlight=False,
        )
    if result.rejected:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in result.rejected.items())
        console.print(f"Rows left out: {reasons} (with their lines in the table rejects)", highlight=False)
    skipped = f", {result.skipped} found done" if result.skipped else ""
    console.print(f"{result.done} shards worked on{skipped}, {result.seconds:.0f} s.", highlight=False)
    console.print(f"MLflow run {result.mlflow_run} in {escape(result.tracking)}", soft_wrap=True, highlight=False)
    view = "perplexity" if result.perplexities else "accuracy"
    command = sql_command(result.snapshot, f"FROM {view}")
    console.print(f"Ask it anything: {command}", soft_wrap=True, highlight=False, markup=False)


def _print_arms(console: Any, result: EvaluateResult) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    if not result.arms:
        return
    benchmark = " ".join(filter(None, (result.title, result.source)))
    title = f"{escape(benchmark)}: percent right of {result.items:,} items"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("arm", no_wrap=True)
    several = any(arm.calls_per_item is not None for arm in result.arms)
    per_item = ["per item"] if several else []
    for name in ("right", "95 %", "calls", *per_item, "with", "without", "p", "p (off)"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm in result.arms:
        interval = f"{_format_percent(arm.low)}-{_format_percent(arm.high)}"
        made = [_format_number(arm.calls_per_item)] if several else []
        split = [_format_percent(share) for share in (arm.accuracy_called, arm.accuracy_uncalled)]
        calls = [_format_percent(arm.call_rate), *made]
        table.add_row(_label_of(arm), _format_percent(arm.accuracy), interval, *calls, *split, *_p_values(arm))
    console.print(table)
    legend = "calls: percent of items with a call; " + ("per item: calls of an item, on average; " if several else "")
    legend += "right with one, and without; p: McNemar's exact test against the base, "
    console.print(legend + "and against the same model with tools off.", highlight=False)
    for arm in result.arms:
        if arm.rates:
            rates = ", ".join(f"{tool} {_format_percent(rate)}" for tool, rate in arm.rates.items())
            console.print(f"{_label_of(arm)} called, percent of items: {rates}", highlight=False)
    for arm in result.arms:
        if arm.operands is not None:
            interval = f"{_format_percent(arm.operands.low)}-{_format_percent(arm.operands.high)}"
            console.print(
                f"{_label_of(arm)}: random pairs of the problems' numbers with its operators would be right in "
                f"{_format_percent(arm.operands.value)} % ({interval}); its calls give the answer in "
                f"{_format_percent(arm.right_calls or 0.0)} % of the items with one",
                highlight=False,
            )
    if failed := max(arm.failed for arm in result.arms):
        console.print(f"{failed} items do not fit into the model's context; they count as wrong.", highlight=False)


def _label_of(arm: ArmFigures) -> str:
    return f"{arm.arm}, k={arm.k}" if arm.k else arm.arm


def _p_values(arm: ArmFigures) -> list[str]:
    return [_NO_FIGURE if test is None else f"{test.p:.2g}" for test in (arm.versus_base, arm.versus_disabled)]


def _print_perplexities(console: Any, result: EvaluateResult) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    title = f"{escape(result.title)} {escape(result.source)}, tools disabled"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("arm")
    for name in ("texts", "tokens", "perplexity"):
        table.add_column(name, justify="right")
    for row in result.perplexities:
        perplexity = _NO_FIGURE if row.perplexity != row.perplexity else f"{row.perplexity:.3f}"
        table.add_row(row.arm, f"{row.texts:,}", f"{row.tokens:,}", perplexity)
    console.print(table)


def tables(
    data: Data = None,
    model: Annotated[
        str | None, typer.Option(help="The base model, as it was named to evaluate (default: the last one evaluated)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the paper's Tables 2 to 10, shares of calls and Figure 4: our figures, from what was run, beside its own.

    Example: toolformer tables --data runs/c4
    """
    from cli.render.paper_tables import print_tables
    from flows.evaluate.tables import paper_tables
    from warehouse.marks import read_marks
    from warehouse.snapshot.publish import SNAPSHOT

    store = built_store(data)
    reproduced = paper_tables(store.local_folder / SNAPSHOT, data_folder(data), model, read_marks(store)[0])
    if as_json:
        print_json([asdict(table) for table in reproduced])
    else:
        print_tables(reproduced)
