"""One document's whole path, found in a moment among any number of them.

The snapshot's index says in which file a document stands, and so which shard's files can hold anything of it: only
those are opened. It returns the rows as they are stored, and knows no rule by which a call is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from warehouse.index import parquet_sql
from warehouse.queries import opened, rows_in

__all__ = ["Explanation", "explain", "ids_beginning", "nearest_ids"]

_LAST = chr(0x10FFFF)  # sorts behind every text

_HOME = """
SELECT h.path, h.digest, h.shard FROM facts.places AS p JOIN facts.homes AS h USING (home)
WHERE p.doc_id = $doc_id LIMIT 1"""

_FILES = """
SELECT f.table_name, f.path, c.config FROM facts.commits AS c JOIN facts.current USING (commit_id)
JOIN facts.files AS f USING (commit_id)
WHERE c.shard = $shard AND f.table_name IN ('prefiltered', 'sampled', 'executed', 'scored', 'examples')
  AND commit_id NOT IN (FROM facts.broken)
ORDER BY f.table_name, f.path"""

# The files of every dataset version that were made of the document's own file; of versions without such a file, all.
_IN_DATASETS = """
WITH own AS (
    SELECT DISTINCT df.name, df.version, df.path, EXISTS (
        FROM facts.files AS f JOIN facts.commit_inputs AS i USING (commit_id)
        WHERE f.path = df.path AND f.digest = df.digest AND i.digest = $digest) AS made
    FROM facts.dataset_files AS df WHERE df.rows > 0
)
SELECT name, version, path FROM own
WHERE made OR (name, version) NOT IN (SELECT (name, version) FROM own WHERE made) ORDER BY ALL"""

# Each over relations of the names of the tables, which hold the shard's rows alone.
_PARTS = {
    "prefiltered": "SELECT * FROM prefiltered WHERE doc_id = $doc_id ORDER BY tool",
    "sampled": 'SELECT * FROM sampled WHERE doc_id = $doc_id ORDER BY tool, "rank", "position", raw',
    "executed": """
SELECT DISTINCT e.* FROM executed AS e
JOIN (SELECT DISTINCT tool, input FROM sampled WHERE doc_id = $doc_id AND outcome = 'ok') AS s USING (tool, input)
LEFT JOIN prefiltered AS p ON p.doc_id = $doc_id AND p.tool = e.tool
WHERE p.context IS NULL OR p.context = e.context ORDER BY e.tool, e.input, e.context""",
    "scored": 'SELECT * FROM scored WHERE doc_id = $doc_id ORDER BY tool, "position", gain DESC, input, response',
    "examples": "SELECT * FROM examples WHERE doc_id = $doc_id",
}
_NEEDS = {"executed": ("sampled", "prefiltered")}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One document's path: the rows that each current table holds of it."""

    document: dict[str, Any] | None
    shard: str
    prefiltered: tuple[dict[str, Any], ...]
    sampled: tuple[dict[str, Any], ...]
    executed: tuple[dict[str, Any], ...]
    scored: tuple[dict[str, Any], ...]
    examples: tuple[dict[str, Any], ...]
    assembled: dict[str, Any] | None  # the config by which the current C* was assembled; None before it was
    datasets: tuple[dict[str, Any], ...]  # name, version, calls: the versions of C* that hold it, oldest first


def ids_beginning(path: str | Path, start: str, limit: int = 2) -> list[str]:
    """Return the first ids of documents that begin so.

    Raises:
        SnapshotError: there is no snapshot.
    """
    sql = "SELECT doc_id FROM facts.places WHERE doc_id >= $start AND doc_id < $end ORDER BY doc_id LIMIT $limit"
    with opened(path) as connection:
        found = rows_in(connection, sql, {"start": start, "end": start + _LAST, "limit": limit})
    return [row["doc_id"] for row in found]


def nearest_ids(path: str | Path, doc_id: str, limit: int = 3) -> list[str]:
    """Return the ids most like this one, the most alike first.

    Raises:
        SnapshotError: there is no snapshot.
    """
    sql = "SELECT doc_id FROM facts.places ORDER BY jaro_winkler_similarity(doc_id, $id) DESC, doc_id LIMIT $limit"
    with opened(path) as connection:
        return [row["doc_id"] for row in rows_in(connection, sql, {"id": doc_id, "limit": limit})]


def explain(path: str | Path, doc_id: str) -> Explanation:
    """Return everything the current tables hold of one document; an unknown id gives no document and empty parts.

    Raises:
        SnapshotError: there is no snapshot, or data it points at is gone.
    """
    with opened(path) as connection:
        home = rows_in(connection, _HOME, {"doc_id": doc_id})
        if not home:
            return Explanation(None, "", (), (), (), (), (), None, ())
        root = rows_in(connection, "SELECT value FROM facts.about WHERE name = 'near'")[0]["value"]
        (own,) = home
        files: dict[str, list[str]] = {"documents": [f"{root}/{own['path']}"]}
        assembled: dict[str, Any] | None = None
        for row in rows_in(connection, _FILES, {"shard": own["shard"]}):
            files.setdefault(row["table_name"], []).append(f"{root}/{row['path']}")
            assembled = json.loads(row["config"]) if row["table_name"] == "examples" else assembled
        document = _of_table(connection, files, "documents", "SELECT * FROM documents WHERE doc_id = $doc_id", doc_id)
        parts = {name: tuple(_of_table(connection, files, name, sql, doc_id)) for name, sql in _PARTS.items()}
        datasets = _datasets(connection, root, own["digest"], doc_id)
    return Explanation(
        document[0] if document else None, own["shard"] or "", **parts, assembled=assembled, datasets=datasets
    )


def _of_table(
    connection: duckdb.DuckDBPyConnection, files: dict[str, list[str]], table: str, sql: str, doc_id: str
) -> list[dict[str, Any]]:
    names = (table, *_NEEDS.get(table, ()))
    if not all(name in files for name in names):
        return []
    relations = ", ".join(f"{name} AS (FROM {parquet_sql(files[name])})" for name in names)
    return rows_in(connection, f"WITH {relations} {sql}", {"doc_id": doc_id})


def _datasets(connection: duckdb.DuckDBPyConnection, root: str, digest: str, doc_id: str) -> tuple[dict[str, Any], ...]:
    held = rows_in(connection, _IN_DATASETS, {"digest": digest})
    places = sorted({row["path"] for row in held if Path(root, row["path"]).is_file()})
    if not places:
        return ()
    sql = f"SELECT file_index, calls FROM {parquet_sql(_under(root, places))} WHERE doc_id = $doc_id"
    calls = {places[row["file_index"]]: row["calls"] for row in rows_in(connection, sql, {"doc_id": doc_id})}
    versions = {(row["name"], row["version"]): calls[row["path"]] for row in held if row["path"] in calls}
    order = rows_in(
        connection, "SELECT name, version FROM facts.datasets GROUP BY ALL ORDER BY min(created), name, version"
    )
    return tuple({**row, "calls": versions[key]} for row in order if (key := (row["name"], row["version"])) in versions)


def _under(root: str, places: Iterable[str]) -> list[str]:
    return [f"{root}/{place}" for place in places]
