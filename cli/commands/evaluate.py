"""The commands `evaluate` and `tables`."""

from typing import Annotated

from typer import Option

from cli.commands.build import Runner, run_flow
from cli.commands.warehouse import built_store
from cli.options import AsJson, Data, with_options
from cli.terminal import print_json
from flows.evaluate.parameters import EvaluateParameters
from tasks.settings import data_folder


@with_options(EvaluateParameters)
def evaluate(parameters: EvaluateParameters, runner: Runner = None, as_json: AsJson = False) -> None:
    """Run a benchmark on a model, with tools and without. Run it again to resume.

    Example: toolformer evaluate --task svamp --path SVAMP.json --model EleutherAI/gpt-j-6b --k 0,1,3,10
    """
    result = run_flow("flows.evaluate", "run_evaluate", parameters, runner, quiet=as_json)
    from cli.render.tables import print_evaluation

    print_json(result) if as_json else print_evaluation(result)


def tables(
    data: Data = None,
    model: Annotated[str | None, Option(help="The base model that evaluate was given (default: the last)")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the paper's Tables 2 to 10, shares of calls and Figure 4: our figures, from what was run, beside its own.

    Example: toolformer tables --data runs/c4
    """
    from cli.render.tables import print_tables
    from flows.evaluate.tables import paper_tables
    from warehouse.ratings import read_ratings
    from warehouse.snapshot.publish import SNAPSHOT

    store = built_store(data)
    reproduced = paper_tables(store.local_folder / SNAPSHOT, data_folder(data), model, read_ratings(store)[0])
    print_json(reproduced) if as_json else print_tables(reproduced)
