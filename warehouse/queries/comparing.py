"""Two versions of C*, call by call: what both hold, and what only one of them does, a page at a time.

A call is the same one in both if document, tool, position, input and response are.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from warehouse.errors import SnapshotError
from warehouse.queries.rows import open_snapshot, rows_in, version_sql
from warehouse.snapshot.views import queries_beside

_SQL = queries_beside(__file__)


class CallPlace(NamedTuple):
    """A call's place in the order of a list: by document and position."""

    doc_id: str
    position: int
    tool: str
    input: str
    response: str


@dataclass(frozen=True, slots=True)
class VersionCall:
    place: CallPlace
    gain: float


@dataclass(frozen=True, slots=True)
class ComparedTool:
    tool: str
    both: int  # calls that both versions hold
    only_first: int
    only_second: int
    first_examples: int  # documents with a call of the tool
    second_examples: int


@dataclass(frozen=True, slots=True)
class Comparison:
    tools: tuple[ComparedTool, ...]
    goes: tuple[VersionCall, ...]  # of the first version alone, a page of them
    comes: tuple[VersionCall, ...]  # of the second
    more_goes: bool
    more_comes: bool


def compare_versions(
    path: str | Path,
    first: tuple[str, str],
    second: tuple[str, str],
    n: int,
    *,
    goes_after: CallPlace | None = None,
    comes_after: CallPlace | None = None,
) -> Comparison:
    """Compare two versions of C*; each list begins behind a call of the page before."""
    with open_snapshot(path) as connection:
        calls = [_calls_sql(connection, version) for version in (first, second)]
        sides = " UNION ALL ".join(f"SELECT {side} AS side, * FROM ({sql})" for side, sql in enumerate(calls, 1))
        connection.execute(f"CREATE OR REPLACE TEMP TABLE calls AS {sides}")
        tools = tuple(ComparedTool(**row) for row in rows_in(connection, _SQL["counts"]))
        goes, more_goes = _only(connection, 1, n, goes_after)
        comes, more_comes = _only(connection, 2, n, comes_after)
    return Comparison(tools, goes, comes, more_goes, more_comes)


def _calls_sql(connection: duckdb.DuckDBPyConnection, version: tuple[str, str]) -> str:
    if not rows_in(connection, _SQL["version"], dict(zip(("dataset", "version"), version, strict=True))):
        raise SnapshotError(f"there is no version {'@'.join(version)}")
    relation = version_sql(connection, *version)
    return _SQL["calls"].format(relation) if relation else _SQL["no_calls"]


def _only(
    connection: duckdb.DuckDBPyConnection, side: int, n: int, after: CallPlace | None
) -> tuple[tuple[VersionCall, ...], bool]:
    place: dict[str, Any] = dict.fromkeys(CallPlace._fields) if after is None else after._asdict()
    rows = rows_in(connection, _SQL["only"], {"side": side, "limit": n + 1, **place})
    calls = [VersionCall(CallPlace(*(row[name] for name in CallPlace._fields)), row["gain"]) for row in rows]
    return tuple(calls[:n]), len(calls) > n
