"""What other thresholds would keep, from stored scores alone: yields per tool, and calls that would come and go.

Every call that has a response is scored and kept with its score, whatever its gain, so any tau_f can be asked for.
Fewer positions (a smaller k, a larger tau_s) are a part of what was sampled; more positions, or more draws, are not
known without the model. The rules by which a call survives stand in `views`. The limit on examples per tool is
not applied.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from warehouse.errors import SnapshotError
from warehouse.index import parquet_sql, quoted
from warehouse.queries import Sample, Yield, opened, rows_in
from warehouse.schema import WHAT_IF
from warehouse.views import RULES, count_sql, survivors_sql

__all__ = ["Change", "Choice", "Stored", "WhatIf", "stored", "unranked", "what_if", "yields"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of the stored calls are kept: per tool a threshold, and of its positions all or a part."""

    tau_f: Mapping[str, float]  # nats; tools that are not named take no part
    top_k: Mapping[str, int] = field(default_factory=dict)  # at most so many positions of a document, the likeliest
    tau_s: Mapping[str, float] = field(default_factory=dict)  # only positions with p(" [") above
    keep_repeats: bool = False  # also calls of one tool with the same input within five tokens of each other


@dataclass(frozen=True, slots=True)
class Stored:
    """What the current scores hold: per tool how it was sampled, and by which config C* was assembled from it."""

    sampled: Mapping[str, Mapping[str, Any]]  # tool -> its config of `sample`: top_k, tau_s, ...
    assembled: Mapping[str, Any]  # the config of `assemble`; empty before it was
    run_id: str  # of the newest run that used the current commits; "" if none did


