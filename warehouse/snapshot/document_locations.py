"""The part of the snapshot's index that says where a document is (`document_locations`, `document_files`; see `index`).

Documents of new files are appended, sorted among themselves. Once there are more appended documents than sorted ones,
all are sorted again: finding an id reads few rows, and each id is written a few times at most.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from warehouse.snapshot.relations import parquet_sql
from warehouse.snapshot.remote import connect
from warehouse.store import Store

_BATCH = 400_000  # rows that are read at once
_UNSORTED = 200_000  # documents that may stay unsorted: finding an id among them takes a few milliseconds
_MEMORY = "512MB"

# The current files of documents; the shard is that of the current commits that read the file. What is found out about
# a part of the corpus reads it too, and belongs to no run.
_CURRENT_FILES = """
CREATE OR REPLACE TEMP TABLE current_files AS
WITH reading AS (
    SELECT i.digest, c.shard FROM facts.commit_inputs AS i
    JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
)
SELECT f.path, f.digest, min(r.shard) AS shard
FROM facts.files AS f JOIN facts.current USING (commit_id) LEFT JOIN reading AS r ON r.digest = f.digest
WHERE f.table_name = 'documents' AND f.rows > 0 AND f.commit_id NOT IN (FROM facts.broken)
GROUP BY ALL"""


def update_document_locations(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Make `facts.document_files` and `facts.document_locations` those of the current files of documents.

    Args:
        connection: to the snapshot that is being written, whose other facts are those of the store.

    Raises:
        duckdb.Error: a file cannot be read, or the snapshot cannot be written.
    """
    connection.execute(
        """CREATE TABLE IF NOT EXISTS facts.document_files (file INTEGER, path VARCHAR, digest VARCHAR, shard VARCHAR);
        CREATE TABLE IF NOT EXISTS facts.document_locations (doc_id VARCHAR, file INTEGER)"""
    )
    connection.execute(_CURRENT_FILES)
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE gone_files AS
        SELECT file FROM facts.document_files ANTI JOIN current_files USING (path, digest);
        DELETE FROM facts.document_locations WHERE file IN (FROM gone_files);
        DELETE FROM facts.document_files WHERE file IN (FROM gone_files);
        UPDATE facts.document_files SET shard = c.shard FROM current_files AS c
        WHERE document_files.path = c.path AND document_files.digest = c.digest
        AND document_files.shard IS DISTINCT FROM c.shard"""
    )
    new = connection.execute(
        """INSERT INTO facts.document_files
        SELECT (SELECT coalesce(max(file), -1) FROM facts.document_files) + row_number() OVER (ORDER BY path),
               path, digest, shard
        FROM current_files ANTI JOIN facts.document_files USING (path, digest) RETURNING file, path"""
    ).fetchall()
    if new:
        _add_documents(connection, store, sorted(new))


def _add_documents(connection: duckdb.DuckDBPyConnection, store: Store, new: list[tuple[int, str]]) -> None:
    """Add the documents of new files, given by (number, path); sort all documents if too many are unsorted."""
    [(before,)] = connection.execute("SELECT count(*) FROM facts.document_locations").fetchall()
    documents = parquet_sql(store.locate(path) for _, path in new)
    sql = f"SELECT doc_id, $files[file_index::BIGINT + 1]::INTEGER AS file FROM {documents} ORDER BY ALL"
    with connect(store, {"memory_limit": _MEMORY}) as reader:
        for batch in reader.sql(sql, params={"files": [number for number, _ in new]}).to_arrow_reader(_BATCH):
            connection.register("_rows", pa.Table.from_batches([batch]))
            connection.execute("INSERT INTO facts.document_locations SELECT * FROM _rows")
            connection.unregister("_rows")
    [(after,)] = connection.execute("SELECT count(*) FROM facts.document_locations").fetchall()
    name = "sorted locations"
    known = connection.execute("SELECT value::BIGINT FROM facts.about WHERE name = $name", {"name": name}).fetchall()
    in_order = known[0][0] if known else 0  # rows from the beginning
    if not before:
        in_order = after
    elif after - in_order > max(in_order, _UNSORTED):
        connection.execute(
            "CREATE OR REPLACE TABLE facts.document_locations AS FROM facts.document_locations ORDER BY doc_id, file"
        )
        in_order = after
    connection.execute("DELETE FROM facts.about WHERE name = $name", {"name": name})
    connection.execute("INSERT INTO facts.about VALUES ($name, $rows)", {"name": name, "rows": str(in_order)})
