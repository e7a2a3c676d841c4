"""The snapshot's index: small tables that answer how much a threshold yields and where a document is, without big
files.

    facts.gains    for each tool and position of a document, the allowed call with the largest gain
    facts.slots    the commit that a row of `gains` comes from
    facts.places   every document's id, sorted, with the file that contains it
    facts.homes    these files, with their shards

A row of `gains` refers to its document and its input by 64-bit hashes, which are counted and compared but never shown.
`rank` and `log_p` are those of the position (rank 0 is the document's most likely one); the rank is null if the draws
are not known. `contested` means that another tool has a call at the position too, `repeated` that another row of the
tool has the same input within the same window (see `views`).

Shards do not share documents, so the table is built shard by shard, in little memory. The rows of a shard are copied
from the last snapshot as long as the shard's commits are the same. This module knows no threshold and no view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from warehouse.schema import ADDED_COLUMNS
from warehouse.snapshot.views import RULES
from warehouse.store import Store

__all__ = ["FORMAT", "build_index", "parquet_sql", "sql_text", "with_added_columns"]

FORMAT = f"2, duckdb {duckdb.__version__}"  # of these tables; `hash` may differ between versions of DuckDB
_BATCH = 400_000  # rows that are read at once
_MEMORY = "512MB"  # for reading and sorting; the rest goes to disk

_GAINS = pa.schema(
    [
        ("slot", pa.int32()),
        ("doc", pa.uint64()),
        ("position", pa.int32()),
        ("gain", pa.float64()),
        ("log_p", pa.float64()),
        ("rank", pa.int32()),
        ("contested", pa.bool_()),
        ("input", pa.uint64()),
        ("window_end", pa.int32()),
        ("repeated", pa.bool_()),
    ]
)

# The files of the current commits of `score`, each with the files of the draws that its calls come from.
_SOURCES = """
WITH files AS (
    SELECT c.stage, c.tool, c.shard, c.commit_id, f.path, f.rows
    FROM facts.commits AS c JOIN facts.current USING (commit_id) JOIN facts.files AS f USING (commit_id)
    WHERE c.stage IN ('sample', 'score') AND f.table_name <> 'rejects' AND commit_id NOT IN (FROM facts.broken)
)
SELECT s.shard, s.tool, s.commit_id, s.path, s.rows, d.path AS draws
FROM files AS s LEFT JOIN files AS d ON d.stage = 'sample' AND d.tool = s.tool AND d.shard = s.shard
WHERE s.stage = 'score' ORDER BY s.shard, s.tool, s.commit_id, s.path, d.path"""

_HOMES = """
SELECT f.path, f.digest, min(c.shard) AS shard
FROM facts.files AS f JOIN facts.current USING (commit_id)
LEFT JOIN facts.commit_inputs AS i ON i.digest = f.digest
LEFT JOIN facts.commits AS c ON c.commit_id = i.commit_id
WHERE f.table_name = 'documents' AND f.rows > 0 AND f.commit_id NOT IN (FROM facts.broken)
GROUP BY ALL ORDER BY f.path"""


@dataclass(frozen=True, slots=True)
class _Source:
    """A file of scored calls."""

    slot: int
    path: str
    rows: int
    draws: tuple[str, ...]  # paths of the files of draws


def sql_text(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def with_added_columns(table: str, relation: str, columns: str = "*") -> str:
    """Return SQL of a relation with the columns that files of earlier program versions lack: there they are null.

    Args:
        table: the table whose rows the relation contains, e.g. `scored`.
        relation: SQL of the relation, see `parquet_sql`.
        columns: the columns to select from it.
    """
    later = ", ".join(f"NULL::{kind} AS {name}" for name, kind in ADDED_COLUMNS.get(table, {}).items())
    selected = f"SELECT {columns} FROM {relation}"
    return f"{selected} UNION ALL BY NAME SELECT {later} WHERE false" if later else selected


def parquet_sql(paths: Iterable[str]) -> str:
    """Return SQL of a relation: the rows of Parquet files, given by absolute path or URL, with `file_index`."""
    listed = ", ".join(sql_text(_escaped(path)) for path in paths)
    return f"read_parquet([{listed}])"


def _escaped(path: str) -> str:
    """Escape a path, so that DuckDB does not take it for a pattern."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def build_index(connection: duckdb.DuckDBPyConnection, store: Store, earlier: Path) -> None:
    """Create the index in a snapshot that has all other facts; commits whose data cannot be read become broken.

    Args:
        connection: to the snapshot that is being written, in a transaction or not.
        store: the data folder.
        earlier: the last snapshot, which need not exist.

    Raises:
        duckdb.Error: the snapshot cannot be written.
    """
    connection.execute(f"SET memory_limit = '{_MEMORY}'")
    connection.execute(
        """
        CREATE TABLE facts.slots (slot INTEGER, commit_id VARCHAR, tool VARCHAR, shard VARCHAR);
        CREATE TABLE facts.gains (slot INTEGER, doc UBIGINT, "position" INTEGER, gain DOUBLE, log_p DOUBLE,
                                  "rank" INTEGER, contested BOOLEAN, input UBIGINT, window_end INTEGER,
                                  repeated BOOLEAN);
        CREATE TABLE facts.homes (home INTEGER, path VARCHAR, digest VARCHAR, shard VARCHAR);
        CREATE TABLE facts.places (doc_id VARCHAR, home INTEGER);
        INSERT INTO facts.about VALUES ('index', $format), ('near', $near)""",
        {"format": FORMAT, "near": str(store.local_folder)},
    )
    attached = _attach(connection, earlier)
    _add_gains(connection, store, attached)
    _add_places(connection, store, attached)


