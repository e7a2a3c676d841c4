"""The snapshot's index: small tables that say what a threshold yields and where a document is (see the README).

Rows of `facts.gains` stand by document (a hash), position and precedence. `alike` is a hash of the input and the calls
in front, null where no other call of the slot and document has it; `rank` (null: unknown) and `log_p` are those of the
position, of a chain its first call's. A slot's `tool` is that of a chain's last call.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from warehouse.schema import CHAIN_DEPTHS, columns, table_of
from warehouse.snapshot.outcomes import YIELDS, Tools, best, columns_of, filter_of_current, yields
from warehouse.snapshot.relations import execute_with, parquet_sql, sql_text
from warehouse.snapshot.remote import connect
from warehouse.snapshot.views import CHAIN_PRECEDENCE, MEASURED, RULES, queries_beside
from warehouse.store import Store

FORMAT = f"9, duckdb {duckdb.__version__}"  # of the tables; `hash` may differ between versions of DuckDB
BIN_NATS = 0.5  # the width of a bin of gains
_LAST_BIN = 1000  # in both directions
_BATCH = 50_000  # rows that are read at once: more cost memory and save no time
_DOCUMENTS = 400_000  # ... of documents
_UNSORTED = 200_000  # documents that may stay unsorted: finding an id among them takes a few milliseconds
_COMMITTED = 250_000  # rows after which a transaction ends, as it holds what it has inserted in memory
_MEMORY = "512MB"  # for reading and sorting; the rest goes to disk

_GAINS = columns(
    "slot int32?, doc uint64?, position int32?, gain real?, log_p real?, rank int32?, alike uint64?, window_end int32?"
)
_BINS = columns("slot int32?, bin int16?, calls int?")
_SLOTS = columns("slot int32?, commit_id text?, tool text?, shard text?, preceding_tools text[]?, repeats text[]?")
_TABLES = {
    "slots": _SLOTS,
    "gains": _GAINS.append(pa.field("best", pa.bool_())),
    "yields": YIELDS,
    "gain_bins": _BINS,
}

_STAGES = ("score", *(f"score_{depth}" for depth in CHAIN_DEPTHS))
_SQL = queries_beside(__file__)
_PRECEDING_TOOLS = "[one.tool FOR one IN preceding_calls]"


class _Source(NamedTuple):
    slot: int  # the first one of its commit
    path: str
    rows: int
    chained: bool
    samples: list[str]  # paths of the files of samples


def update_index(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Make the index that of the facts, in one or more transactions; commits that cannot be read become broken."""
    connection.execute(f"SET memory_limit = '{_MEMORY}'")
    for name, schema in _TABLES.items():
        execute_with(connection, f"CREATE TABLE IF NOT EXISTS facts.{name} AS FROM _rows", schema.empty_table())
    repeats = sorted(filter_of_current(connection).keep_repeats)
    scores = f"({', '.join(map(sql_text, _STAGES))})"
    connection.execute(_SQL["changed"].format(repeats=f"[{', '.join(map(sql_text, repeats))}]", scores=scores))
    _add_gains(connection, store, repeats)
    _update_document_locations(connection, store)


def _add_gains(connection: duckdb.DuckDBPyConnection, store: Store, repeats: Sequence[str]) -> None:
    sources = connection.execute(_SQL["sources"], {"scores": list(_STAGES)}).fetchall()
    [(first,)] = connection.execute("SELECT coalesce(max(slot), -1) + 1 FROM facts.slots").fetchall()
    slots = _Slots(first)
    commits = {commit_id: (tool, shard) for shard, tool, commit_id, *_ in sources}
    firsts = {commit_id: slots.add(commit_id, *commit) for commit_id, commit in commits.items()}
    broken: set[str] = set()
    uncommitted = 0
    for batch in _batches(sources, firsts):
        try:
            gains, bins = _read(store, batch, slots)
        except duckdb.Error:
            gains, bins, unreadable = _read_intact(store, batch, slots)
            broken |= {commit_id for commit_id, slot in firsts.items() if slot in unreadable}
        for table, rows in (*_judged(gains, slots, frozenset(repeats)), ("gain_bins", bins)):
            _insert(connection, table, rows)
        uncommitted += sum(source.rows for source in batch)
        if uncommitted >= _COMMITTED:
            connection.execute("COMMIT; CHECKPOINT; BEGIN")
            uncommitted = 0
    rows = [(slot, *row, repeats) for slot, row in slots.rows.items() if row[0] not in broken]
    _insert(connection, "slots", table_of(_SLOTS, rows))
    connection.execute("INSERT INTO facts.broken SELECT unnest($ids)", {"ids": sorted(broken)})


