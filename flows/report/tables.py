"""A table of results as a plain record: in Markdown on Prefect's and a recipe's pages, and printed by `cli`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class ResultTable:
    """One table. The first columns name the row; a column "paper" holds the paper's figures beside ours."""

    name: str  # "Table 3", or ""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    missing: tuple[str, ...] = ()  # commands that would fill the cells nobody has measured
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Return the table with its notes, without its title."""
        return "\n".join(
            [markdown_table(self.columns, [map(shown, row) for row in self.rows]), "", *self.notes]
        ).rstrip()


def shown(cell: Cell) -> str:
    """Return a cell as a text; "-" for what nobody has measured."""
    if cell is None or cell != cell:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.2f}" if abs(cell) < 10 and round(cell, 1) != cell else f"{cell:.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def percent(share: float | None) -> float | None:
    return None if share is None or share != share else 100 * share


def counted(counts: Mapping[str, int]) -> str:
    """Return names with their counts on one line."""
    return ", ".join(f"{name} {n:,}" for name, n in counts.items())


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown; a bar in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