def _attach(connection: duckdb.DuckDBPyConnection, earlier: Path) -> bool:
    """Attach the last snapshot, if it is readable and of this format, until the connection is closed."""
    if not earlier.is_file():
        return False
    try:  # on another connection: an error here must not end the transaction in which the snapshot is written
        with duckdb.connect() as probe:
            probe.execute(f"ATTACH {sql_text(str(earlier))} AS earlier (READ_ONLY)")
            row = probe.execute("SELECT value FROM earlier.facts.about WHERE name = 'index'").fetchone()
    except duckdb.Error:
        return False
    if row is None or row[0] != FORMAT:
        return False
    connection.execute(f"ATTACH {sql_text(str(earlier))} AS earlier (READ_ONLY)")
    return True


def _add_gains(connection: duckdb.DuckDBPyConnection, store: Store, attached: bool) -> None:
    sources = connection.execute(_SOURCES).fetchall()
    shards: dict[str, dict[str, str]] = {}  # shard -> commit -> tool
    for shard, tool, commit_id, *_ in sources:
        shards.setdefault(shard, {})[commit_id] = tool
    slots = _copy_gains(connection, shards) if attached else {}
    new = {shard for shard, commits in shards.items() if not commits.keys() <= slots.keys()}
    next_slot = max(slots.values(), default=-1) + 1
    for shard, commits in shards.items():
        if shard in new:
            slots |= {commit_id: next_slot + i for i, commit_id in enumerate(commits)}
            next_slot += len(commits)
    rows = [
        (slots[commit_id], commit_id, tool, shard)
        for shard, commits in shards.items()
        for commit_id, tool in commits.items()
    ]
    _insert(connection, "slots", ("slot", "commit_id", "tool", "shard"), rows)
    for batch in _batches([row for row in sources if row[0] in new], slots):
        try:
            table = _read(store, batch)
        except duckdb.Error:
            table = _read_intact(connection, store, batch, {slot: commit_id for commit_id, slot in slots.items()})
        connection.register("_rows", table)
        connection.execute("INSERT INTO facts.gains SELECT * FROM _rows")
        connection.unregister("_rows")


def _copy_gains(connection: duckdb.DuckDBPyConnection, shards: dict[str, dict[str, str]]) -> dict[str, int]:
    """Copy the rows of shards whose commits are the same as in the last snapshot; return the slots of these commits."""
    before: dict[str, dict[str, int]] = {}
    for shard, commit_id, slot in connection.execute(
        "SELECT shard, commit_id, slot FROM earlier.facts.slots"
    ).fetchall():
        before.setdefault(shard, {})[commit_id] = slot
    kept = {
        commit_id: slot
        for shard, commits in before.items()
        if commits.keys() == shards.get(shard, {}).keys()
        for commit_id, slot in commits.items()
    }
    if len(kept) == sum(map(len, before.values())):
        connection.execute("INSERT INTO facts.gains FROM earlier.facts.gains")
    elif kept:
        kept_slots = "(SELECT unnest($kept) AS slot)"
        connection.execute(
            f"INSERT INTO facts.gains SELECT g.* FROM earlier.facts.gains AS g SEMI JOIN {kept_slots} USING (slot)",
            {"kept": list(kept.values())},
        )
    return kept


