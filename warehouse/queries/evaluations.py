"""Queries on evaluations: accuracies and perplexities of completed runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from warehouse.queries.rows import rows_of
from warehouse.snapshot.views import NEWEST

__all__ = ["accuracies", "call_counts", "evaluation_limits", "perplexities"]

_LIMITS = f"""
SELECT c.config::JSON->>'evaluation' AS evaluation, (r.parameters::JSON->>'limit')::BIGINT AS "limit",
       (r.parameters::JSON->>'seed')::BIGINT AS seed
FROM facts.run_commits AS rc JOIN facts.runs AS r USING (run_id) JOIN facts.commits AS c USING (commit_id)
WHERE r.state = 'completed' AND c.stage IN ('evaluate', 'perplexity')
QUALIFY row_number() OVER (PARTITION BY evaluation ORDER BY {NEWEST}) = 1"""


def accuracies(path: str | Path, task: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of the view `accuracy` for completed runs, oldest first.

    Args:
        task: only this task; None: all tasks.
    """
    sql = "FROM accuracy WHERE completed AND ($task IS NULL OR task = $task) ORDER BY run_number, evaluated, evaluation"
    return rows_of(path, sql, {"task": task})


def call_counts(path: str | Path) -> dict[tuple[str, str], int]:
    """Return (evaluation, tool) -> the number of its items for which the tool was called."""
    return {(row["evaluation"], row["tool"]): row["items"] for row in rows_of(path, "FROM call_rates")}


def evaluation_limits(path: str | Path) -> dict[str, tuple[int | None, int | None]]:
    """Return evaluation -> `limit` and `seed` of its items in the run whose figures the views show; None: not given."""
    return {row["evaluation"]: (row["limit"], row["seed"]) for row in rows_of(path, _LIMITS)}


def perplexities(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of the view `perplexity` for completed runs, oldest first."""
    return rows_of(path, "FROM perplexity WHERE completed ORDER BY run_number, evaluated, evaluation")
