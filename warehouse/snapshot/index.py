"""The snapshot's index: small tables that say what a threshold yields and where a document is.

    facts.gains      for each tool and position of a document, the allowed call with the largest gain
    facts.gain_bins  for each tool and shard, how many scored calls, kept or not, gain how much
    facts.slots      the commit that a row of `gains` or `gain_bins` comes from
    facts.places     every document's id, with the file that contains it (see `places`)
    facts.homes      these files, with their shards

A row of `gains` refers to its document and its input by 64-bit hashes, which are counted and compared but never shown;
the input is null where nothing compares it. `rank` and `log_p` are those of the position (rank 0 is the document's
first); the rank is null if the draws are not known. `contested` means that another tool has a call at the position too,
`repeated` that another row of the tool has the same input within the same window (see `views`). A row of `gain_bins`
counts the gains from `bin` half nats up to the next half nat.

Shards do not share documents, so the tables are made shard by shard, in little memory. Where the snapshot began as a
copy of the last one, only shards whose commits changed are read. This module knows no threshold and no view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from warehouse.snapshot.places import update_places
from warehouse.snapshot.relations import parquet_sql, with_added_columns
from warehouse.snapshot.remote import connect
from warehouse.snapshot.views import MEASURED, RULES
from warehouse.store import Store

__all__ = ["BIN_NATS", "FORMAT", "update_index"]

FORMAT = f"3, duckdb {duckdb.__version__}"  # of these tables; `hash` may differ between versions of DuckDB
BIN_NATS = 0.5  # the width of a bin of gains
_LAST_BIN = 1000  # in both directions
_BATCH = 50_000  # rows that are read at once: more cost memory and save no time
_COMMITTED = 250_000  # rows after which a transaction ends, as it holds what it has inserted in memory
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

_BINS = pa.schema([("slot", pa.int32()), ("bin", pa.int16()), ("calls", pa.int64())])

_TABLES = """
CREATE TABLE IF NOT EXISTS facts.slots (slot INTEGER, commit_id VARCHAR, tool VARCHAR, shard VARCHAR);
CREATE TABLE IF NOT EXISTS facts.gains (slot INTEGER, doc UBIGINT, "position" INTEGER, gain DOUBLE, log_p DOUBLE,
                                        "rank" INTEGER, contested BOOLEAN, input UBIGINT, window_end INTEGER,
                                        repeated BOOLEAN);
CREATE TABLE IF NOT EXISTS facts.gain_bins (slot INTEGER, bin SMALLINT, calls BIGINT)"""

# The current commits of `score`, and the shards whose commits are not those of the index.
_CHANGED = """
CREATE OR REPLACE TEMP TABLE indexed AS
SELECT commit_id, c.shard, c.tool FROM facts.commits AS c JOIN facts.current USING (commit_id)
SEMI JOIN (SELECT commit_id FROM facts.files WHERE table_name <> 'rejects') USING (commit_id)
WHERE c.stage = 'score' AND commit_id NOT IN (FROM facts.broken);
CREATE OR REPLACE TEMP TABLE changed AS SELECT DISTINCT shard FROM (
    (SELECT commit_id, shard FROM indexed EXCEPT SELECT commit_id, shard FROM facts.slots)
    UNION ALL (SELECT commit_id, shard FROM facts.slots EXCEPT SELECT commit_id, shard FROM indexed)
    UNION ALL (SELECT commit_id, shard FROM indexed SEMI JOIN new_commits USING (commit_id)));
CREATE OR REPLACE TEMP TABLE gone_slots AS SELECT slot FROM facts.slots SEMI JOIN changed USING (shard);
DELETE FROM facts.gains WHERE slot IN (FROM gone_slots);
DELETE FROM facts.gain_bins WHERE slot IN (FROM gone_slots);
DELETE FROM facts.slots WHERE slot IN (FROM gone_slots)"""

# The files of the changed shards' commits of `score`, each with the files of the draws that its calls come from.
_SOURCES = """
WITH files AS (
    SELECT c.stage, c.tool, c.shard, c.commit_id, f.path, f.rows
    FROM facts.commits AS c JOIN facts.current USING (commit_id) JOIN facts.files AS f USING (commit_id)
    WHERE c.stage IN ('sample', 'score') AND f.table_name <> 'rejects' AND commit_id NOT IN (FROM facts.broken)
      AND c.shard IN (FROM changed)
)
SELECT s.shard, s.tool, s.commit_id, s.path, s.rows, d.path AS draws
FROM files AS s LEFT JOIN files AS d ON d.stage = 'sample' AND d.tool = s.tool AND d.shard = s.shard
WHERE s.stage = 'score' ORDER BY s.shard, s.tool, s.commit_id, s.path, d.path"""


@dataclass(frozen=True, slots=True)
class _Source:
    """A file of scored calls."""

    slot: int
    path: str
    rows: int
    draws: tuple[str, ...]  # paths of the files of draws


def update_index(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Make the index that of the facts; commits whose data cannot be read become broken.

    Args:
        connection: to the snapshot that is being written, in a transaction; it may be in another one afterwards. Its
            other facts are those of the store.
        store: the data folder.

    Raises:
        duckdb.Error: the snapshot cannot be written.
    """
    connection.execute(f"SET memory_limit = '{_MEMORY}'")
    connection.execute(_TABLES)
    connection.execute(_CHANGED)
    _add_gains(connection, store)
    update_places(connection, store)