def _judged(gains: pa.Table, slots: _Slots, repeats: frozenset[str]) -> Iterator[tuple[str, pa.Table]]:
    tools: dict[int, Tools] = {}
    shards: dict[str, list[int]] = {}
    for slot in gains["slot"].unique().to_pylist():
        _, tool, shard, front = slots.rows[slot]
        tools[slot] = (*front, tool)
        shards.setdefault(shard, []).append(slot)
    yield "gains", gains.append_column("best", pa.array(best(columns_of(gains, tools), repeats)))
    counts: list[tuple[Any, ...]] = []
    for shard, own in shards.items():
        own_gains = gains.filter(pc.is_in(gains["slot"], pa.array(own, pa.int32())))
        counts += yields(columns_of(own_gains, tools), shard, repeats)
    yield "yields", table_of(YIELDS, counts)


@dataclass(slots=True)
class _Slots:
    """The slots: one for each commit, and one for each sequence of tools in front of the last call of its chains."""

    next: int
    rows: dict[int, tuple[str, str, str, Tools]] = field(default_factory=dict)  # slot -> commit, tool, shard, front
    of_chains: dict[tuple[int, Tools], int] = field(default_factory=dict)  # by the first slot of the commit

    def add(self, commit_id: str, tool: str, shard: str, front: Tools = ()) -> int:
        self.rows[self.next] = commit_id, tool, shard, front
        self.next += 1
        return self.next - 1

    def of(self, first: int, front: Sequence[str]) -> int:
        key = first, tuple(front)
        if key not in self.of_chains:
            self.of_chains[key] = self.add(*self.rows[first][:3], key[1])
        return self.of_chains[key]


def _batches(rows: Sequence[Any], slots: dict[str, int]) -> Iterator[list[_Source]]:
    batch: list[_Source] = []
    for _, of_shard in itertools.groupby(rows, lambda row: row[0]):
        own = [_Source(slots[commit_id], *file) for _, _, commit_id, *file in of_shard]
        own = [source for source in own if source.rows]
        if batch and sum(source.rows for source in (*batch, *own)) > _BATCH:
            yield batch
            batch = []
        batch += own
    if batch:
        yield batch


def _read(store: Store, batch: Sequence[_Source], slots: _Slots) -> tuple[pa.Table, pa.Table]:
    """Return the rows of `gains` and of `gain_bins` for whole shards; `duckdb.Error`: a file cannot be read."""
    single, chains = ([one for one in batch if one.chained is chained] for chained in (False, True))
    ranks, parts, bins = _SQL["no_ranks"], [], []
    if samples := dict.fromkeys(store.locate(path) for source in single for path in source.samples):
        ranks = f'SELECT DISTINCT doc_id, tool AS opener, "position", "rank" FROM {parquet_sql(samples)}'
    if single:
        files = parquet_sql(store.locate(source.path) for source in single)
        parts.append(f"""
SELECT {_slots_of(single)} AS slot, doc_id, tool, tool AS opener, "position", gain, log_p, input, response,
       window_end, [] AS preceding_calls FROM {files} WHERE {RULES}""")
        bins.append(_binned(single, files))
    with connect(store, _MEMORY) as reader:
        if chains:
            files = parquet_sql(store.locate(source.path) for source in chains)
            reader.register("_of_chains", _chain_slots(reader, files, chains, slots))
            scored = f"SELECT *, file_index, {_PRECEDING_TOOLS} AS preceding_tools FROM {files}"
            openers = _SQL["no_openers"]
            if single:
                drawn = parquet_sql(store.locate(source.path) for source in single)
                openers = f'SELECT doc_id, tool, "position", any_value(log_p) AS log_p FROM {drawn} GROUP BY ALL'
            parts.append(f"""
SELECT o.slot, c.doc_id, c.tool, c.preceding_tools[1] AS opener, c."position", c.gain, l.log_p, c.input, c.response,
       c.window_end, c.preceding_calls
FROM (FROM ({scored}) WHERE {RULES}) AS c
JOIN _of_chains AS o ON o.file = c.file_index AND o.preceding_tools = c.preceding_tools
LEFT JOIN ({openers}) AS l ON l.doc_id = c.doc_id AND l.tool = c.preceding_tools[1] AND l."position" = c."position"
""")
            bins.append(_binned(chains, files))
        calls = " UNION ALL BY NAME ".join(f"({part})" for part in parts)
        gains = reader.sql(_SQL["gains"].format(calls=calls, ranks=ranks, order=CHAIN_PRECEDENCE))
        counts = reader.sql(f"{' UNION ALL '.join(bins)} ORDER BY ALL")
        return gains.to_arrow_table().cast(_GAINS), counts.to_arrow_table().cast(_BINS)


