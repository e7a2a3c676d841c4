"""Prints the paper's tables in a terminal. It does nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from cli.render.console import Console
from flows.evaluate.tables import Cell, PaperTable


def print_tables(paper_tables: Sequence[PaperTable]) -> None:
    """Print the tables, with our figure and the paper's in one cell; below each, the commands that would fill gaps."""
    console = Console()
    for paper_table in paper_tables:
        columns, rows = _merge_pairs(paper_table)
        legend = " (ours / the paper's)" if len(columns) < len(paper_table.columns) else ""
        console.print(f"[bold]{paper_table.name}.[/bold] {escape(paper_table.title)}{legend}", highlight=False)
        table = Table(box=SIMPLE_HEAD)
        for index, name in enumerate(columns):
            right = index > 0 and paper_table.name != "Table 10"
            # Table 9 has the longest row names: there the names are wrapped, and figures never are.
            no_wrap = index > 0 if paper_table.name == "Table 9" else index == 0
            table.add_column(escape(name), justify="right" if right else "left", no_wrap=no_wrap)
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
        for line in (*paper_table.notes, *(f"-: {command}" for command in paper_table.missing)):
            console.print(escape(f"  {line}"), soft_wrap=True, highlight=False)
        console.print()


def _merge_pairs(table: PaperTable) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows as texts, with every column "paper" merged into the column before it."""
    merged = [index for index, name in enumerate(table.columns) if index and name == "paper"]
    if table.name == "Table 10":  # which has no pairs: its figures of the paper stand in a column of their own
        merged = []
    remaining = [index for index in range(len(table.columns)) if index not in merged]

    def cell(row: Sequence[Cell], index: int) -> str:
        if index + 1 in merged:
            return f"{_format_cell(row[index])} / {_format_cell(row[index + 1])}"
        return _format_cell(row[index])

    return [table.columns[i] for i in remaining], [[cell(row, i) for i in remaining] for row in table.rows]


def _format_cell(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.2f}" if abs(cell) < 10 and round(cell, 1) != cell else f"{cell:.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
