"""The tables and views that users query in a snapshot: views over the Parquet files, and views over the facts.

A view is created again only if its SQL differs from that in the snapshot that was copied; `facts.views` has a digest of
each. This module does not know the filtering rules or any query: these are in `views`, `analyst_views` and
`warehouse.queries`.
"""

from __future__ import annotations

import contextlib

import duckdb
import pyarrow as pa

from warehouse.commits import digest
from warehouse.schema import STAGES, TABLES
from warehouse.snapshot import analyst_views, grounding_views, rate_views, views
from warehouse.snapshot.dataset_views import current_version_sql, version_examples_sql
from warehouse.snapshot.relations import parquet_sql, sql_text
from warehouse.snapshot.tool_views import TOOL_COSTS
from warehouse.store import Store

# The comment of each table and view.
_ABOUT = {facts.table: facts.about for facts in STAGES.values()} | {
    "rejects": "Rows that a stage could not use at all, with the beginning of each.",
    "shards": "Every commit: what was done, and whether it is current (of the newest build or evaluation) and intact.",
    "drops": "Which rows of the current shards were not kept: dropped or failed, by reason.",
    "runs": "One row per build, evaluation or what-if, newest last; times in UTC.",
    "datasets": "Versions of C*; one row for each way in which a version was made.",
    "dataset_examples": "The texts of every version of C* whose files are all there, each text once per version.",
    "kept_calls": "The calls in the current C*, with their losses (nats).",
    "costs": "Seconds and LM tokens of the current build per stage and tool, in total and per kept call.",
    "tool_costs": "Calls per tool of the current build: answered, failed, from the cache; their durations and cost.",
    "prompts": "The annotation prompts of all builds; the text is NULL for builds of earlier program versions.",
    "trainings": "Finished trainings: their inputs, losses, perplexities, and the path of the checkpoint.",
    "lineage": "The commits and files on which each dataset version depends, for each way in which it was made.",
    "best_calls": "Single calls that low thresholds keep: the best at each position, and of those repeated nearby.",
    "yield_by_threshold": "Examples and calls per tool that the thresholds 0.5, 1 and 2 would keep.",
    "evaluations": "One row per evaluation: an arm at one k on one task, and whether its run was completed.",
    "accuracy": "Per evaluation: the share of right examples, among all and among those with and without a call.",
    "call_rates": "Per evaluation and tool: the number of examples on which it was called.",
    "perplexity": "Per evaluation: perplexity over all tokens, tools disabled.",
    "choice_accuracy": "Per grounding and method (lm, toolformer): the share of queries with a right choice.",
    "grounded_accuracy": "Per method of choosing: the share of queries with a right answer.",
    "grounding_costs": "LM calls, tokens, tool calls and seconds of each step of a grounding.",
}

_OVER_FACTS = ""  # stands for all views and macros over the facts in `facts.views`

_VIEWS = {
    "shards": views.SHARDS,
    "drops": views.DROPS,
    "runs": analyst_views.RUNS,
    "datasets": analyst_views.DATASETS,
    "lineage": views.LINEAGE,
    "best_calls": views.BEST_CALLS,
    "kept_calls": analyst_views.KEPT_CALLS,
    "costs": analyst_views.COSTS,
    "tool_costs": TOOL_COSTS,
    "prompts": analyst_views.PROMPTS,
    "trainings": analyst_views.TRAININGS,
    "yield_by_threshold": views.YIELD_BY_THRESHOLD,
    "evaluations": views.EVALUATIONS,
    "accuracy": views.ACCURACY,
    "call_rates": views.CALL_RATES,
    "perplexity": views.PERPLEXITY,
    "choice_accuracy": grounding_views.CHOICE_ACCURACY,
    "grounded_accuracy": grounding_views.GROUNDED_ACCURACY,
    "grounding_costs": grounding_views.GROUNDING_COSTS,
}

# The table that some macros read, the macros, and a comment on each.
_MACROS = (
    ("groundings", grounding_views.MACROS, grounding_views.MACRO_COMMENTS),
    ("scored", rate_views.MACROS, rate_views.MACRO_COMMENTS),
)

# The current files of every table whose commits can be shown.
_SHOWN = """
SELECT table_name, list(DISTINCT path ORDER BY path) AS paths FROM facts.files JOIN facts.current USING (commit_id)
WHERE rows > 0 AND commit_id NOT IN (FROM facts.broken) GROUP BY table_name"""


