"""The part of the snapshot's index that says where a document is (`document_locations`, `document_files`; see `index`).

Documents of new files are appended, sorted among themselves. Once there are more appended documents than sorted ones,
all are sorted again: finding an id reads few rows, and each id is written a few times at most.
"""

import duckdb
import pyarrow as pa

from warehouse.snapshot.relations import execute_with, parquet_sql
from warehouse.snapshot.remote import connect
from warehouse.snapshot.views import queries_beside
from warehouse.store import Store

_BATCH = 400_000  # rows that are read at once
_UNSORTED = 200_000  # documents that may stay unsorted: finding an id among them takes a few milliseconds
_MEMORY = "512MB"

_SQL = queries_beside(__file__)


def update_document_locations(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Make `facts.document_files` and `facts.document_locations` those of the current files of documents."""
    for name in ("tables", "current_files", "remove_gone"):
        connection.execute(_SQL[name])
    new: list[tuple[int, str]] = sorted(connection.execute(_SQL["add_files"]).fetchall())
    if not new:
        return
    [(before,)] = connection.execute("SELECT count(*) FROM facts.document_locations").fetchall()
    documents = parquet_sql(store.locate(path) for _, path in new)
    sql = f"SELECT doc_id, $files[file_index::BIGINT + 1]::INTEGER AS file FROM {documents} ORDER BY ALL"
    with connect(store, {"memory_limit": _MEMORY}) as reader:
        for batch in reader.sql(sql, params={"files": [number for number, _ in new]}).to_arrow_reader(_BATCH):
            rows = pa.Table.from_batches([batch])
            execute_with(connection, "INSERT INTO facts.document_locations SELECT * FROM _rows", rows)
    [(after,)] = connection.execute("SELECT count(*) FROM facts.document_locations").fetchall()
    name = "sorted locations"
    known = connection.execute("SELECT value::BIGINT FROM facts.about WHERE name = $name", {"name": name}).fetchall()
    in_order = known[0][0] if known else 0  # rows from the beginning
    if not before:
        in_order = after
    elif after - in_order > max(in_order, _UNSORTED):
        connection.execute(_SQL["sort"])
        in_order = after
    connection.execute("DELETE FROM facts.about WHERE name = $name", {"name": name})
    connection.execute("INSERT INTO facts.about VALUES ($name, $rows)", {"name": name, "rows": str(in_order)})
