"""SQL of relations over Parquet files: literals and lists of files; and SQL that reads a table of Arrow."""

import glob
from collections.abc import Iterable

import duckdb
import pyarrow as pa

# The host of a column `url`; NULL where there is none.
HOST = "nullif(lower(regexp_extract(url, '^[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#@]*@)?([^/:?#]+)', 2)), '')"

_FEW = 8  # paths at most that are listed one by one, where people read the SQL of a view
_SEPARATOR = "\n"


def sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def execute_with(connection: duckdb.DuckDBPyConnection, sql: str, rows: pa.Table) -> None:
    """Execute SQL in which `_rows` stands for a table."""
    connection.register("_rows", rows)
    try:
        connection.execute(sql)
    finally:
        connection.unregister("_rows")


def parquet_sql(paths: Iterable[str]) -> str:
    """Return SQL of a relation: the rows of Parquet files, given by absolute path or URL, with `file_index`."""
    # Many paths are one text that DuckDB splits: literals are parsed and bound one by one, sixteen times as slowly.
    escaped = [glob.escape(path) for path in paths]
    if len(escaped) <= _FEW or any(_SEPARATOR in path for path in escaped):
        return f"read_parquet([{', '.join(map(sql_text, escaped))}])"
    return f"read_parquet(string_split({sql_text(_SEPARATOR.join(escaped))}, {sql_text(_SEPARATOR)}))"
