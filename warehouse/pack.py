"""The snapshot as one self-contained file: what it points at is copied into it, and it names no path of this machine.

It is made beside its place under a temporary name, table by table, in bounded memory, and renamed once every view of it
could be opened. It holds what the snapshot showed as the packing began. The tables that only lead to files stay
behind: `toolformer explain` and `what-if` need the data folder.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from warehouse.errors import SnapshotError, is_full, told
from warehouse.files import temporary_beside
from warehouse.folders import fsync_folder, make_folder, make_private
from warehouse.index import quoted
from warehouse.queries import rows_of
from warehouse.schema import TABLES
from warehouse.snapshot import create_views

__all__ = ["Packed", "pack"]

_MEMORY = "512MB"  # for copying; more goes to disk, beside the file
_THREADS = 2  # each holds rows of its own in that memory
_POINTERS = ("homes", "places", "version_files")  # tables of `facts` that lead to files
_PLACES = "name NOT IN ('data', 'near')"  # rows of `facts.about`
_AS_WRITTEN = ("prompts",)  # tables of `facts` whose text is the user's


@dataclass(frozen=True, slots=True)
class Packed:
    """What a packed file holds."""

    tables: dict[str, int]  # name -> rows; those that the snapshot only points at
    views: tuple[str, ...]


def pack(snapshot: Path, out: Path, copying: Callable[[str, int], None] = lambda table, rows: None) -> Packed:
    """Write a snapshot and all it points at into one file, replacing what is there.

    Args:
        snapshot: the published one.
        out: the file to write.
        copying: told of each table and its rows before they are copied.

    Raises:
        SnapshotError: the snapshot, or data it points at, cannot be read, or the file cannot be written.
    """
    near = rows_of(snapshot, "SELECT value FROM facts.about WHERE name = 'near'")
    out = out.absolute()
    temporary = temporary_beside(out)
    try:
        make_folder(out.parent)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{temporary.name}.") as spill:
            tables = _copied(snapshot, temporary, near[0]["value"] if near else "", spill, copying)
        views = _described(temporary)
        _replace(temporary, out)
    except (OSError, duckdb.Error) as exc:
        raise SnapshotError(_reason(exc, snapshot, out)) from exc
    finally:
        for left in (temporary, temporary.with_name(temporary.name + ".wal")):
            left.unlink(missing_ok=True)
    return Packed(tables, views)


def _reason(exc: OSError | duckdb.Error, snapshot: Path, out: Path) -> str:
    if is_full(exc):
        return f"cannot write {out}: the disk is full; free some space there, or name a file on another disk"
    if isinstance(exc, duckdb.CatalogException | duckdb.BinderException):
        return f"another version of this program wrote {snapshot} ({told(exc)}): run toolformer reconcile"
    if isinstance(exc, duckdb.IOException | duckdb.InvalidInputException):
        return (
            f"data the snapshot points at cannot be read ({told(exc)}): if the folder was moved or files are gone, "
            "run toolformer reconcile with the same --data"
        )
    return f"cannot write {out}: {told(exc)}"


def _copied(
    snapshot: Path, temporary: Path, near: str, spill: str, copying: Callable[[str, int], None]
) -> dict[str, int]:
    """Copy all tables; return the rows of those that the snapshot only points at."""
    with duckdb.connect(config={"memory_limit": _MEMORY, "temp_directory": spill, "threads": _THREADS}) as connection:
        connection.execute(f"ATTACH {quoted(str(snapshot))} AS snapshot (READ_ONLY)")
        connection.execute(f"ATTACH {quoted(str(temporary))} AS packed")
        make_private(temporary, create=False)
        connection.execute("USE snapshot")
        connection.execute("CREATE SCHEMA packed.facts")
        columns: dict[str, list[str]] = {}
        for table, column, kind in connection.execute(
            """SELECT table_name, column_name, data_type FROM duckdb_columns()
            WHERE database_name = 'snapshot' AND schema_name = 'facts' ORDER BY table_name, column_index"""
        ).fetchall():
            shown = f'"{column}"'
            cut = kind == "VARCHAR" and table not in _AS_WRITTEN
            columns.setdefault(table, []).append(f"{_without_places(shown, near)} AS {shown}" if cut else shown)
        for table, selected in columns.items():
            if table not in _POINTERS:
                kept = _PLACES if table == "about" else "true"
                sql = f"SELECT {', '.join(selected)} FROM facts.{table} WHERE {kept}"
                connection.execute(f"CREATE TABLE packed.facts.{table} AS {sql}")
        rows: dict[str, int] = {}
        for table in TABLES:
            (rows[table],) = connection.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
            copying(table, rows[table])
            connection.execute(f"CREATE TABLE packed.main.{table} AS FROM {table}")
        connection.execute("CHECKPOINT packed")
    return rows


def _without_places(column: str, near: str) -> str:
    """SQL of a text or of JSON text in which a path below `near` is relative to it, and another absolute one a name."""
    below = f"""regexp_replace({column}, {quoted(f'(^|["#]){re.escape(near)}/')}, '\\1', 'g')""" if near else column
    return f"""regexp_replace({below}, '(^|["#])/(?:[^"/]*/)*([^"/]+)/*($|")', '\\1\\2\\3', 'g')"""


def _described(temporary: Path) -> tuple[str, ...]:
    """Make the views of a file that holds the tables, and open each; return their names."""
    with duckdb.connect(str(temporary)) as connection:
        create_views(connection)
        found = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL").fetchall()
        for (view,) in found:
            connection.execute(f"FROM {view} LIMIT 0")
        connection.execute("CHECKPOINT")
    return tuple(view for (view,) in found)


def _replace(temporary: Path, out: Path) -> None:
    handle = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(temporary, out)
    fsync_folder(out.parent)
