"""The commands `evaluate` and `tables`. `cli` puts them into the one command line.

They import what they need when they run, and answer a mistake before anything is started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli_build import DaskWorkers, Gpus, Runner, runner_options
from flows.cli_warehouse import built_store
from flows.terminal import print_json, stopping_at_once, tell_failures_once, validated
from tasks.settings import data_folder, prepare

if TYPE_CHECKING:
    from flows.evaluated import ArmFigures, EvaluateResult
    from flows.evaluation_plan import EvaluateParameters

__all__ = ["evaluate", "run_evaluations", "tables"]

Data = Annotated[
    str | None, typer.Option("--data", help="Data folder or URL (default: $TOOLFORMER_DATA, else ./toolformer-data)")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]

_NO_FIGURE = "-"


def evaluate(
    task: Annotated[str, typer.Option(help="svamp, gsm8k, nq, webqs, mlqa-de, dateset, perplexity, small-world, ...")],
    path: Annotated[
        Path | None, typer.Option(help="Its published file or folder (default: generated, embedded, else the hub)")
    ] = None,
    data: Data = None,
    model: Annotated[
        str, typer.Option(help="The base: 'embedded', a folder written by save_pretrained, or a hub name")
    ] = "embedded",
    cc: Annotated[
        str | None, typer.Option(help="M + CC: a model's or a finetune job's folder (default: the newest there)")
    ] = None,
    toolformer: Annotated[str | None, typer.Option(help="Toolformer: as for --cc")] = None,
    arms: Annotated[
        str,
        typer.Option(
            help="Of base, base+tools, cc, toolformer, toolformer-disabled (default: those whose models are there)"
        ),
    ] = "",
    k: Annotated[
        str,
        typer.Option(help="With tools: a call starts where ' [' is among the k likeliest (paper: 10), e.g. 0,1,3,10"),
    ] = "10",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Ask at most this many items: a file's first, a folder's files in turn")
    ] = None,
    tools: Annotated[
        str, typer.Option(help="Comma-separated; what a task leaves out is never offered")
    ] = "calculator,calendar,wikisearch,qa,mt",
    passages: Annotated[Path | None, typer.Option(help="JSONL of title, section, text for wikisearch and qa")] = None,
    phrases: Annotated[Path | None, typer.Option(help="Phrase table for mt")] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of text per item (default: by the task's rule)")
    ] = None,
    shard_items: Annotated[int, typer.Option(min=1, help="Items per shard, the unit of work and of restart")] = 64,
    workers: Annotated[int, typer.Option(min=1, help="Shards at a time (threads), or Dask workers")] = 1,
    runner: Runner = None,
    dask_workers: DaskWorkers = None,
    gpus: Gpus = None,
    as_json: AsJson = False,
) -> None:
    """Put a benchmark to a model, with tools and without. Stop it at any time; run it again to go on.

    Example: toolformer evaluate --task svamp --path SVAMP.json --model EleutherAI/gpt-j-6b --k 0,1,3,10
    """
    folder = data_folder(data)
    runner, workers = runner_options(runner, workers, dask_workers, gpus)
    prepare()
    from flows.evaluation_plan import EvaluateParameters, plan_evaluate

    parameters = validated(
        EvaluateParameters,
        task=task,
        path=str(path) if path else None,
        data=folder,
        model=model,
        cc=cc,
        toolformer=toolformer,
        arms=_listed(arms),
        k=[_figure(part) for part in _listed(k)],
        limit=limit,
        tools=_listed(tools),
        passages=str(passages) if passages else None,
        phrases=str(phrases) if phrases else None,
        max_new_tokens=max_new_tokens,
        shard_items=shard_items,
        workers=workers,
        gpus=gpus,
    )
    plan_evaluate(parameters)
    prepare(folder)
    (result,) = run_evaluations([parameters], runner, quiet=as_json)
    if as_json:
        print_json(_without_nan(asdict(result)))
    else:
        _print_evaluated(result)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _figure(text: str) -> int:
    from toolformer_core.errors import UsageError

    if not text.isdecimal():
        raise UsageError(f"--k: {text!r} is no figure; write e.g. 0,1,3,10")
    return int(text)


def run_evaluations(
    asked: Sequence[EvaluateParameters], runner: str | None = None, *, quiet: bool
) -> list[EvaluateResult]:
    """Run evaluations one after another with their progress shown."""
    from flows.disk import naming_full_disk
    from flows.server import await_server, begin_server

    with naming_full_disk(asked[0].data):
        begin_server()
        from flows.display import BuildDisplay
        from flows.evaluate import run_evaluate
        from flows.ledger import reporting_to

        await_server()
        tell_failures_once()
        results = []
        for parameters in asked:
            with BuildDisplay(quiet=quiet) as display, reporting_to(display), stopping_at_once(display):
                results.append(run_evaluate(parameters, runner))
        return results


def _without_nan(value: Any) -> Any:
    """JSON knows no nan."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and value != value else value


def _percent(value: float) -> str:
    return _NO_FIGURE if value != value else f"{100 * value:.1f}"


def _print_evaluated(result: EvaluateResult) -> None:
    """Print the figures of every arm, the paper's below, and where the rest lies."""
    from rich.markup import escape

    from flows.console import Console

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
    from flows.tables import paper_tables, print_tables
    from warehouse.snapshot import SNAPSHOT

    found = paper_tables(built_store(data).beside / SNAPSHOT, data_folder(data), model)
    if as_json:
        print_json([asdict(table) for table in found])
    else:
        print_tables(found)
