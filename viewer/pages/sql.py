"""A query of the user's own, and the tables that it can ask."""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from viewer.data import ViewedData
from viewer.query import Query
from viewer.sql_process import MAX_ROWS, TIMEOUT_S, SqlAnswer, ask_in_process
from warehouse.queries.guarded import distinct_names

_FENCE = re.compile(r"```(?:sql)?\n")


@lru_cache(maxsize=1)
def questions() -> list[tuple[str, str]]:
    """Return the questions of the warehouse's README, each with the query that answers it."""
    readme = (files("warehouse") / "README.md").read_text(encoding="utf-8")
    parts = _FENCE.split(readme.partition(" questions\n")[2])
    pairs = zip(parts[::2], parts[1::2], strict=False)  # behind the last query is no question
    return [(" ".join(words.partition("?")[0].replace("`", "").split()) + "?", query.strip()) for words, query in pairs]


def answer_to(viewed: ViewedData, query: Query) -> SqlAnswer | None:
    """Run the query `q`; None if there is none. The caller has not opened the snapshot: this may take long."""
    sql = query.text("q")
    return ask_in_process(viewed.snapshot, sql) if sql else None


def page(viewed: ViewedData, query: Query, answer: SqlAnswer | None) -> Mapping[str, Any]:
    """Return what the page shows; without an answer the query was not run, and only stands in the form."""
    sql = query.text("q")
    names = distinct_names(answer.columns) if answer else []
    rows = [dict(zip(names, row, strict=True)) for row in answer.rows] if answer else []
    return {
        "sql": sql or questions()[0][1],
        "questions": questions(),
        "answer": answer,
        "tables": {"rows": rows} if answer else {},
        "waits": bool(sql) and answer is None,
        "max_rows": MAX_ROWS,
        "timeout_s": TIMEOUT_S,
        "views": viewed.rows("tables"),
    }