def _add_gains(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Add the rows of the changed shards."""
    sources = connection.execute(_SOURCES).fetchall()
    [(first,)] = connection.execute("SELECT coalesce(max(slot), -1) + 1 FROM facts.slots").fetchall()
    commits = {commit_id: (tool, shard) for shard, tool, commit_id, *_ in sources}
    slots = {commit_id: first + number for number, commit_id in enumerate(commits)}
    broken: set[str] = set()
    uncommitted = 0
    for batch in _batches(sources, slots):
        try:
            gains, bins = _read(store, batch)
        except duckdb.Error:
            gains, bins, unreadable = _read_intact(store, batch)
            broken |= {commit_id for commit_id, slot in slots.items() if slot in unreadable}
        _insert(connection, "gains", gains)
        _insert(connection, "gain_bins", bins)
        uncommitted += sum(source.rows for source in batch)
        if uncommitted >= _COMMITTED:
            connection.execute("COMMIT; CHECKPOINT; BEGIN")
            uncommitted = 0
    rows = [(slots[one], one, *commits[one]) for one in commits if one not in broken]
    names = ("slot", "commit_id", "tool", "shard")
    _insert(connection, "slots", pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))) if rows else None)
    connection.execute("INSERT INTO facts.broken SELECT unnest($ids)", {"ids": sorted(broken)})


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


def _read(store: Store, batch: Sequence[_Source]) -> tuple[pa.Table, pa.Table]:
    """Return the rows of `gains` and of `gain_bins` for whole shards.

    Raises:
        duckdb.Error: a file cannot be read.
    """
    draws = list(dict.fromkeys(path for source in batch for path in source.draws))
    ranks = (
        f"""SELECT DISTINCT doc_id, tool, "position", "rank" FROM {parquet_sql(map(store.locate, draws))}"""
        if draws
        else """SELECT '' AS doc_id, '' AS tool, 0 AS "position", 0 AS "rank" WHERE false"""
    )
    files = parquet_sql(store.locate(source.path) for source in batch)
    scored = with_added_columns("scored", files, "*, file_index")
    slot = "$slots[file_index::BIGINT + 1]::INTEGER AS slot"
    gains = f"""
SELECT * REPLACE (CASE WHEN repeated THEN input END AS input) FROM (
WITH calls AS (
    SELECT * FROM ({scored}) WHERE {RULES}
    QUALIFY row_number() OVER (
        PARTITION BY file_index, doc_id, tool, "position" ORDER BY gain DESC, input, response) = 1
), ranks AS ({ranks})
SELECT {slot}, hash(c.doc_id) AS doc, "position"::INTEGER AS "position",
       gain, log_p, r."rank"::INTEGER AS "rank", count(*) OVER (PARTITION BY c.doc_id, "position") > 1 AS contested,
       hash(input) AS input, window_end::INTEGER AS window_end,
       coalesce("position" < lag(window_end) OVER alike OR lead("position") OVER alike < window_end, false) AS repeated
FROM calls AS c LEFT JOIN ranks AS r USING (doc_id, tool, "position")
WINDOW alike AS (PARTITION BY file_index, c.doc_id, tool, input ORDER BY "position")
) ORDER BY slot, doc, "position" """
    bins = f"""
SELECT {slot}, least(greatest(floor(gain / {BIN_NATS}), -{_LAST_BIN}), {_LAST_BIN})::SMALLINT AS bin, count(*) AS calls
FROM {files} WHERE {MEASURED} GROUP BY ALL ORDER BY ALL"""
    slots = {"slots": [source.slot for source in batch]}
    with connect(store, {"memory_limit": _MEMORY}) as reader:
        gains_table = reader.sql(gains, params=slots).to_arrow_table().cast(_GAINS)
        return gains_table, reader.sql(bins, params=slots).to_arrow_table().cast(_BINS)


def _read_intact(store: Store, batch: Sequence[_Source]) -> tuple[pa.Table, pa.Table, set[int]]:
    """Return the rows of the files that can be read, and the slots of the others."""
    intact, unreadable = [], set()
    for source in batch:
        try:
            _read(store, [source])
        except duckdb.Error:
            unreadable.add(source.slot)
        else:
            intact.append(source)
    tables = _read(store, intact) if intact else (_GAINS.empty_table(), _BINS.empty_table())
    return *tables, unreadable


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table | None) -> None:
    if rows is not None and rows.num_rows:
        connection.register("_rows", rows)
        connection.execute(f"INSERT INTO facts.{table} SELECT * FROM _rows")
        connection.unregister("_rows")
