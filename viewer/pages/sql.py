"""A query of the user's own, and the tables that it can ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from viewer.data import ViewedData
from viewer.query import Query
from viewer.sql_process import MAX_ROWS, TIMEOUT_S, SqlAnswer, ask_in_process

__all__ = ["page"]

_EXAMPLE = "SELECT tool, count(*) AS calls, round(avg(gain), 2) AS mean FROM kept_calls GROUP BY tool ORDER BY tool"


def page(viewed: ViewedData, query: Query, runs: bool) -> Mapping[str, Any]:
    """Return what the page shows.

    Args:
        viewed: the data folder.
        query: the query string; `q` is the query.
        runs: whether the query is run; if not, it only stands in the form.
    """
    asked = query.text("q")
    answer: SqlAnswer | None = None
    if asked and runs:
        viewed.build()  # says that there is no snapshot
        answer = ask_in_process(viewed.snapshot, asked)
    return {
        "asked": asked or _EXAMPLE,
        "answer": answer,
        "waits": bool(asked) and not runs,
        "max_rows": MAX_ROWS,
        "timeout_s": TIMEOUT_S,
        "tables": viewed.tables(),
    }
