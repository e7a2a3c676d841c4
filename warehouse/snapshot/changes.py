"""What changed in the facts since the last snapshot, applied to a copy of it, or to an empty file.

Commits, runs and datasets are compared by what identifies them, and only the rows of those that differ are read from
the source. Of a run's list of commits, length and digest are compared.
"""

from dataclasses import dataclass
from typing import Protocol

import duckdb
import pyarrow as pa

from warehouse.facts import (
    ARROW_SCHEMAS,
    COMMIT_TABLES,
    DATASET_TABLES,
    IDENTITIES,
    METADATA,
    RUN_SUMMARIES,
    Facts,
    run_summaries,
)
from warehouse.snapshot.relations import execute_with

# The runs that use other commits than before.
_OTHER_COMMITS = f"""
SELECT run_id FROM _summaries ANTI JOIN ({RUN_SUMMARIES.format("facts.run_commits")}) USING (run_id, commits, digest)"""

# Makes the commits of the runs in `new_runs` those of the source; what both have is not written again.
_UPDATE_RUN_COMMITS = """
DELETE FROM facts.run_commits WHERE run_id IN (FROM new_runs)
AND (run_id, commit_id) NOT IN (SELECT (run_id, commit_id) FROM _rows);
INSERT INTO facts.run_commits BY NAME SELECT * FROM _rows SEMI JOIN new_runs USING (run_id)
ANTI JOIN facts.run_commits USING (run_id, commit_id)"""


class FactsSource(Protocol):
    """Where the facts come from: the catalog, or records that were read from the store."""

    def identities(self) -> Facts:
        """Return `commits`, `runs` and `datasets` with at least the columns of `facts.IDENTITIES`.

        `run_commits` has the rows of `facts.RUN_SUMMARIES`.
        """

    def facts_of(self, keys: Facts) -> Facts:
        """Return the rows of all tables about commits, runs and datasets by primary key; others do no harm."""


@dataclass(frozen=True, slots=True)
class RecordedFacts:
    tables: Facts

    def identities(self) -> Facts:
        summaries = run_summaries(self.tables["run_commits"])
        return {name: self.tables[name] for name in IDENTITIES} | {"run_commits": summaries}

    def facts_of(self, keys: Facts) -> Facts:
        del keys
        return self.tables


def apply_changes(connection: duckdb.DuckDBPyConnection, source: FactsSource) -> bool:
    """Make the tables of the facts equal to the source; return whether commits or runs changed.

    The temporary tables `new_commits` and `gone_commits` (commit_id) stay, for what is derived from the facts.
    """
    for name, schema in ARROW_SCHEMAS.items():
        execute_with(connection, f"CREATE TABLE IF NOT EXISTS facts.{name} AS FROM _rows", schema.empty_table())
    identities = source.identities()
    connection.register("_summaries", identities.pop("run_commits"))
    for name, rows in identities.items():
        _compare(connection, name, rows)
    connection.unregister("_summaries")
    new = {name: connection.sql(f"FROM new_{name}").to_arrow_table() for name in identities}
    facts = source.facts_of(new) if any(keys.num_rows for keys in new.values()) else None
    for owner, tables in (("commits", COMMIT_TABLES), ("datasets", DATASET_TABLES), ("runs", ("runs",))):
        keys = _keys(owner)
        for table in tables:
            connection.execute(f"DELETE FROM facts.{table} WHERE ({keys}) IN (SELECT ({keys}) FROM gone_{owner})")
            if facts is not None and facts[table].num_rows:
                sql = f"INSERT INTO facts.{table} BY NAME SELECT * FROM _rows SEMI JOIN new_{owner} USING ({keys})"
                execute_with(connection, sql, facts[table])
    connection.execute(
        "DELETE FROM facts.run_commits WHERE run_id IN (FROM gone_runs) AND run_id NOT IN (FROM new_runs)"
    )
    if facts is not None:
        execute_with(connection, _UPDATE_RUN_COMMITS, facts["run_commits"])
    differing = ("new_commits", "gone_commits", "new_runs", "gone_runs")
    return any(connection.execute(f"FROM {table} LIMIT 1").fetchall() for table in differing)


def _keys(table: str) -> str:
    return ", ".join(column.name for column in METADATA.tables[table].primary_key.columns)


def _compare(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    """Make the keys of the rows in which a table and the source's differ `new_<table>` and `gone_<table>`."""
    columns = ", ".join(IDENTITIES[table])
    more = f"UNION {_OTHER_COMMITS}" if table == "runs" else ""
    for name, one, other in (("new", "_rows", f"facts.{table}"), ("gone", f"facts.{table}", "_rows")):
        differing = f"SELECT {columns} FROM {one} EXCEPT SELECT {columns} FROM {other}"
        sql = f"CREATE OR REPLACE TEMP TABLE {name}_{table} AS SELECT {_keys(table)} FROM ({differing}) {more}"
        execute_with(connection, sql, rows)
