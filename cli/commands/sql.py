"""The command `sql`: a user's own query on the snapshot, also over data on a URL.

`cli.main` registers it. What a query may do is in `warehouse.queries.guarded`.
"""

from __future__ import annotations

import csv
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.warehouse import published_snapshot
from cli.options import AsJson, Data
from cli.terminal import print_json, say, visible

if TYPE_CHECKING:
    from warehouse.queries.guarded import Rows

_SHOWN_ROWS = 100  # of a printed table
_CELL_CHARS = 60
_MAX_TIMEOUT_S = 7 * 24 * 3600.0  # a week; a timer cannot take any number of seconds


def sql(
    query: Annotated[str, typer.Argument(metavar="SELECT", help="One statement that returns rows")],
    data: Data = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=_MAX_TIMEOUT_S, help="Seconds that the query may take")] = 60.0,
    memory: Annotated[str, typer.Option(help="Memory that the query may use")] = "1GB",
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a line of names, every row in full")] = False,
    as_json: AsJson = False,
) -> None:
    """Query the warehouse in SQL (DuckDB's), also where the data lies on a URL. Read-only.

    Without --csv or --json the first hundred rows are printed, long texts shortened. The tables and views are those of
    the snapshot; `SHOW TABLES` lists them. JSON has no NaN and no infinity: with --json they are null, as NULL is.

    Example: toolformer sql "SELECT tool, count(*) AS calls, avg(gain) AS gain FROM scored GROUP BY tool" --data runs/c4

    toolformer sql "FROM kept_calls ORDER BY gain DESC" --csv --data s3://bucket/c4 > calls.csv
    """
    from toolformer_core.errors import UsageError
    from warehouse.errors import RefusedQueryError
    from warehouse.queries.guarded import distinct_names, run_query

    if as_csv and as_json:
        raise UsageError("give --csv or --json, not both")
    snapshot = published_snapshot(data)
    try:
        with run_query(snapshot, query, timeout, memory) as rows:
            if as_json:
                names = distinct_names(rows.columns)
                print_json([dict(zip(names, row, strict=True)) for row in rows])
            elif as_csv:
                writer = csv.writer(sys.stdout, lineterminator="\n")
                writer.writerow(rows.columns)
                writer.writerows(rows)
            else:
                _print_table(rows)
    except RefusedQueryError as exc:
        raise UsageError(str(exc)) from exc


def _print_table(rows: Rows) -> None:
    shown = [[_cell(value) for value in row] for row in islice(rows, _SHOWN_ROWS + 1)]
    more, shown = len(shown) > _SHOWN_ROWS, shown[:_SHOWN_ROWS]
    widths = [max(map(len, column)) for column in zip(map(visible, rows.columns), *shown, strict=True)]
    for line in (rows.columns, *shown):
        say("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())
    if more:
        say(f"... the first {_SHOWN_ROWS} rows; --csv prints all", error=True)


def _cell(value: Any) -> str:
    """Return a value on one line, shortened."""
    text = "NULL" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    text = visible(" ".join(text.split()))
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "…"
