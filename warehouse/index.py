"""The snapshot's own index: small tables from which yields are counted and a document is found, without the big files.

    facts.gains    of each tool's allowed calls at a position of a document, the one with the largest gain
    facts.slots    which commit a row of `gains` comes from
    facts.places   every document's id, sorted, and the file it stands in
    facts.homes    those files, and the shard they are

A row of `gains` names its document and its input by 64-bit hashes: they are counted and compared, never shown. `rank`
and `log_p` are those of the position (0 is the document's most likely one), rank null where no draws are known;
`contested` says that another tool has a call there too, `repeated` that another row of the tool has the same input
within the same window (see `views`).
Shards do not share documents, so the table is made shard by shard, in little memory; what the last snapshot holds of a
shard is taken over as long as its commits are the same. It knows no threshold and no view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from warehouse.schema import LATER_COLUMNS
from warehouse.store import Store
from warehouse.views import RULES

__all__ = ["FORMAT", "build", "parquet_sql", "quoted", "with_later_columns"]

FORMAT = f"2, duckdb {duckdb.__version__}"  # of the tables; `hash` may differ from one version to the next
_BATCH = 400_000  # rows read at once
_MEMORY = "512MB"  # for reading and sorting; more goes to disk

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

# The current commits of `score`, with the files of calls and of the draws they come from.
_SOURCES = """
WITH own AS (
    SELECT c.stage, c.tool, c.shard, c.commit_id, f.path, f.rows
    FROM facts.commits AS c JOIN facts.current USING (commit_id) JOIN facts.files AS f USING (commit_id)
    WHERE c.stage IN ('sample', 'score') AND f.table_name <> 'rejects' AND commit_id NOT IN (FROM facts.broken)
)
SELECT s.shard, s.tool, s.commit_id, s.path, s.rows, d.path AS draws
FROM own AS s LEFT JOIN own AS d ON d.stage = 'sample' AND d.tool = s.tool AND d.shard = s.shard
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
    draws: tuple[str, ...]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def with_later_columns(table: str, relation: str, columns: str = "*") -> str:
    """Return SQL of a relation with those columns of a table that files of earlier versions lack: there they are null.

    Args:
        table: the table of which the relation holds rows, e.g. `scored`.
        relation: SQL, as `parquet_sql` gives it.
        columns: of these files.
    """
    later = ", ".join(f"NULL::{kind} AS {name}" for name, kind in LATER_COLUMNS.get(table, {}).items())
    told = f"SELECT {columns} FROM {relation}"
    return f"{told} UNION ALL BY NAME SELECT {later} WHERE false" if later else told


def parquet_sql(places: Iterable[str]) -> str:
    """Return SQL of a relation: the rows of Parquet files, by absolute path or URL, with `file_index`."""
    listed = ", ".join(quoted(_escaped(place)) for place in places)
    return f"read_parquet([{listed}])"


def _escaped(path: str) -> str:
    """Keep DuckDB from reading a folder's name as a pattern."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def build(connection: duckdb.DuckDBPyConnection, store: Store, earlier: Path) -> None:
    """Make the tables in a snapshot whose other facts are there; commits whose data cannot be read become broken.

    Args:
        connection: on the snapshot in the making, in a transaction or not.
        store: where the data is.
        earlier: the last snapshot; it need not be there.

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
        {"format": FORMAT, "near": str(store.beside)},
    )
    known = _attached(connection, earlier)
    _gains(connection, store, known)
    _places(connection, store, known)


def _attached(connection: duckdb.DuckDBPyConnection, earlier: Path) -> bool:
    """Attach the last snapshot if there is one, readable and of this format; it stays so while the connection does."""
    if not earlier.is_file():
        return False
    try:  # in another database: an error here must not end the transaction of the snapshot in the making
        with duckdb.connect() as probe:
            probe.execute(f"ATTACH {quoted(str(earlier))} AS earlier (READ_ONLY)")
            found = probe.execute("SELECT value FROM earlier.facts.about WHERE name = 'index'").fetchone()
    except duckdb.Error:
        return False
    if found is None or found[0] != FORMAT:
        return False
    connection.execute(f"ATTACH {quoted(str(earlier))} AS earlier (READ_ONLY)")
    return True