@dataclass(frozen=True, slots=True)
class Change:
    """A tool under two choices."""

    before: Yield
    after: Yield


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What one choice would give in place of another."""

    changes: tuple[Change, ...]  # by tool
    comes: tuple[Sample, ...]  # calls that survive by the second alone, the largest gain first
    goes: tuple[Sample, ...]  # ... by the first alone


def stored(path: str | Path) -> Stored:
    """Return what the current scores hold.

    Raises:
        SnapshotError: there is no snapshot.
    """
    sql = """SELECT c.stage, c.tool, any_value(c.config) AS config FROM facts.commits AS c
        JOIN facts.current USING (commit_id) WHERE c.stage IN ('sample', 'assemble') GROUP BY ALL ORDER BY ALL"""
    newest = f"""SELECT run_id FROM facts.runs WHERE flow <> '{WHAT_IF}' AND run_id IN (
            SELECT rc.run_id FROM facts.run_commits AS rc JOIN facts.current USING (commit_id)
            JOIN facts.commits AS c USING (commit_id) WHERE c.stage = 'score')
        ORDER BY state = 'completed' DESC, started DESC, run_id DESC LIMIT 1"""
    with opened(path) as connection:
        found = rows_in(connection, sql)
        runs = rows_in(connection, newest)
    sampled = {row["tool"]: json.loads(row["config"]) for row in found if row["stage"] == "sample"}
    assembled: dict[str, Any] = next((json.loads(row["config"]) for row in found if row["stage"] == "assemble"), {})
    return Stored(sampled, assembled, runs[0]["run_id"] if runs else "")


def unranked(path: str | Path) -> int:
    """Return how many of the calls that may be kept have no known rank: their draws are gone.

    Raises:
        SnapshotError: there is no snapshot.
    """
    with opened(path) as connection:
        return int(rows_in(connection, 'SELECT count(*) AS n FROM facts.gains WHERE "rank" IS NULL')[0]["n"])


def yields(path: str | Path, choice: Choice) -> list[Yield]:
    """Return examples and calls per tool, each at its own threshold, sorted by tool.

    Raises:
        SnapshotError: there is no snapshot.
    """
    with opened(path) as connection:
        return _yields(connection, choice)


def what_if(path: str | Path, before: Choice, after: Choice, n: int = 5, width: int = 60) -> WhatIf:
    """Compare two choices.

    Args:
        path: the snapshot.
        before: what is kept now.
        after: what would be kept; of the same tools.
        n: calls to show of those that come, and of those that go.
        width: characters of text to show on either side of a call.

    Raises:
        SnapshotError: there is no snapshot, or data it points at is gone.
    """
    with opened(path) as connection:
        changes = tuple(map(Change, _yields(connection, before), _yields(connection, after)))
        comes, goes = (_samples(connection, own, n, width) for own in _moved(connection, before, after, n))
    return WhatIf(changes, comes, goes)


def _taking_part(choice: Choice) -> str:
    """SQL of a relation: per tool its threshold, its number of positions (null: all) and its log tau_s (null: none)."""
    if not choice.tau_f:
        return "SELECT '' AS tool, 0.0::DOUBLE AS tau_f, 0 AS k, 0.0::DOUBLE AS floor WHERE false"
    rows = []
    for tool, tau in choice.tau_f.items():
        name = "'" + tool.replace("'", "''") + "'"
        tau_s = choice.tau_s.get(tool, 0.0)
        floor = repr(math.log(tau_s)) if tau_s > 0 else "NULL"
        k = str(int(choice.top_k[tool])) if tool in choice.top_k else "NULL"
        rows.append(f"({name}, {float(tau)!r}::DOUBLE, {k}::INTEGER, {floor}::DOUBLE)")
    return f"SELECT * FROM (VALUES {', '.join(rows)}) AS t(tool, tau_f, k, floor)"


def _kept(choice: Choice) -> str:
    """SQL that says of a row of `gains`, with its tool, whether it may be kept: constants per tool, nothing joined."""
    cases = []
    for tool, tau in choice.tau_f.items():
        tau_s = choice.tau_s.get(tool, 0.0)
        floor = f" AND g.log_p > {math.log(tau_s)!r}::DOUBLE" if tau_s > 0 else ""
        k = f' AND g."rank" < {int(choice.top_k[tool])}' if tool in choice.top_k else ""
        cases.append(f"WHEN {quoted(tool)} THEN g.gain >= {float(tau)!r}::DOUBLE{k}{floor}")
    return f"coalesce(CASE tool {' '.join(cases)} ELSE false END, false)" if cases else "false"


def _least(choice: Choice) -> str:
    """SQL of what every kept call gains at least: most calls are then left before anything is joined."""
    return f"g.gain >= {float(min(choice.tau_f.values(), default=0.0))!r}::DOUBLE"


def _yields(connection: duckdb.DuckDBPyConnection, choice: Choice) -> list[Yield]:
    taking_part = _taking_part(choice)
    rows = f"""SELECT g.*, tool FROM facts.gains AS g JOIN facts.slots USING (slot)
        WHERE {_least(choice)} AND {_kept(choice)}"""
    survivors = survivors_sql(rows, _bool(choice.keep_repeats))
    sql = count_sql(f"SELECT tool, tau_f FROM ({taking_part})", survivors)
    return [Yield(**row) for row in rows_in(connection, sql)]


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _moved(
    connection: duckdb.DuckDBPyConnection, before: Choice, after: Choice, n: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the calls that survive by the second choice alone, and those that do by the first alone.

    Of each the largest gains, in that order. A call that has no rival, at its position or in its window, survives
    wherever it may be kept. The others are looked at only in documents in which the two choices keep different ones of
    them: elsewhere the same ones survive.
    """
    other_rule = _bool(before.keep_repeats != after.keep_repeats)
    first = 'ORDER BY gain DESC, slot, doc, "position"'
    rows = rows_in(
        connection,
        f"""
WITH kept AS MATERIALIZED (
    SELECT g.*, tool, contested OR repeated AS rivalled, {_kept(before)} AS held, {_kept(after)} AS holds
    FROM facts.gains AS g JOIN facts.slots USING (slot)
    WHERE ({_least(before)} OR {_least(after)}) AND (held OR holds) AND (rivalled OR held <> holds)
), rivals AS MATERIALIZED (
    SELECT * FROM kept SEMI JOIN (SELECT doc FROM kept WHERE rivalled AND (held <> holds OR {other_rule})) AS changed
    USING (doc) WHERE rivalled
), survives AS (
    SELECT *, false AS holds FROM ({survivors_sql("FROM rivals WHERE held", _bool(before.keep_repeats))})
    UNION ALL
    SELECT *, true AS holds FROM ({survivors_sql("FROM rivals WHERE holds", _bool(after.keep_repeats))})
), moved AS MATERIALIZED (
    SELECT slot, tool, doc, "position", gain, holds FROM kept WHERE NOT rivalled
    UNION ALL
    SELECT slot, tool, doc, "position", any_value(gain), any_value(holds) FROM survives GROUP BY ALL HAVING count(*) = 1
)
(FROM moved WHERE holds {first} LIMIT {int(n)}) UNION ALL (FROM moved WHERE NOT holds {first} LIMIT {int(n)})
{first}""",
    )
    return [row for row in rows if row["holds"]], [row for row in rows if not row["holds"]]


