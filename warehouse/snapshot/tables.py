"""The tables and views that users query in a snapshot: views over the Parquet files, and views over the facts.

A view is created again only if its SQL changed. Of a version of C* that was made in several ways, the last whose files
are all there is shown.
"""

import contextlib
import math
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa

from warehouse.commits import DataFile, digest
from warehouse.schema import STAGES, TABLES
from warehouse.snapshot.relations import HOST, execute_with, parquet_sql, sql_text
from warehouse.snapshot.views import queries_beside, query, statements
from warehouse.store import Store

# The comment of each table and of the views over files.
_ABOUT = {facts.table: facts.about for facts in STAGES.values()} | {
    "rejects": "Rows that a stage could not use at all, with the beginning of each.",
    "call_outcomes": "Every scored call and chain in the current C*: kept, or why not, and which call won over it.",
    "dataset_examples": "The texts of every version of C* whose files are all there, each text once per version.",
}

_OVER_FACTS = ""  # stands for all views and macros over the facts in `facts.views`
_SQL = queries_beside(__file__)


def update_tables(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Make the tables and views those of the facts and the index."""
    shown = dict(connection.execute(_SQL["shown"]).fetchall())
    wanted: dict[str, str] = {}  # name -> SQL of a view
    empty: dict[str, pa.Schema] = {}  # name -> columns of a table without rows
    if (examples := _version_examples_sql(connection, store)) is not None:
        wanted["dataset_examples"] = examples
    rows = connection.execute(f"SELECT name, version FROM ({query('current_build')})").fetchall()
    dataset, version = map(sql_text, rows[0] if rows else ("", ""))  # of the current C*
    added = {"documents": f", {HOST} AS host", "examples": f", {dataset} AS dataset, {version} AS version"}
    for table in (*TABLES, *(name for name in sorted(shown) if name not in TABLES and name not in statements())):
        if paths := shown.get(table):
            files = parquet_sql(store.locate(path) for path in paths)
            wanted[table] = f"SELECT *{added.get(table, '')} FROM {files}"
        elif table not in wanted:
            empty[table] = TABLES[table]
    _replace_changed(connection, wanted, empty)


def _version_examples_sql(connection: duckdb.DuckDBPyConnection, store: Store) -> str | None:
    """Make `facts.version_files`, and return the SQL of the view `dataset_examples`; None: no version has rows."""
    connection.execute(_SQL["version_parts"])
    unlisted = [DataFile(*row) for row in connection.execute(_SQL["unlisted"]).fetchall()]
    intact = [file for file in unlisted if store.is_unaltered(file, -math.inf)]
    given = {"paths": [file.path for file in intact], "digests": [file.digest for file in intact]}
    connection.execute(_SQL["mark_whole"], given)
    connection.execute(_SQL["version_files"])
    files = connection.execute("SELECT DISTINCT file, path FROM facts.version_files ORDER BY file").fetchall()
    if not files:
        return None
    relation = parquet_sql(store.locate(path) for _, path in files)
    return f"""
        SELECT e.* EXCLUDE (file), v.dataset, v.version
        FROM (SELECT *, file_index::BIGINT AS file FROM {relation}) AS e
        JOIN facts.version_files AS v USING (file)"""


def _replace_changed(
    connection: duckdb.DuckDBPyConnection, wanted: dict[str, str], empty: dict[str, pa.Schema]
) -> None:
    """Replace the views over files and the empty tables that changed; then the views over these."""
    connection.execute("CREATE TABLE IF NOT EXISTS facts.views (name VARCHAR, digest VARCHAR)")
    before = dict(connection.execute("FROM facts.views").fetchall())
    after = {name: digest(sql.encode()) for name, sql in wanted.items()}
    after |= {name: digest(str(schema).encode()) for name, schema in empty.items()}
    after[_OVER_FACTS] = digest(str((statements(), _ABOUT, column_comments())).encode())
    changed = [name for name in after if after[name] != before.get(name) and name != _OVER_FACTS]
    kinds = _kinds(connection)
    for name in (*changed, *(before.keys() - after.keys())):
        if name in kinds:
            connection.execute(f"DROP {kinds[name]} {name}")
    for name in changed:
        if name in wanted:
            connection.execute(f"CREATE VIEW {name} AS {wanted[name]}")
        else:
            execute_with(connection, f"CREATE TABLE {name} AS SELECT * FROM _rows", empty[name].empty_table())
        _comment(connection, name, "VIEW" if name in wanted else "TABLE")
    if after[_OVER_FACTS] != before.get(_OVER_FACTS):
        create_views(connection)
    if after != before:
        connection.execute("DELETE FROM facts.views")
        rows = {"names": list(after), "digests": list(after.values())}
        connection.execute("INSERT INTO facts.views SELECT unnest($names), unnest($digests)", rows)


def _comment(connection: duckdb.DuckDBPyConnection, name: str, kind: str) -> None:
    if name in _ABOUT:
        connection.execute(f"COMMENT ON {kind} {name} IS {sql_text(_ABOUT[name])}")
    about = column_comments()
    columns = [row[0] for row in connection.execute(f"DESCRIBE {name}").fetchall()]
    comments = ((column, about.get(f"{name}.{column}", about.get(column))) for column in columns)
    said = [f'COMMENT ON COLUMN {name}."{column}" IS {sql_text(comment)}' for column, comment in comments if comment]
    connection.execute(";".join(said))  # a stage added by others has columns of its own


@cache
def column_comments() -> dict[str, str]:
    """Return the comments of `columns.txt` by column, or `table.column` where it means something else in one table."""
    lines = Path(__file__).with_name("columns.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def create_views(connection: duckdb.DuckDBPyConnection, partial: bool = False) -> None:
    """Create the views and macros over the tables and facts of a database; `partial` leaves out those that lack one."""
    missing = (duckdb.CatalogException,) if partial else ()
    for name, (kind, parameters, comment, sql) in statements().items():
        with contextlib.suppress(*missing):
            if kind == "view":
                connection.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")
                connection.execute(f"COMMENT ON VIEW {name} IS {sql_text(comment)}")
            elif kind == "macro":
                connection.execute(f"CREATE OR REPLACE MACRO {name}({parameters}) AS TABLE {sql}")
                connection.execute(f"COMMENT ON MACRO TABLE {name} IS {sql_text(comment)}")
    for name, kind in _kinds(connection).items():
        _comment(connection, name, kind)


def _kinds(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    return dict(connection.execute(_SQL["kinds"]).fetchall())
