"""Prints tables of results in a terminal: the paper's, and those of an evaluation or a grounding."""

from collections.abc import Sequence

from rich.markup import escape

from cli.render.console import Console, narrow_table, shards_line
from flows.evaluate.metrics import EvaluateResult, table_of
from flows.report.commands import sql_command
from flows.report.tables import Cell, ResultTable, counted, shown


def print_tables(tables: Sequence[ResultTable]) -> None:
    """Print the tables, with our figure and the paper's in one cell; below each, the commands that would fill gaps."""
    console = Console()
    for one in tables:
        columns, rows = _merge_pairs(one)
        legend = " (ours / the paper's)" if len(columns) < len(one.columns) else ""
        name = f"[bold]{one.name}.[/bold] " if one.name else ""
        console.print(f"{name}{escape(one.title)}{legend}")
        table = narrow_table()
        for index, name in enumerate(columns):
            right = index > 0 and one.name != "Table 10"
            # Table 9 has the longest row names: there the names are wrapped, and figures never are.
            no_wrap = not one.name or (index > 0 if one.name == "Table 9" else index == 0)
            table.add_column(escape(name), justify="right" if right else "left", no_wrap=no_wrap)
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
        for line in (*one.notes, *(f"-: {command}" for command in one.missing)):
            console.say(f"  {line}")
        console.print()


def print_evaluation(result: EvaluateResult) -> None:
    """Print the figures of an evaluation, and where to find more."""
    console = Console()
    print_tables([table_of(result)])
    if result.paper:
        figures = ", ".join(f"{name} {value:g}" for name, value in result.paper.items())
        console.print(f"The paper: {figures}")
    elif result.perplexities:
        console.print("No figure of the paper: only if the text is WikiText can they be compared, --task wikitext.")
    if result.rejected:
        console.print(f"Rows left out: {counted(result.rejected)} (with their lines in the table rejects)")
    console.print(shards_line(result))
    console.say(f"MLflow run {result.mlflow_run}: {result.runs_view}")
    view = "perplexity" if result.perplexities else "accuracy"
    console.say(f"Ask it anything: {sql_command(result.snapshot, f'FROM {view}')}")


def _merge_pairs(table: ResultTable) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows as texts, with every column "paper" merged into the column before it."""
    merged = [index for index, name in enumerate(table.columns) if index and name == "paper"]
    if table.name == "Table 10":  # which has no pairs: its figures of the paper stand in a column of their own
        merged = []
    remaining = [index for index in range(len(table.columns)) if index not in merged]

    def cell(row: Sequence[Cell], index: int) -> str:
        if index + 1 in merged:
            return f"{shown(row[index])} / {shown(row[index + 1])}"
        return shown(row[index])

    return [table.columns[i] for i in remaining], [[cell(row, i) for i in remaining] for row in table.rows]
