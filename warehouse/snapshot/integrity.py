"""Which commits a snapshot leaves out, because a file of theirs is missing, short or altered.

A refresh checks the files of new commits, and again those of broken ones. A complete check compares the sizes and times
of all files with their commits. Where many files are to be checked, the store lists them: an object store then answers
one request per thousand files instead of one per file. Only a file that changed after its commit is read.
"""

from datetime import UTC, datetime

import duckdb

from warehouse.commits import DataFile
from warehouse.schema import columns, table_of
from warehouse.snapshot.relations import execute_with
from warehouse.store import Store

_FEW = 256  # files at most that are looked at one by one
_LISTED_SHARE = 0.05  # of all files; if more are to be checked, listing all is cheaper

_CHECKED = """
CREATE OR REPLACE TEMP TABLE checked AS
SELECT f.commit_id, f.path, f.digest, f.rows, f.bytes, c.created
FROM facts.files AS f JOIN facts.commits AS c USING (commit_id)
WHERE {} OR commit_id IN (FROM new_commits) OR commit_id IN (FROM facts.broken)"""


def update_broken(connection: duckdb.DuckDBPyConnection, store: Store, recheck: bool) -> None:
    """Make `facts.broken` (commit_id) contain the commits that cannot be shown, after `changes.apply_changes`."""
    connection.execute("CREATE TABLE IF NOT EXISTS facts.broken (commit_id VARCHAR)")
    connection.execute(_CHECKED.format("true" if recheck else "false"))
    [(files,), (all_files,)] = connection.execute(
        "SELECT count(*) FROM checked UNION ALL SELECT count(*) FROM facts.files"
    ).fetchall()
    if files > max(_FEW, _LISTED_SHARE * all_files):
        _leave_out_unchanged(connection, store)
    broken: set[str] = set()
    for commit_id, path, digest, rows, size, created in connection.execute("FROM checked").fetchall():
        file = DataFile(path, digest, rows, size)
        if commit_id not in broken and not store.is_unaltered(file, _written_before(created)):
            broken.add(commit_id)
    connection.execute("DELETE FROM facts.broken")
    connection.execute("INSERT INTO facts.broken SELECT unnest($ids)", {"ids": sorted(broken)})


def _leave_out_unchanged(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Remove from `checked` the files whose size is right and that did not change after their commit."""
    listed = [(path, *stat) for folder in ("shards", "rejects") for path, stat in store.files.stats(folder)]
    sql = """DELETE FROM checked USING _rows AS l WHERE l.path = checked.path AND l.bytes = checked.bytes
        AND l.changed <= epoch(TRY_CAST(checked.created AS TIMESTAMP)) + 1"""
    execute_with(connection, sql, table_of(columns("path text, bytes int, changed real"), listed))


def _written_before(created: str) -> float:
    """Return the time by which a commit's data was written, in seconds since 1970; `created` may be cut to seconds."""
    return datetime.fromisoformat(created).replace(tzinfo=UTC).timestamp() + 1.0
