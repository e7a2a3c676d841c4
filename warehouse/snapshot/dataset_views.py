"""The version of C* to which an example belongs: columns for the current version, and a view of all.

A version whose files are not all there is left out completely. If a version was made in several ways, its content is
the same: the last of them whose files are there is shown. This module runs while a snapshot is being written.
"""

from __future__ import annotations

import math

import duckdb

from warehouse.commits import DataFile
from warehouse.snapshot.analyst_views import CURRENT_BUILD
from warehouse.snapshot.relations import parquet_sql, sql_text
from warehouse.store import Store

# The files of every dataset record, with whether an intact commit lists each.
_FILES = """
CREATE OR REPLACE TEMP TABLE version_parts AS
WITH whole AS (
    SELECT DISTINCT path, digest FROM facts.files WHERE commit_id NOT IN (FROM facts.broken)
)
SELECT d.name, d.version, d.made, d.number, d.created, f.path, f.digest, f.rows, f.bytes, w.path IS NOT NULL AS whole
FROM facts.datasets AS d JOIN facts.dataset_files AS f USING (name, version, made)
LEFT JOIN whole AS w ON w.path = f.path AND w.digest = f.digest"""

# The last made of the records of a version whose files are all there, and the number of each of its files.
_VERSION_FILES = """
CREATE OR REPLACE TABLE facts.version_files AS
WITH chosen AS (
    SELECT name, version, made FROM version_parts GROUP BY name, version, made HAVING bool_and(whole)
    QUALIFY row_number() OVER (PARTITION BY name, version
                                 ORDER BY any_value(number) DESC, any_value(created) DESC, made DESC) = 1
), parts AS (SELECT DISTINCT name, version, path FROM version_parts SEMI JOIN chosen USING (name, version, made)
             WHERE rows > 0)
SELECT dense_rank() OVER (ORDER BY path) - 1 AS file, name AS dataset, version, path
FROM parts ORDER BY file, name, version"""


def current_version_sql(connection: duckdb.DuckDBPyConnection) -> str:
    """Return SQL of two columns, `dataset` and `version` of the current C*; both are '' until there is a version.

    Args:
        connection: to the snapshot that is being written.
    """
    rows = connection.execute(f"SELECT name, version FROM ({CURRENT_BUILD})").fetchall()
    dataset, version = rows[0] if rows else ("", "")
    return f"{sql_text(dataset)} AS dataset, {sql_text(version)} AS version"


def version_examples_sql(connection: duckdb.DuckDBPyConnection, store: Store) -> str | None:
    """Return the SQL of the view `dataset_examples`, and make `facts.version_files`, to which it refers.

    Returns None if no version has rows that are there. The digests of files that no commit lists are compared, once
    for each change of such a file.

    Args:
        connection: to the snapshot that is being written.
        store: the data folder.
    """
    connection.execute(_FILES)
    unlisted = connection.execute(
        "SELECT DISTINCT path, digest, rows, bytes FROM version_parts WHERE NOT whole"
    ).fetchall()
    intact = [
        (path, digest)
        for path, digest, rows, size in unlisted
        if store.is_unaltered(DataFile(path, digest, rows, size), -math.inf)
    ]
    paths, digests = [path for path, _ in intact], [digest for _, digest in intact]
    connection.execute(
        """UPDATE version_parts SET whole = true
        WHERE (path, digest) IN (SELECT (unnest($paths), unnest($digests)))""",
        {"paths": paths, "digests": digests},
    )
    connection.execute(_VERSION_FILES)
    files = connection.execute("SELECT DISTINCT file, path FROM facts.version_files ORDER BY file").fetchall()
    if not files:
        return None
    relation = parquet_sql(store.locate(path) for _, path in files)
    return f"""
        SELECT e.* EXCLUDE (file), v.dataset, v.version
        FROM (SELECT *, file_index::BIGINT AS file FROM {relation}) AS e
        JOIN facts.version_files AS v USING (file)"""
