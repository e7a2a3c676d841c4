"""The snapshot as one self-contained file: the data that it refers to is copied, and no path of this machine remains.

It is written table by table, in bounded memory, and named once all its views could be opened. Tables that only refer to
files are left out: `toolformer explain` and `what-if` need the data folder.
"""

import re
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import duckdb

from warehouse.errors import SnapshotError, error_line, is_disk_full
from warehouse.files.base import remove_database, replace_file, temporary_beside
from warehouse.files.folders import make_folder, make_private
from warehouse.queries.rows import data_is_gone, rows_of
from warehouse.schema import TABLES
from warehouse.snapshot.relations import sql_text
from warehouse.snapshot.remote import register_files_of_snapshot
from warehouse.snapshot.tables import create_views

_MEMORY, _THREADS = "512MB", 2  # for copying; each thread keeps rows in it, and the rest goes to disk beside the file
_POINTERS = ("document_files", "document_locations", "version_files", "views")  # tables of `facts` that refer to files
_ABOUT_ROWS = "name NOT IN ('data', 'url')"  # the rows of `facts.about` that are not paths
_COLUMNS = """SELECT table_name, column_name, data_type FROM duckdb_columns()
WHERE database_name = 'snapshot' AND schema_name = 'facts' ORDER BY table_name, column_index"""
_UNCHANGED = ("prompts",)  # tables of `facts` with texts of the user, which stay as they are


@dataclass(frozen=True, slots=True)
class Packed:
    tables: dict[str, int]  # name -> rows, of the tables that the snapshot only refers to
    views: tuple[str, ...]


def pack(
    snapshot: Path,
    out: Path,
    on_table: Callable[[str, int], None] = lambda table, rows: None,
    tables: Collection[str] | None = None,
) -> Packed:
    """Write a snapshot and the data that it refers to into one file, replacing an existing one.

    Args:
        on_table: called with each table and its number of rows before it is copied.
        tables: the tables to copy, of those that the snapshot only refers to; views of others are left out. None: all.
    """
    about = {row["name"]: row["value"] for row in rows_of(snapshot, "FROM facts.about")}
    if unknown := sorted(set(tables or ()) - TABLES.keys()):
        raise SnapshotError(f"there is no table {', '.join(unknown)}; the tables are: {', '.join(TABLES)}")
    chosen = tuple(name for name in TABLES if tables is None or name in tables)
    temporary = temporary_beside(out := out.absolute())
    try:
        make_folder(out.parent)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{temporary.name}.") as spill:
            rows = _copy_tables(snapshot, temporary, about.get("data", ""), spill, chosen, on_table)
        views = _add_views(temporary, partial=tables is not None)
        replace_file(temporary, out)
    except (OSError, duckdb.Error) as exc:
        raise SnapshotError(_reason(exc, snapshot, out)) from exc
    finally:
        remove_database(temporary)
    return Packed(rows, views)


def _reason(exc: OSError | duckdb.Error, snapshot: Path, out: Path) -> str:
    if is_disk_full(exc):
        return f"cannot write {out}: the disk is full; free some space there, or choose a file on another disk"
    if isinstance(exc, duckdb.CatalogException | duckdb.BinderException):
        return f"another version of this program wrote {snapshot} ({error_line(exc)}): run toolformer reconcile"
    if isinstance(exc, duckdb.IOException | duckdb.InvalidInputException):
        return data_is_gone(exc)
    return f"cannot write {out}: {error_line(exc)}"


def _copy_tables(
    snapshot: Path,
    temporary: Path,
    root: str,
    spill: str,
    tables: Collection[str],
    on_table: Callable[[str, int], None],
) -> dict[str, int]:
    with duckdb.connect(config={"memory_limit": _MEMORY, "temp_directory": spill, "threads": _THREADS}) as connection:
        connection.execute(f"ATTACH {sql_text(str(snapshot))} AS snapshot (READ_ONLY)")
        connection.execute(f"ATTACH {sql_text(str(temporary))} AS packed")
        register_files_of_snapshot(connection, "snapshot.facts")
        make_private(temporary, create=False)
        connection.execute("USE snapshot")
        connection.execute("CREATE SCHEMA packed.facts")
        columns: dict[str, list[str]] = {}
        for table, column, kind in connection.execute(_COLUMNS).fetchall():
            name = f'"{column}"'
            with_paths = kind == "VARCHAR" and table not in _UNCHANGED
            columns.setdefault(table, []).append(f"{_without_paths(name, root)} AS {name}" if with_paths else name)
        for table, selected in columns.items():
            if table not in _POINTERS:
                kept = _ABOUT_ROWS if table == "about" else "true"
                sql = f"SELECT {', '.join(selected)} FROM facts.{table} WHERE {kept}"
                connection.execute(f"CREATE TABLE packed.facts.{table} AS {sql}")
        rows: dict[str, int] = {}
        for table in tables:
            (rows[table],) = connection.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
            on_table(table, rows[table])
            connection.execute(f"CREATE TABLE packed.main.{table} AS FROM {table}")
        connection.execute("CHECKPOINT packed")
    return rows


def _without_paths(column: str, root: str) -> str:
    """Return SQL of a text or JSON text without absolute paths: relative below `root`, elsewhere the name alone."""
    if root:
        column = f"""regexp_replace({column}, {sql_text(f'(^|["#=]){re.escape(root)}/')}, '\\1', 'g')"""
    return f"""regexp_replace({column}, '(^|["#=])/(?:[^"/]*/)*([^"/]+)/*($|")', '\\1\\2\\3', 'g')"""


def _add_views(temporary: Path, partial: bool) -> tuple[str, ...]:
    with duckdb.connect(str(temporary)) as connection:
        create_views(connection, partial)
        rows = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL").fetchall()
        for (view,) in rows:
            connection.execute(f"FROM {view} LIMIT 0")
        connection.execute("CHECKPOINT")
    return tuple(view for (view,) in rows)