def _slots_of(sources: Sequence[_Source]) -> str:
    return f"{[source.slot for source in sources]}[file_index::BIGINT + 1]::INTEGER"


def _binned(sources: Sequence[_Source], files: str) -> str:
    """Return the query for the rows of `gain_bins` of some files."""
    return f"""
SELECT {_slots_of(sources)} AS slot,
       least(greatest(floor(gain / {BIN_NATS}), -{_LAST_BIN}), {_LAST_BIN})::SMALLINT AS bin, count(*) AS calls
FROM {files} WHERE {MEASURED} GROUP BY ALL"""


def _chain_slots(reader: duckdb.DuckDBPyConnection, files: str, chains: Sequence[_Source], slots: _Slots) -> pa.Table:
    sql = f"SELECT DISTINCT file_index::BIGINT AS file, {_PRECEDING_TOOLS} AS preceding_tools FROM {files} ORDER BY ALL"
    rows = [(file, tools, slots.of(chains[file].slot, tools)) for file, tools in reader.sql(sql).fetchall()]
    return table_of(columns("file int?, preceding_tools text[]?, slot int32?"), rows)


def _read_intact(store: Store, batch: Sequence[_Source], slots: _Slots) -> tuple[pa.Table, pa.Table, set[int]]:
    unreadable = set()
    for source in batch:
        try:
            _read(store, [source], slots)
        except duckdb.Error:
            unreadable.add(source.slot)
    intact = [source for source in batch if source.slot not in unreadable]
    tables = _read(store, intact, slots) if intact else (_GAINS.empty_table(), _BINS.empty_table())
    return *tables, unreadable


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    if rows.num_rows:
        execute_with(connection, f"INSERT INTO facts.{table} SELECT * FROM _rows", rows)


def _update_document_locations(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Make `facts.document_files` and `facts.document_locations` those of the current files of documents.

    Documents of new files are appended, sorted among themselves; once these are more than the others, all are sorted.
    """
    for name in ("document_tables", "current_files", "remove_gone"):
        connection.execute(_SQL[name])
    new: list[tuple[int, str]] = sorted(connection.execute(_SQL["add_files"]).fetchall())
    if not new:
        return
    before = _documents(connection)
    documents = parquet_sql(store.locate(path) for _, path in new)
    sql = f"SELECT doc_id, $files[file_index::BIGINT + 1]::INTEGER AS file FROM {documents} ORDER BY ALL"
    with connect(store, _MEMORY) as reader:
        for batch in reader.sql(sql, params={"files": [number for number, _ in new]}).to_arrow_reader(_DOCUMENTS):
            _insert(connection, "document_locations", pa.Table.from_batches([batch]))
    after = _documents(connection)
    known = connection.execute("SELECT value::BIGINT FROM facts.about WHERE name = 'sorted locations'").fetchall()
    in_order = known[0][0] if known else 0  # rows from the beginning
    if before and after - in_order <= max(in_order, _UNSORTED):
        return
    if before:
        connection.execute(_SQL["sort"])
    connection.execute("DELETE FROM facts.about WHERE name = 'sorted locations'")
    connection.execute("INSERT INTO facts.about VALUES ('sorted locations', $rows)", {"rows": str(after)})


def _documents(connection: duckdb.DuckDBPyConnection) -> int:
    [(documents,)] = connection.execute("SELECT count(*) FROM facts.document_locations").fetchall()
    return int(documents)
