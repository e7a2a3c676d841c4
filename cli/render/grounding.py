"""Prints what grounding found: of one query the ranking and the reason, of benchmarks the paper's tables and costs."""

from rich.markup import escape

from cli.render.console import Console, narrow_table, shards_line
from cli.render.tables import print_tables
from flows.ground.metrics import GroundResult
from flows.ground.tables import confusion_table, cost_table, grounding_tables, size_table
from flows.report.commands import sql_command
from flows.report.tables import counted
from toolformer_core.api.grounding import GroundedAnswer, GroundedQuery

_SHOWN_CHARS = 48  # of a call or a response


def print_ranking(result: GroundedQuery | GroundedAnswer) -> None:
    """Print the tools for a query, best first, and the answer if there is one."""
    query = result.grounded if isinstance(result, GroundedAnswer) else result
    console = Console()
    table = narrow_table("", ["tool"], ("total", "semantic", "pattern"))
    for name in ("call", "preliminary answer"):
        table.add_column(name)
    for one in query.tools:
        response = one.failure if one.failure else one.response + (" (stored example)" if one.mock else "")
        figures = [f"{value:.3f}" for value in (one.total, one.semantic, one.pattern)]
        table.add_row(escape(one.tool), *figures, escape(_short(one.call)), escape(_short(response)))
    console.print(table)
    lines = [f"Without a tool the small LM answers: {query.answer or 'nothing'}", f"Chosen: {query.reason}"]
    if isinstance(result, GroundedAnswer):
        called = f"{query.tool}({result.call}) -> " if query.tool and not result.failure else ""
        lines.append(f"Answer: {called}{result.text}" if not result.failure else f"No answer: {result.failure}")
    for line in lines:
        console.say(line)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def print_grounding(result: GroundResult) -> None:
    """Print the figures of a grounding."""
    tables = [*grounding_tables(result), confusion_table(result)]
    if len(result.sizes) > 1:
        tables.append(size_table(result))
    print_tables([*tables, cost_table(result)])
    console = Console()
    if (rejected := result.rejection) is not None:
        found = f"precision {_percent(rejected.precision)} %, recall {_percent(rejected.recall)} %"
        console.say(f"No tool below a score of {rejected.threshold:g}: {found}.")
    for one in result.tasks:
        if one.rejected:
            console.say(f"{one.task}: rows left out: {counted(one.rejected)} (with their lines in the table rejects)")
    console.say(shards_line(result))
    console.say(f"MLflow run {result.mlflow_run}: {result.runs_view}")
    console.say(f"Try other weights: {sql_command(result.snapshot, 'FROM grounding_accuracy(0.5, 1)')}")


def _percent(share: float) -> str:
    return "-" if share != share else f"{100 * share:.1f}"
