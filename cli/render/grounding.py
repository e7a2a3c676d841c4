"""Prints the result of a grounding: the paper's tables, the confusion matrix, costs, and where to find more."""

from __future__ import annotations

from rich.markup import escape

from cli.render.console import Console
from cli.render.paper_tables import print_tables
from flows.ground.metrics import GroundResult
from flows.ground.tables import confusion_table, cost_table, grounding_tables, size_table

__all__ = ["print_grounding"]


def print_grounding(result: GroundResult) -> None:
    """Print the figures of a grounding."""
    tables = [*grounding_tables(result), confusion_table(result)]
    if len(result.sizes) > 1:
        tables.append(size_table(result))
    print_tables([*tables, cost_table(result)])
    console = Console()
    for line in _lines(result):
        console.print(escape(line), soft_wrap=True, highlight=False)


def _lines(result: GroundResult) -> list[str]:
    lines = []
    if (best := result.best) is not None:
        lines.append(
            f"Best weights on {best.development.items:,} queries: gamma {best.gamma:g}, lambda {best.smoothing:g}. "
            f"On the {best.measured.items:,} others they choose right for {_percent(best.measured.value)} % of the "
            f"queries; the weights of this run {_percent(best.as_asked.value)} %, the cosine "
            f"{_percent(best.cosine.value)} %."
        )
    if (rejected := result.rejection) is not None:
        lines.append(
            f"No tool below a score of {rejected.threshold:g}: precision {_percent(rejected.precision)} %, recall "
            f"{_percent(rejected.recall)} %."
        )
    for one in result.tasks:
        if one.rejected:
            reasons = ", ".join(f"{reason} {n:,}" for reason, n in one.rejected.items())
            lines.append(f"{one.task}: rows left out: {reasons} (with their lines in the table rejects)")
    skipped = f", {result.skipped} found done" if result.skipped else ""
    lines.append(f"{result.done} shards worked on{skipped}, {result.seconds:.0f} s.")
    lines.append(f"MLflow run {result.mlflow_run} in {result.tracking}")
    lines.append(f'Try other weights: duckdb -readonly {result.snapshot} "FROM grounding_accuracy(0.5, 1)"')
    return lines


def _percent(share: float) -> str:
    return "-" if share != share else f"{100 * share:.1f}"