def _batches(rows: Sequence[Any], slots: dict[str, int]) -> Iterator[list[_Source]]:
    """Group the files of calls into batches of whole shards."""
    shards: dict[str, dict[str, _Source]] = {}  # shard -> path of the file of calls -> file
    for shard, _, commit_id, path, count, draws in rows:
        if count:
            files = shards.setdefault(shard, {})
            earlier_draws = files[path].draws if path in files else ()
            all_draws = tuple(dict.fromkeys((*earlier_draws, draws) if draws else earlier_draws))
            files[path] = _Source(slots[commit_id], path, count, all_draws)
    batch: list[_Source] = []
    for files in shards.values():
        if batch and sum(source.rows for source in (*batch, *files.values())) > _BATCH:
            yield batch
            batch = []
        batch += files.values()
    if batch:
        yield batch


def _read(store: Store, batch: Sequence[_Source]) -> pa.Table:
    """Return the rows of `gains` for whole shards.

    Raises:
        duckdb.Error: a file cannot be read.
    """
    draws = list(dict.fromkeys(path for source in batch for path in source.draws))
    ranks = (
        f"""SELECT DISTINCT doc_id, tool, "position", "rank" FROM {parquet_sql(map(store.local_path, draws))}"""
        if draws
        else """SELECT '' AS doc_id, '' AS tool, 0 AS "position", 0 AS "rank" WHERE false"""
    )
    scored = with_added_columns(
        "scored", parquet_sql(store.local_path(source.path) for source in batch), "*, file_index"
    )
    sql = f"""
WITH calls AS (
    SELECT * FROM ({scored}) WHERE {RULES}
    QUALIFY row_number() OVER (
        PARTITION BY file_index, doc_id, tool, "position" ORDER BY gain DESC, input, response) = 1
), ranks AS ({ranks})
SELECT $slots[file_index::BIGINT + 1]::INTEGER AS slot, hash(c.doc_id) AS doc, "position"::INTEGER AS "position",
       gain, log_p, r."rank"::INTEGER AS "rank", count(*) OVER (PARTITION BY c.doc_id, "position") > 1 AS contested,
       hash(input) AS input, window_end::INTEGER AS window_end,
       coalesce("position" < lag(window_end) OVER alike OR lead("position") OVER alike < window_end, false) AS repeated
FROM calls AS c LEFT JOIN ranks AS r USING (doc_id, tool, "position")
WINDOW alike AS (PARTITION BY file_index, c.doc_id, tool, input ORDER BY "position")
ORDER BY slot, doc, "position" """
    with duckdb.connect(config={"memory_limit": _MEMORY}) as reader:
        return reader.sql(sql, params={"slots": [source.slot for source in batch]}).to_arrow_table().cast(_GAINS)


def _read_intact(
    connection: duckdb.DuckDBPyConnection, store: Store, batch: Sequence[_Source], commits: dict[int, str]
) -> pa.Table:
    """Return the rows of the files that can be read, and mark the commits of the others as broken.

    Args:
        commits: slot -> commit.
    """
    intact = []
    for source in batch:
        try:
            _read(store, [source])
        except duckdb.Error:
            connection.execute("INSERT INTO facts.broken VALUES ($id)", {"id": commits[source.slot]})
        else:
            intact.append(source)
    return _read(store, intact) if intact else _GAINS.empty_table()


def _add_places(connection: duckdb.DuckDBPyConnection, store: Store, attached: bool) -> None:
    homes = [(i, *row) for i, row in enumerate(connection.execute(_HOMES).fetchall())]
    _insert(connection, "homes", ("home", "path", "digest", "shard"), homes)
    if not homes:
        return
    sql = "SELECT home, path, digest FROM {}facts.homes ORDER BY home"
    if (
        attached
        and connection.execute(sql.format("earlier.")).fetchall() == connection.execute(sql.format("")).fetchall()
    ):
        connection.execute("INSERT INTO facts.places FROM earlier.facts.places")
        return
    documents = parquet_sql(store.local_path(row[1]) for row in homes)
    sql = f"SELECT doc_id, file_index::INTEGER AS home FROM {documents} ORDER BY ALL"
    with duckdb.connect(config={"memory_limit": _MEMORY}) as reader:
        for batch in reader.sql(sql).to_arrow_reader(_BATCH):
            connection.register("_rows", pa.Table.from_batches([batch]))
            connection.execute("INSERT INTO facts.places SELECT * FROM _rows")
            connection.unregister("_rows")


def _insert(connection: duckdb.DuckDBPyConnection, table: str, names: Sequence[str], rows: Sequence[Any]) -> None:
    if rows:
        connection.register("_rows", pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))))
        connection.execute(f"INSERT INTO facts.{table} SELECT * FROM _rows")
        connection.unregister("_rows")
