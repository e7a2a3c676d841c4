"""What changed in the facts since the last snapshot, applied to a copy of it, or to an empty file.

Records are compared by what identifies them, of a run's list of commits length and digest; only what differs is read.
"""

import duckdb
import pyarrow as pa

from warehouse.catalog import Catalog
from warehouse.facts import ARROW_SCHEMAS, COMMIT_TABLES, DATASET_TABLES, IDENTITIES, METADATA, RUN_SUMMARIES
from warehouse.snapshot.relations import execute_with

# The runs that use other commits than before.
_OTHER_COMMITS = f"""
SELECT run_id FROM _summaries ANTI JOIN ({RUN_SUMMARIES.format("facts.run_commits")}) USING (run_id, commits, digest)"""

# Makes the commits of the runs in `new_runs` those of the catalog; what both have is not written again.
_UPDATE_RUN_COMMITS = """
DELETE FROM facts.run_commits WHERE run_id IN (FROM new_runs)
AND (run_id, commit_id) NOT IN (SELECT (run_id, commit_id) FROM _rows);
INSERT INTO facts.run_commits BY NAME SELECT * FROM _rows SEMI JOIN new_runs USING (run_id)
ANTI JOIN facts.run_commits USING (run_id, commit_id)"""


def apply_changes(connection: duckdb.DuckDBPyConnection, catalog: Catalog, run_id: str = "") -> bool:
    """Make the tables of the facts those of the catalog, or of one run; return whether commits or runs changed.

    The temporary tables `new_commits` and `gone_commits` (commit_id) stay, for what is derived from the facts.
    """
    for name, schema in ARROW_SCHEMAS.items():
        execute_with(connection, f"CREATE TABLE IF NOT EXISTS facts.{name} AS FROM _rows", schema.empty_table())
    identities = catalog.identities(run_id)
    connection.register("_summaries", identities.pop("run_commits"))
    for name, rows in identities.items():
        _compare(connection, name, rows)
    connection.unregister("_summaries")
    new = {name: connection.sql(f"FROM new_{name}").to_arrow_table() for name in identities}
    facts = catalog.facts_of(new) if any(keys.num_rows for keys in new.values()) else None
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
    """Make the keys of the rows in which a table and the catalog's differ `new_<table>` and `gone_<table>`."""
    columns = ", ".join(IDENTITIES[table])
    more = f"UNION {_OTHER_COMMITS}" if table == "runs" else ""
    for name, one, other in (("new", "_rows", f"facts.{table}"), ("gone", f"facts.{table}", "_rows")):
        differing = f"SELECT {columns} FROM {one} EXCEPT SELECT {columns} FROM {other}"
        sql = f"CREATE OR REPLACE TEMP TABLE {name}_{table} AS SELECT {_keys(table)} FROM ({differing}) {more}"
        execute_with(connection, sql, rows)
