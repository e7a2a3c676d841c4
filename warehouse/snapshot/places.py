"""The part of the snapshot's index that says where a document is: `facts.places` and `facts.homes`, see `index`.

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
_CURRENT_HOMES = """
CREATE OR REPLACE TEMP TABLE current_homes AS
WITH reading AS (
    SELECT i.digest, c.shard FROM facts.commit_inputs AS i
    JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
)
SELECT f.path, f.digest, min(r.shard) AS shard
FROM facts.files AS f JOIN facts.current USING (commit_id) LEFT JOIN reading AS r ON r.digest = f.digest
WHERE f.table_name = 'documents' AND f.rows > 0 AND f.commit_id NOT IN (FROM facts.broken)
GROUP BY ALL"""


def update_places(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Make `facts.homes` and `facts.places` those of the current files of documents.

    Args:
        connection: to the snapshot that is being written, whose other facts are those of the store.

    Raises:
        duckdb.Error: a file cannot be read, or the snapshot cannot be written.
    """
    connection.execute(
        """CREATE TABLE IF NOT EXISTS facts.homes (home INTEGER, path VARCHAR, digest VARCHAR, shard VARCHAR);
        CREATE TABLE IF NOT EXISTS facts.places (doc_id VARCHAR, home INTEGER)"""
    )
    connection.execute(_CURRENT_HOMES)
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE gone_homes AS
        SELECT home FROM facts.homes ANTI JOIN current_homes USING (path, digest);
        DELETE FROM facts.places WHERE home IN (FROM gone_homes);
        DELETE FROM facts.homes WHERE home IN (FROM gone_homes);
        UPDATE facts.homes SET shard = c.shard FROM current_homes AS c
        WHERE homes.path = c.path AND homes.digest = c.digest AND homes.shard IS DISTINCT FROM c.shard"""
    )
    new = connection.execute(
        """INSERT INTO facts.homes
        SELECT (SELECT coalesce(max(home), -1) FROM facts.homes) + row_number() OVER (ORDER BY path),
               path, digest, shard
        FROM current_homes ANTI JOIN facts.homes USING (path, digest) RETURNING home, path"""
    ).fetchall()
    if new:
        _add_documents(connection, store, sorted(new))


def _add_documents(connection: duckdb.DuckDBPyConnection, store: Store, new: list[tuple[int, str]]) -> None:
    """Add the documents of new files, given by (home, path); sort all documents if too many are unsorted."""
    [(before,)] = connection.execute("SELECT count(*) FROM facts.places").fetchall()
    documents = parquet_sql(store.locate(path) for _, path in new)
    sql = f"SELECT doc_id, $homes[file_index::BIGINT + 1]::INTEGER AS home FROM {documents} ORDER BY ALL"
    with connect(store, {"memory_limit": _MEMORY}) as reader:
        for batch in reader.sql(sql, params={"homes": [home for home, _ in new]}).to_arrow_reader(_BATCH):
            connection.register("_rows", pa.Table.from_batches([batch]))
            connection.execute("INSERT INTO facts.places SELECT * FROM _rows")
            connection.unregister("_rows")
    [(after,)] = connection.execute("SELECT count(*) FROM facts.places").fetchall()
    name = "sorted places"
    known = connection.execute("SELECT value::BIGINT FROM facts.about WHERE name = $name", {"name": name}).fetchall()
    in_order = known[0][0] if known else 0  # rows from the beginning
    if not before:
        in_order = after
    elif after - in_order > max(in_order, _UNSORTED):
        connection.execute("CREATE OR REPLACE TABLE facts.places AS FROM facts.places ORDER BY doc_id, home")
        in_order = after
    connection.execute("DELETE FROM facts.about WHERE name = $name", {"name": name})
    connection.execute("INSERT INTO facts.about VALUES ($name, $rows)", {"name": name, "rows": str(in_order)})
