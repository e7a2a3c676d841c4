"""The summary of a grounding in Markdown, as Prefect's page shows it."""

from __future__ import annotations

from flows.artifacts import markdown_table
from flows.evaluate.tables import PaperTable
from flows.ground.metrics import GroundResult
from flows.ground.tables import confusion_table, cost_table, grounding_tables


def summary(result: GroundResult, *, costs: bool = True) -> str:
    """Return the tables of a grounding, with what it cost unless told otherwise."""
    tables = [*grounding_tables(result), confusion_table(result), *([cost_table(result)] if costs else ())]
    return "\n\n".join(map(_markdown, tables))


def _markdown(table: PaperTable) -> str:
    rows = markdown_table(table.columns, [[_cell(cell) for cell in row] for row in table.rows])
    return "\n".join([f"## {table.title}", rows, "", *table.notes])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
