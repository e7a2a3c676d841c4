"""SQL of relations over Parquet files: literals, lists of files, columns that older files lack.

A list of more than a few files is one text that DuckDB splits. As a list of literals it would be parsed and bound path
by path, sixteen times as slowly, whenever a view is opened.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable

from warehouse.schema import ADDED_COLUMNS

_FEW = 8  # so many paths are listed one by one, where people read the SQL of a view
_SEPARATOR = "\n"


def sql_text(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def with_added_columns(table: str, relation: str, columns: str = "*") -> str:
    """Return SQL of a relation with the columns that files of earlier program versions lack: there they are null.

    Args:
        table: the table whose rows the relation contains, e.g. `scored`.
        relation: SQL of the relation, see `parquet_sql`.
        columns: the columns to select from it.
    """
    later = ", ".join(f"NULL::{kind} AS {name}" for name, kind in ADDED_COLUMNS.get(table, {}).items())
    selected = f"SELECT {columns} FROM {relation}"
    return f"{selected} UNION ALL BY NAME SELECT {later} WHERE false" if later else selected


def parquet_sql(paths: Iterable[str], *, by_name: bool = False) -> str:
    """Return SQL of a relation: the rows of Parquet files, given by absolute path or URL, with `file_index`.

    Args:
        paths: of the files.
        by_name: whether some files lack columns that others have: the footers of all of them are then read first.
    """
    escaped = [glob.escape(path) for path in paths]
    options = ", union_by_name = true" if by_name else ""
    if len(escaped) <= _FEW or any(_SEPARATOR in path for path in escaped):
        return f"read_parquet([{', '.join(map(sql_text, escaped))}]{options})"
    return f"read_parquet(string_split({sql_text(_SEPARATOR.join(escaped))}, {sql_text(_SEPARATOR)}){options})"
