"""The rows of `make certify`, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_HEADS = ("loader", "version", "format", "template", "rows in", "rows read", "trained", "masked", "result")
_NUMBERS = range(4, 8)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A loader and a file, or a loader that could not be installed."""

    loader: str
    version: str
    format: str = ""
    template: str = ""
    rows_in: int | None = None
    rows_read: int | None = None
    trained: int | None = None  # tokens
    masked: int | None = None
    result: str = "ok"
    fails: bool = False  # whether the command fails for it

    def cells(self) -> tuple[str, ...]:
        """Return the row's cells as text."""
        numbers = (self.rows_in, self.rows_read, self.trained, self.masked)
        shown = ("" if number is None else f"{number:,}" for number in numbers)
        return (self.loader, self.version, self.format, self.template, *shown, self.result)


def table_lines(rows: Sequence[TableRow]) -> list[str]:
    """Return a table in Markdown, its columns aligned."""
    cells = [_HEADS, *(tuple(cell.replace("|", "\\|") for cell in row.cells()) for row in rows)]
    last = len(_HEADS) - 1
    widths = [0 if i == last else max(len(line[i]) for line in cells) for i in range(len(_HEADS))]

    def line(parts: Iterable[str]) -> str:
        return f"| {' | '.join(parts)} |"

    aligned = [
        line(
            cell.rjust(width) if i in _NUMBERS else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    rule = line("-" * max(width - 1, 2) + (":" if i in _NUMBERS else "-") for i, width in enumerate(widths))
    return [aligned[0], rule, *aligned[1:]]


def failed(rows: Iterable[TableRow]) -> bool:
    """Return whether the command fails."""
    return any(row.fails for row in rows)


def as_json(rows: Sequence[TableRow]) -> dict[str, Any]:
    """Return the table as one object."""
    return {"ok": not failed(rows), "rows": [asdict(row) for row in rows]}
