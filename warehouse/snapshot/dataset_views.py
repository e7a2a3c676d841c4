"""The version of C* to which an example belongs: columns for the current version, and a view of all versions.

A version whose files are not all there is left out completely. If a version was made in several ways, its content is
the same: the last of them whose files are there is shown. This module runs while a snapshot is being written.
"""

from __future__ import annotations

import math

import duckdb

from warehouse.commits import DataFile
from warehouse.snapshot.analyst_views import CURRENT_BUILD
from warehouse.snapshot.index import parquet_sql, sql_text
from warehouse.store import Store

__all__ = ["add_dataset_examples", "current_version_sql"]

# The files of every dataset record, and whether an intact commit lists each.
_FILES = """
WITH whole AS (
    SELECT DISTINCT path, digest FROM facts.files WHERE commit_id NOT IN (SELECT commit_id FROM facts.broken)
)
SELECT d.name, d.version, d.made, f.path, f.digest, f.rows, f.bytes, w.path IS NOT NULL AS whole
FROM facts.datasets AS d JOIN facts.dataset_files AS f USING (name, version, made)
LEFT JOIN whole AS w ON w.path = f.path AND w.digest = f.digest
ORDER BY d.name, d.version, d.created, d.made, f.path"""


def current_version_sql(connection: duckdb.DuckDBPyConnection) -> str:
    """Return SQL of two columns, `dataset` and `version` of the current C*; both are '' until there is a version.

    Args:
        connection: to the snapshot that is being written.
    """
    row = connection.execute(f"SELECT name, version FROM ({CURRENT_BUILD})").fetchone()
    dataset, version = row or ("", "")
    return f"{sql_text(dataset)} AS dataset, {sql_text(version)} AS version"


def add_dataset_examples(connection: duckdb.DuckDBPyConnection, store: Store, recheck: bool) -> bool:
    """Create the view `dataset_examples`; create nothing and return False if no version has rows that are there.

    Args:
        connection: to the snapshot that is being written.
        store: the data folder.
        recheck: see `publish`; the digests of files that no commit lists are compared once.
    """
    chosen: dict[tuple[str, str], list[str]] = {}
    ways: dict[tuple[str, str, str], list[tuple[DataFile, bool]]] = {}
    for name, version, made, path, digest, count, size, whole in connection.execute(_FILES).fetchall():
        ways.setdefault((name, version, made), []).append((DataFile(path, digest, count, size), whole))
    for (name, version, _), files in ways.items():
        if all(whole or store.is_unaltered(file, -math.inf, recheck=recheck) for file, whole in files):
            chosen[name, version] = [file.path for file, _ in files if file.rows]
    paths = sorted({path for version_paths in chosen.values() for path in version_paths})
    if not paths:
        return False
    number_of = {path: number for number, path in enumerate(paths)}
    connection.execute("CREATE TABLE facts.version_files (file BIGINT, dataset VARCHAR, version VARCHAR)")
    rows = [
        (number_of[path], name, version) for (name, version), version_paths in chosen.items() for path in version_paths
    ]
    numbers, datasets, versions = (list(column) for column in zip(*rows, strict=True))
    connection.execute(
        "INSERT INTO facts.version_files SELECT unnest($files), unnest($datasets), unnest($versions)",
        {"files": numbers, "datasets": datasets, "versions": versions},
    )
    relation = parquet_sql(store.local_path(path) for path in paths)
    connection.execute(
        f"""CREATE VIEW dataset_examples AS
        SELECT e.* EXCLUDE (file), v.dataset, v.version
        FROM (SELECT *, file_index::BIGINT AS file FROM {relation}) AS e
        JOIN facts.version_files AS v USING (file)"""
    )
    return True
