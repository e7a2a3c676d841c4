"""The commands `evaluate` and `tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.build import Runner, run_flow
from cli.commands.warehouse import built_store
from cli.options import AsJson, Data, with_options
from cli.terminal import print_json
from flows.evaluate.parameters import EvaluateParameters
from flows.report.commands import sql_command
from tasks.settings import data_folder

if TYPE_CHECKING:
    from flows.evaluate.metrics import EvaluateResult


@with_options(EvaluateParameters)
def evaluate(parameters: EvaluateParameters, runner: Runner = None, as_json: AsJson = False) -> None:
    """Run a benchmark on a model, with tools and without. Run it again to resume.

    Example: toolformer evaluate --task svamp --path SVAMP.json --model EleutherAI/gpt-j-6b --k 0,1,3,10
    """
    result = run_flow("flows.evaluate", "run_evaluate", parameters, runner, quiet=as_json)
    print_json(result) if as_json else _print_result(result)


def _print_result(result: EvaluateResult) -> None:
    from cli.render.console import Console, counted, shards_line
    from cli.render.tables import print_tables
    from flows.evaluate.metrics import table_of

    console = Console()
    print_tables([table_of(result)])
    if result.paper:
        figures = ", ".join(f"{name} {value:g}" for name, value in result.paper.items())
        console.print(f"The paper: {figures}")
    elif result.perplexities:
        console.print(
            "The paper measured WikiText and CCNet, and this text is not known to be one of them, so no figure of the "
            "paper is shown. If it is WikiText: --task wikitext."
        )
    if result.rejected:
        console.print(f"Rows left out: {counted(result.rejected)} (with their lines in the table rejects)")
    console.print(shards_line(result))
    console.say(f"MLflow run {result.mlflow_run}: {result.runs_view}")
    view = "perplexity" if result.perplexities else "accuracy"
    console.say(f"Ask it anything: {sql_command(result.snapshot, f'FROM {view}')}")


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
    from cli.render.tables import print_tables
    from flows.evaluate.tables import paper_tables
    from warehouse.marks import read_marks
    from warehouse.snapshot.publish import SNAPSHOT

    store = built_store(data)
    reproduced = paper_tables(store.local_folder / SNAPSHOT, data_folder(data), model, read_marks(store)[0])
    print_json(reproduced) if as_json else print_tables(reproduced)
