"""Queries on evaluations: accuracies and perplexities of completed runs."""

from pathlib import Path
from typing import Any

from warehouse.queries.rows import rows_of
from warehouse.snapshot.views import queries_beside

_SQL = queries_beside(__file__)


def accuracies(path: str | Path, task: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of the view `accuracy` for completed runs, oldest first."""
    return rows_of(path, _SQL["accuracies"], {"task": task})


def call_counts(path: str | Path) -> dict[tuple[str, str], int]:
    """Return (evaluation, tool) -> the number of its items for which the tool was called."""
    return {(row["evaluation"], row["tool"]): row["items"] for row in rows_of(path, "FROM call_rates")}


def evaluation_limits(path: str | Path) -> dict[str, tuple[int | None, int | None]]:
    """Return evaluation -> `limit` and `seed` of its items in the run whose figures the views show; None: not given."""
    return {row["evaluation"]: (row["limit"], row["seed"]) for row in rows_of(path, _SQL["limits"])}


def perplexities(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of the view `perplexity` for completed runs, oldest first."""
    return rows_of(path, "FROM perplexity WHERE completed ORDER BY run_number, evaluated, evaluation")