def _samples(
    connection: duckdb.DuckDBPyConnection, picked: list[dict[str, Any]], n: int, width: int
) -> tuple[Sample, ...]:
    """Return the calls themselves, with the text around them."""
    if not picked:
        return ()
    root = rows_in(connection, "SELECT value FROM facts.about WHERE name = 'near'")[0]["value"]
    slots = sorted({row["slot"] for row in picked})
    files = rows_in(
        connection,
        """SELECT s.slot, f.path FROM facts.slots AS s JOIN facts.files AS f USING (commit_id)
        WHERE s.slot IN (SELECT unnest($slots)) AND f.table_name = 'scored' ORDER BY ALL""",
        {"slots": slots},
    )
    calls = rows_in(
        connection,
        f"""
WITH picked AS (SELECT unnest($docs) AS doc, unnest($positions) AS "position", unnest($tools) AS tool)
SELECT s.doc_id, s.tool, s."position", s.input, s.response, s.gain, hash(s.doc_id) AS doc
FROM (FROM {parquet_sql(f"{root}/{row['path']}" for row in files)} WHERE {RULES}) AS s
JOIN picked AS p ON p.doc = hash(s.doc_id) AND p."position" = s."position" AND p.tool = s.tool
QUALIFY row_number() OVER (
    PARTITION BY s.doc_id, s."position", s.tool ORDER BY s.gain DESC, s.input, s.response) = 1""",
        {
            "docs": [row["doc"] for row in picked],
            "positions": [row["position"] for row in picked],
            "tools": [row["tool"] for row in picked],
        },
    )
    texts = _texts(connection, root, sorted({row["doc_id"] for row in calls}))
    found = {(row.pop("doc"), row["position"], row["tool"]): row for row in calls}
    out = []
    for row in picked:
        own = found.get((row["doc"], row["position"], row["tool"]))
        if own is None:
            raise SnapshotError("the snapshot does not fit its data: run toolformer reconcile")
        text, at = texts.get(own["doc_id"], ""), own["position"]
        out.append(Sample(**own, before=text[max(0, at - width) : at], after=text[at : at + width]))
    return tuple(out)


def _texts(connection: duckdb.DuckDBPyConnection, root: str, doc_ids: list[str]) -> dict[str, str]:
    homes = rows_in(
        connection,
        """SELECT DISTINCT h.path FROM facts.places AS p JOIN facts.homes AS h USING (home)
        WHERE p.doc_id IN (SELECT unnest($ids))""",
        {"ids": doc_ids},
    )
    if not homes:
        return {}
    relation = parquet_sql(f"{root}/{row['path']}" for row in homes)
    sql = f"SELECT doc_id, text FROM {relation} WHERE doc_id IN (SELECT unnest($ids))"
    return {row["doc_id"]: row["text"] for row in rows_in(connection, sql, {"ids": doc_ids})}
