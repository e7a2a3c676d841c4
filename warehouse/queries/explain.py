"""Everything about one document, found quickly among any number of documents, as it is stored.

The snapshot's index says which file contains a document, and so which shard's files are opened.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from warehouse.queries.rows import data_root, open_snapshot, rows_in, rows_of
from warehouse.snapshot.relations import parquet_sql
from warehouse.snapshot.views import queries_beside

_LAST = chr(0x10FFFF)  # sorts after every text

_SQL = queries_beside(__file__)
_PARTS = ("prefiltered", "sampled", "executed", "scored", "examples")  # tables, each with a query of its name
# Of chains: their rows follow those of single calls, and say in `preceding_calls` what they go on from.
_CHAIN_PARTS = {
    name: _SQL[name].replace("FROM sampled", "FROM chain_sampled").replace(f"FROM {name}", f"FROM chain_{name}")
    for name in ("sampled", "executed", "scored")
}
_KNOWN = {"documents", *_PARTS, *(f"chain_{name}" for name in _CHAIN_PARTS)}
_NEEDS = {"executed": ("sampled", "prefiltered"), "chain_executed": ("chain_sampled", "prefiltered")}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The rows about one document in each current table; those of chains have `preceding_calls`."""

    document: dict[str, Any] | None
    shard: str
    prefiltered: tuple[dict[str, Any], ...]
    sampled: tuple[dict[str, Any], ...]
    executed: tuple[dict[str, Any], ...]
    scored: tuple[dict[str, Any], ...]
    examples: tuple[dict[str, Any], ...]
    assembled: dict[str, Any] | None  # the config of the current C*; None until it is assembled
    datasets: tuple[dict[str, Any], ...]  # name, version, calls: the versions of C* with it, oldest first
    further: dict[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)  # stage of the user's own -> rows
    dropped: dict[str, Any] | None = None  # of a document that no stage after `ingest` read: why
    near_duplicates: tuple[dict[str, Any], ...] = ()  # documents that were dropped because they are like this one


def ids_with_prefix(path: str | Path, start: str) -> list[str]:
    """Return the first two document ids that begin with a text, sorted."""
    return [row["doc_id"] for row in rows_of(path, _SQL["ids_with_prefix"], {"start": start, "end": start + _LAST})]


def nearest_ids(path: str | Path, doc_id: str) -> list[str]:
    """Return the three document ids that are most similar to an id, the most similar first."""
    return [row["doc_id"] for row in rows_of(path, _SQL["nearest_ids"], {"id": doc_id})]


def explain(path: str | Path, doc_id: str) -> Explanation:
    """Return everything in the current tables about one document; for an unknown id, no document and no rows.

    Of a document that `ingest` dropped this is the reason alone.
    """
    with open_snapshot(path) as connection:
        found = rows_in(connection, _SQL["file_of_document"], {"doc_id": doc_id})
        if not found:
            dropped = rows_in(connection, _SQL["dropped"], {"doc_id": doc_id})
            return Explanation(None, "", (), (), (), (), (), None, (), dropped=dropped[0] if dropped else None)
        root = str(data_root(connection))
        [own] = found
        files: dict[str, list[str]] = {"documents": [f"{root}/{own['path']}"]}
        assembled: dict[str, Any] | None = None
        for row in rows_in(connection, _SQL["files"], {"shard": own["shard"]}):
            files.setdefault(row["table_name"], []).append(f"{root}/{row['path']}")
            if row["table_name"] == "examples":
                assembled = json.loads(row["config"])
        document, *_ = _of_table(connection, files, "documents", _SQL["documents"], doc_id)
        parts: dict[str, Any] = {name: tuple(_of_table(connection, files, name, _SQL[name], doc_id)) for name in _PARTS}
        for name, sql in _CHAIN_PARTS.items():
            rows = _of_table(connection, files, f"chain_{name}", sql, doc_id)
            parts[name] += tuple(row for row in rows if row not in parts[name])
        further = {name: tuple(_further_rows(connection, files[name], doc_id)) for name in files.keys() - _KNOWN}
        near = rows_in(connection, _SQL["like"], {"doc_id": doc_id})
        datasets = _datasets(connection, root, own["digest"], doc_id)
    return Explanation(
        document,
        own["shard"] or "",
        **parts,
        assembled=assembled,
        datasets=datasets,
        further=further,
        near_duplicates=tuple(near),
    )


def _of_table(
    connection: duckdb.DuckDBPyConnection, files: dict[str, list[str]], table: str, sql: str, doc_id: str
) -> list[dict[str, Any]]:
    names = (table, *_NEEDS.get(table, ()))
    if not all(name in files for name in names):
        return []
    relations = ", ".join(f"{name} AS (FROM {parquet_sql(files[name])})" for name in names)
    return rows_in(connection, f"WITH {relations} {sql}", {"doc_id": doc_id})


def _further_rows(connection: duckdb.DuckDBPyConnection, paths: list[str], doc_id: str) -> list[dict[str, Any]]:
    relation = parquet_sql(paths)
    if all(row["column_name"] != "doc_id" for row in rows_in(connection, f"DESCRIBE FROM {relation}")):
        return []
    return rows_in(connection, f"FROM {relation} WHERE doc_id = $doc_id", {"doc_id": doc_id})


def _datasets(connection: duckdb.DuckDBPyConnection, root: str, digest: str, doc_id: str) -> tuple[dict[str, Any], ...]:
    files = rows_in(connection, _SQL["in_datasets"], {"digest": digest})
    if "://" in root:
        there = {row["path"] for row in rows_in(connection, "SELECT path FROM facts.version_files")}
    else:  # looked at: a file may have gone since
        there = {row["path"] for row in files if Path(root, row["path"]).is_file()}
    paths = sorted({row["path"] for row in files} & there)
    if not paths:
        return ()
    sql = f"SELECT file_index, calls FROM {parquet_sql(f'{root}/{path}' for path in paths)} WHERE doc_id = $doc_id"
    calls = {paths[row["file_index"]]: row["calls"] for row in rows_in(connection, sql, {"doc_id": doc_id})}
    versions = {(row["name"], row["version"]): calls[row["path"]] for row in files if row["path"] in calls}
    order = rows_in(connection, _SQL["versions"])
    return tuple({**row, "calls": versions[key]} for row in order if (key := (row["name"], row["version"])) in versions)
