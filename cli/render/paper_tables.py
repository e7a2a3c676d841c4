"""The paper's tables as a person reads them in a terminal. It prints and knows nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from cli.render.console import Console
from flows.evaluate.tables import Cell, PaperTable

__all__ = ["print_tables"]


def print_tables(found: Sequence[PaperTable]) -> None:
    """Print the tables, ours and the paper's in one cell; below each, what would measure the cells that are "-"."""
    console = Console()
    for one in found:
        columns, rows = _paired(one)
        both = " (ours / the paper's)" if len(columns) < len(one.columns) else ""
        console.print(f"[bold]{one.name}.[/bold] {escape(one.title)}{both}", highlight=False)
        table = Table(box=SIMPLE_HEAD)
        for at, name in enumerate(columns):
            right = at > 0 and one.name != "Table 10"
            figure = one.name == "Table 9"  # whose rows have the longest names: they are wrapped, and no figure is
            table.add_column(escape(name), justify="right" if right else "left", no_wrap=bool(at) if figure else not at)
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
        for line in (*one.notes, *(f"-: {command}" for command in one.missing)):
            console.print(escape(f"  {line}"), soft_wrap=True, highlight=False)
        console.print()


def _paired(one: PaperTable) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows as texts, every column "paper" within the one before it."""
    paper = [at for at, name in enumerate(one.columns) if at and name == "paper"]
    if one.name == "Table 10":  # one figure of the paper's a row
        paper = []
    own = [at for at in range(len(one.columns)) if at not in paper]

    def cell(row: Sequence[Cell], at: int) -> str:
        return f"{_shown(row[at])} / {_shown(row[at + 1])}" if at + 1 in paper else _shown(row[at])

    return [one.columns[at] for at in own], [[cell(row, at) for at in own] for row in one.rows]


def _shown(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.2f}" if abs(cell) < 10 and round(cell, 1) != cell else f"{cell:.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