def _gains(connection: duckdb.DuckDBPyConnection, store: Store, known: bool) -> None:
    found = connection.execute(_SOURCES).fetchall()
    shards: dict[str, dict[str, str]] = {}  # shard -> commit -> tool
    for shard, tool, commit_id, *_ in found:
        shards.setdefault(shard, {})[commit_id] = tool
    slots = _taken_over(connection, shards) if known else {}
    fresh = {shard for shard, own in shards.items() if not own.keys() <= slots.keys()}
    free = max(slots.values(), default=-1) + 1
    for shard, own in shards.items():
        if shard in fresh:
            slots |= {commit_id: free + i for i, commit_id in enumerate(own)}
            free += len(own)
    rows = [(slots[c], c, tool, shard) for shard, own in shards.items() for c, tool in own.items()]
    _insert(connection, "slots", ("slot", "commit_id", "tool", "shard"), rows)
    for batch in _batches([row for row in found if row[0] in fresh], slots):
        try:
            table = _read(store, batch)
        except duckdb.Error:
            table = _readable(connection, store, batch, {slot: c for c, slot in slots.items()})
        connection.register("_rows", table)
        connection.execute("INSERT INTO facts.gains SELECT * FROM _rows")
        connection.unregister("_rows")


def _taken_over(connection: duckdb.DuckDBPyConnection, shards: dict[str, dict[str, str]]) -> dict[str, int]:
    """Copy what the last snapshot holds of shards whose commits are the same; return those commits' slots."""
    before: dict[str, dict[str, int]] = {}
    for shard, commit_id, slot in connection.execute(
        "SELECT shard, commit_id, slot FROM earlier.facts.slots"
    ).fetchall():
        before.setdefault(shard, {})[commit_id] = slot
    kept = {c: s for shard, own in before.items() if own.keys() == shards.get(shard, {}).keys() for c, s in own.items()}
    if len(kept) == sum(map(len, before.values())):
        connection.execute("INSERT INTO facts.gains FROM earlier.facts.gains")
    elif kept:
        own_slots = "(SELECT unnest($kept) AS slot)"
        connection.execute(
            f"INSERT INTO facts.gains SELECT g.* FROM earlier.facts.gains AS g SEMI JOIN {own_slots} USING (slot)",
            {"kept": list(kept.values())},
        )
    return kept


def _batches(rows: Sequence[Any], slots: dict[str, int]) -> Iterator[list[_Source]]:
    """Group files into batches of whole shards."""
    files: dict[str, dict[str, tuple[int, int, list[str]]]] = {}  # shard -> file of calls -> slot, rows, files of draws
    for shard, _, commit_id, path, n, draws in rows:
        if n:
            own = files.setdefault(shard, {}).setdefault(path, (slots[commit_id], n, []))
            own[2].extend([draws] if draws else [])
    batch: list[_Source] = []
    for in_shard in files.values():
        if batch and sum(s.rows for s in batch) + sum(n for _, n, _ in in_shard.values()) > _BATCH:
            yield batch
            batch = []
        batch += [_Source(slot, path, n, tuple(dict.fromkeys(d))) for path, (slot, n, d) in in_shard.items()]
    if batch:
        yield batch


def _read(store: Store, batch: Sequence[_Source]) -> pa.Table:
    """Return the rows of whole shards.

    Raises:
        duckdb.Error: a file cannot be read.
    """
    draws = list(dict.fromkeys(d for source in batch for d in source.draws))
    ranks = (
        f"""SELECT DISTINCT doc_id, tool, "position", "rank" FROM {parquet_sql(map(store.near, draws))}"""
        if draws
        else """SELECT '' AS doc_id, '' AS tool, 0 AS "position", 0 AS "rank" WHERE false"""
    )
    scored = with_later_columns("scored", parquet_sql(store.near(s.path) for s in batch), "*, file_index")
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


def _readable(
    connection: duckdb.DuckDBPyConnection, store: Store, batch: Sequence[_Source], commits: dict[int, str]
) -> pa.Table:
    """Return the rows of those files that can be read, and call the others' commits broken."""
    sound = []
    for source in batch:
        try:
            _read(store, [source])
        except duckdb.Error:
            connection.execute("INSERT INTO facts.broken VALUES ($id)", {"id": commits[source.slot]})
        else:
            sound.append(source)
    return _read(store, sound) if sound else _GAINS.empty_table()


def _places(connection: duckdb.DuckDBPyConnection, store: Store, known: bool) -> None:
    homes = [(i, *row) for i, row in enumerate(connection.execute(_HOMES).fetchall())]
    _insert(connection, "homes", ("home", "path", "digest", "shard"), homes)
    if not homes:
        return
    same = "SELECT home, path, digest FROM {}facts.homes ORDER BY home"
    if (
        known
        and connection.execute(same.format("earlier.")).fetchall() == connection.execute(same.format("")).fetchall()
    ):
        connection.execute("INSERT INTO facts.places FROM earlier.facts.places")
        return
    documents = parquet_sql(store.near(row[1]) for row in homes)
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
