"""What changed in the facts since the last snapshot, applied to a copy of it.

A snapshot is written as the changes against the last one, or against an empty file, by the same statements; so both
ways give the same rows. Commits, runs and datasets are compared by what identifies them, and only the rows of those
that differ are read from the source. Of a run's list of commits, length and digest are compared.

This module knows no view and opens no database.
"""

from dataclasses import dataclass
from typing import Protocol

import duckdb
import pyarrow as pa

from warehouse.facts import COMMIT_TABLES, DATASET_TABLES, IDENTITIES, METADATA, RUN_SUMMARIES, Facts, arrow_schema

# The runs that use other commits than before.
_OTHER_COMMITS = f"""
SELECT run_id FROM _summaries ANTI JOIN ({RUN_SUMMARIES.format("facts.run_commits")}) USING (run_id, commits, digest)"""


class FactsSource(Protocol):
    """Where the facts come from: the catalog, or records that were read from the store."""

    def identities(self) -> Facts:
        """Return what tells records apart: tables with at least the columns of `facts.IDENTITIES`.

        `run_commits` has the rows of `facts.RUN_SUMMARIES`.
        """

    def facts_of(self, keys: Facts) -> Facts:
        """Return the rows of all tables about these commits, runs and datasets; rows about others do no harm.

        Args:
            keys: `commits`, `runs` and `datasets`, each with the columns of the table's primary key.
        """


@dataclass(frozen=True, slots=True)
class RecordedFacts:
    tables: Facts

    def identities(self) -> Facts:
        with duckdb.connect() as connection:
            connection.register("pairs", self.tables["run_commits"])
            summaries = connection.sql(RUN_SUMMARIES.format("pairs")).to_arrow_table()
        return {name: self.tables[name] for name in IDENTITIES} | {"run_commits": summaries}

    def facts_of(self, keys: Facts) -> Facts:
        del keys
        return self.tables


@dataclass(frozen=True, slots=True)
class Changes:
    """How many commits, runs and dataset records were added to or removed from the facts; one that changed is both."""

    commits: int
    runs: int
    datasets: int


def apply_changes(connection: duckdb.DuckDBPyConnection, source: FactsSource) -> Changes:
    """Make the tables of the facts equal to the source.

    The temporary tables `new_commits` and `gone_commits` (commit_id) stay, for what is derived from the facts.

    Raises:
        CatalogError: the source cannot be read.
        duckdb.Error: the snapshot cannot be written.
    """
    for name, declared in METADATA.tables.items():
        connection.register("_rows", arrow_schema(declared).empty_table())
        connection.execute(f"CREATE TABLE IF NOT EXISTS facts.{name} AS FROM _rows")
    new: Facts = {}
    counts: dict[str, int] = {}
    identities = source.identities()
    connection.register("_summaries", identities.pop("run_commits"))
    for name, rows in identities.items():
        connection.register("_rows", rows)
        new[name], counts[name] = _compare(connection, name)
    facts = source.facts_of(new) if any(keys.num_rows for keys in new.values()) else None
    for table in COMMIT_TABLES:
        connection.execute(f"DELETE FROM facts.{table} WHERE commit_id IN (FROM gone_commits)")
    for table in DATASET_TABLES:
        connection.execute(f"DELETE FROM facts.{table} WHERE (name, version, made) IN (FROM gone_datasets)")
    connection.execute("DELETE FROM facts.runs WHERE run_id IN (FROM gone_runs)")
    connection.execute(
        "DELETE FROM facts.run_commits WHERE run_id IN (FROM gone_runs) AND run_id NOT IN (FROM new_runs)"
    )
    if facts is not None:
        for table in (*COMMIT_TABLES, *DATASET_TABLES, "runs"):
            _insert(connection, table, facts[table])
        _update_run_commits(connection, facts["run_commits"])
    for name in ("_rows", "_summaries"):
        connection.unregister(name)
    return Changes(counts["commits"], counts["runs"], counts["datasets"])


def _compare(connection: duckdb.DuckDBPyConnection, table: str) -> tuple[pa.Table, int]:
    """Compare a table with the source's, which is registered as `_rows`.

    Creates `new_<table>` and `gone_<table>`; returns the keys of the former, and the number of rows of both.
    """
    keys = ", ".join(column.name for column in METADATA.tables[table].primary_key.columns)
    columns = ", ".join(IDENTITIES[table])
    more = f"UNION {_OTHER_COMMITS}" if table == "runs" else ""
    for name, one, other in (("new", "_rows", f"facts.{table}"), ("gone", f"facts.{table}", "_rows")):
        connection.execute(
            f"""CREATE OR REPLACE TEMP TABLE {name}_{table} AS
            SELECT {keys} FROM (SELECT {columns} FROM {one} EXCEPT SELECT {columns} FROM {other}) {more}"""
        )
    rows = connection.sql(f"FROM new_{table}").to_arrow_table()
    [(gone,)] = connection.execute(f"SELECT count(*) FROM gone_{table}").fetchall()
    return rows, rows.num_rows + gone


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    """Insert the rows that belong to new commits, runs or datasets."""
    if rows.num_rows == 0:
        return
    owner = "commits" if table in COMMIT_TABLES else "datasets" if table in DATASET_TABLES else table
    keys = ", ".join(column.name for column in METADATA.tables[owner].primary_key.columns)
    connection.register("_rows", rows)
    connection.execute(f"INSERT INTO facts.{table} BY NAME SELECT * FROM _rows SEMI JOIN new_{owner} USING ({keys})")


def _update_run_commits(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    """Make the commits of the runs in `new_runs` equal to the source's; what both have is not written again."""
    connection.register("_rows", rows)
    connection.execute(
        """DELETE FROM facts.run_commits WHERE run_id IN (FROM new_runs)
        AND (run_id, commit_id) NOT IN (SELECT (run_id, commit_id) FROM _rows)"""
    )
    connection.execute(
        """INSERT INTO facts.run_commits BY NAME SELECT * FROM _rows SEMI JOIN new_runs USING (run_id)
        ANTI JOIN facts.run_commits USING (run_id, commit_id)"""
    )
