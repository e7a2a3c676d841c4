"""Which version of C* an example belongs to: the current one's view, and the view over the files of all versions.

A version whose files are not all there is left out whole. Where a version was made in several ways, the content is the
same: the last of them whose files are there is shown. It runs inside the making of a snapshot.
"""

from __future__ import annotations

import math

import duckdb

from warehouse.analyst_views import SUBJECT
from warehouse.commits import DataFile
from warehouse.index import parquet_sql, quoted
from warehouse.store import Store

__all__ = ["add_dataset_examples", "current_version_sql"]

# The files of every record of a version, and whether a commit that is whole holds each.
_FILES = """
WITH whole AS (
    SELECT DISTINCT path, digest FROM facts.files WHERE commit_id NOT IN (SELECT commit_id FROM facts.broken)
)
SELECT d.name, d.version, d.made, f.path, f.digest, f.rows, f.bytes, w.path IS NOT NULL AS whole
FROM facts.datasets AS d JOIN facts.dataset_files AS f USING (name, version, made)
LEFT JOIN whole AS w ON w.path = f.path AND w.digest = f.digest
ORDER BY d.name, d.version, d.created, d.made, f.path"""


def current_version_sql(connection: duckdb.DuckDBPyConnection) -> str:
    """Return SQL of two further columns, `dataset` and `version` of the current C*: '' until there is one.

    Args:
        connection: on the snapshot in the making.
    """
    found = connection.execute(f"SELECT name, version FROM ({SUBJECT})").fetchone()
    dataset, version = found or ("", "")
    return f"{quoted(dataset)} AS dataset, {quoted(version)} AS version"


def add_dataset_examples(connection: duckdb.DuckDBPyConnection, store: Store, again: bool) -> bool:
    """Make the view `dataset_examples`; return False, and make nothing, where no version has rows that are there.

    Args:
        connection: on the snapshot in the making.
        store: where the data is.
        again: as for `snapshot.publish`; files that no commit holds are compared with their digest once.
    """
    chosen: dict[tuple[str, str], list[str]] = {}
    ways: dict[tuple[str, str, str], list[tuple[DataFile, bool]]] = {}
    for name, version, made, path, digest, rows, size, whole in connection.execute(_FILES).fetchall():
        ways.setdefault((name, version, made), []).append((DataFile(path, digest, rows, size), whole))
    for (name, version, _), files in ways.items():
        if all(whole or store.sound(file, -math.inf, again=again) for file, whole in files):
            chosen[name, version] = [file.path for file, _ in files if file.rows]
    places = {path: number for number, path in enumerate(sorted({path for own in chosen.values() for path in own}))}
    if not places:
        return False
    connection.execute("CREATE TABLE facts.version_files (file BIGINT, dataset VARCHAR, version VARCHAR)")
    of_version = [(places[path], name, version) for (name, version), own in chosen.items() for path in own]
    numbers, datasets, versions = (list(column) for column in zip(*of_version, strict=True))
    connection.execute(
        "INSERT INTO facts.version_files SELECT unnest($files), unnest($datasets), unnest($versions)",
        {"files": numbers, "datasets": datasets, "versions": versions},
    )
    relation = parquet_sql(store.near(path) for path in places)
    connection.execute(
        f"""CREATE VIEW dataset_examples AS
        SELECT e.* EXCLUDE (file), v.dataset, v.version
        FROM (SELECT *, file_index::BIGINT AS file FROM {relation}) AS e
        JOIN facts.version_files AS v USING (file)"""
    )
    return True