def update_tables(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Make the tables and views those of the facts and the index.

    Args:
        connection: to the snapshot that is being written; it can read the store's files.
        store: the data folder.

    Raises:
        duckdb.Error: a file that a view refers to cannot be read, or the snapshot cannot be written.
    """
    shown = dict(connection.execute(_SHOWN).fetchall())
    wanted: dict[str, str] = {}  # name -> SQL of a view
    empty: dict[str, pa.Schema] = {}  # name -> columns of a table without rows
    if (examples := version_examples_sql(connection, store)) is not None:
        wanted["dataset_examples"] = examples
    added_columns = {"examples": current_version_sql(connection)}
    for table in (*TABLES, *(name for name in sorted(shown) if name not in TABLES and name not in _VIEWS)):
        if table in wanted:
            continue
        if paths := shown.get(table):
            files = parquet_sql(store.locate(path) for path in paths)
            columns = ", ".join(filter(None, ("*", added_columns.get(table, ""))))
            wanted[table] = f"SELECT {columns} FROM {files}"
        else:
            empty[table] = TABLES[table]
    _replace_changed(connection, wanted, empty)


def _replace_changed(
    connection: duckdb.DuckDBPyConnection, wanted: dict[str, str], empty: dict[str, pa.Schema]
) -> None:
    """Replace the views over files and the empty tables that changed; then the views over these."""
    connection.execute("CREATE TABLE IF NOT EXISTS facts.views (name VARCHAR, digest VARCHAR)")
    before = dict(connection.execute("FROM facts.views").fetchall())
    over_facts = "\n".join(map(str, (_VIEWS, _ABOUT, *_MACROS)))
    after = {name: digest(sql.encode()) for name, sql in wanted.items()}
    after |= {name: digest(str(schema).encode()) for name, schema in empty.items()}
    after[_OVER_FACTS] = digest(over_facts.encode())
    changed = [name for name in after if after[name] != before.get(name) and name != _OVER_FACTS]
    for name in (*changed, *(before.keys() - after.keys())):
        _drop(connection, name)
    for name in changed:
        if name in wanted:
            connection.execute(f"CREATE VIEW {name} AS {wanted[name]}")
        else:
            connection.register("_rows", empty[name].empty_table())
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM _rows")
            connection.unregister("_rows")
        _comment(connection, name, "VIEW" if name in wanted else "TABLE")
    if after[_OVER_FACTS] != before.get(_OVER_FACTS):
        create_views(connection)
    if after != before:
        connection.execute("DELETE FROM facts.views")
        rows = {"names": list(after), "digests": list(after.values())}
        connection.execute("INSERT INTO facts.views SELECT unnest($names), unnest($digests)", rows)


def _drop(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    if (kind := _kinds(connection).get(name)) is not None:
        connection.execute(f"DROP {kind} {name}")


def _comment(connection: duckdb.DuckDBPyConnection, name: str, kind: str) -> None:
    if name in _ABOUT:
        connection.execute(f"COMMENT ON {kind} {name} IS {sql_text(_ABOUT[name])}")


def create_views(connection: duckdb.DuckDBPyConnection, partial: bool = False) -> None:
    """Create the views and macros over the tables and facts of a database that has these, and comment on each.

    Args:
        connection: to the database.
        partial: whether tables may be missing; views that need one of them are left out, as macros are anyway.
    """
    missing = (duckdb.CatalogException,) if partial else ()
    for view, sql in _VIEWS.items():
        with contextlib.suppress(*missing):
            connection.execute(f"CREATE OR REPLACE VIEW {view} AS {sql}")
    kinds = _kinds(connection)
    for table, macros, comments in _MACROS:
        for macro, (parameters, sql) in macros.items() if table in kinds else ():
            connection.execute(f"CREATE OR REPLACE MACRO {macro}({parameters}) AS TABLE {sql}")
            connection.execute(f"COMMENT ON MACRO TABLE {macro} IS {sql_text(comments[macro])}")
    for name, kind in kinds.items():
        _comment(connection, name, kind)


def _kinds(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the names of all tables and views that users query, each with VIEW or TABLE."""
    rows = connection.execute(
        "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'main'"
    ).fetchall()
    return {name: "VIEW" if kind == "VIEW" else "TABLE" for name, kind in rows}
