"""A query of the user's own, and the tables that it can ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from viewer.data import ViewedData
from viewer.query import Query
from viewer.sql_process import MAX_ROWS, TIMEOUT_S, SqlAnswer, ask_in_process

_EXAMPLE = "SELECT tool, count(*) AS calls, round(avg(gain), 2) AS mean FROM kept_calls GROUP BY tool ORDER BY tool"


def answer_to(viewed: ViewedData, query: Query) -> SqlAnswer | None:
    """Run the query `q`; None if there is none. The caller has not opened the snapshot: this may take long.

    Raises:
        WrongQueryError: it is too long.
    """
    asked = query.text("q")
    return ask_in_process(viewed.snapshot, asked) if asked else None


def page(viewed: ViewedData, query: Query, answer: SqlAnswer | None) -> Mapping[str, Any]:
    """Return what the page shows.

    Args:
        query: the query string; `q` is the query.
        answer: what it answered; None: it was not run, and only stands in the form.
    """
    asked = query.text("q")
    return {
        "asked": asked or _EXAMPLE,
        "answer": answer,
        "waits": bool(asked) and answer is None,
        "max_rows": MAX_ROWS,
        "timeout_s": TIMEOUT_S,
        "tables": viewed.tables(),
    }
