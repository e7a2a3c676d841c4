"""What other thresholds would keep, from the stored scores alone: yields per tool, and which calls would come and go.

Every call with a response is stored with its score, whatever its gain, so every tau_f can be tried from the floor on
below which scores are not complete (0 nats, unless the build asked for more). Fewer positions (a smaller k, a larger
tau_s) are a part of what was sampled; more positions or more draws need the model. The rules by which a call survives
are in `views`. The limit on examples per tool is not applied.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from warehouse.queries import Sample, Yield, calls_with_text, open_snapshot, rows_in
from warehouse.reweighting import STORED, Gains
from warehouse.schema import WHAT_IF
from warehouse.snapshot.relations import sql_text
from warehouse.snapshot.views import NEWEST, count_sql, survivors_sql

__all__ = [
    "BY_GAIN",
    "MARK_REASONS",
    "CallFilter",
    "Change",
    "StoredScores",
    "WhatIf",
    "allowed_sql",
    "count_unranked",
    "kept_sql",
    "lowest_sql",
    "moved_sql",
    "stored_scores",
    "what_if",
    "yields",
]


MARK_REASONS = ("rejected", "not_accepted")  # why marks leave calls out, see `tasks.mark_filter`
BY_GAIN = 'ORDER BY gain DESC, slot, doc, "position"'  # the order of lists of calls


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Which of the stored calls to keep: for each tool a threshold, and all of its positions or some of them."""

    tau_f: Mapping[str, float]  # nats; tools that are not named are left out
    top_k: Mapping[str, int] = field(
        default_factory=dict
    )  # only the k first positions of a document, as they were ranked
    tau_s: Mapping[str, float] = field(default_factory=dict)  # only positions with p(" [") above this
    keep_repeats: bool = False  # also calls of one tool with the same input within five tokens of each other
    gains: Gains = STORED  # what calls gain; others than the stored ones come of other weights


@dataclass(frozen=True, slots=True)
class StoredScores:
    """How the current scores were made: how each tool was sampled, and how C* was assembled."""

    sampled: Mapping[str, Mapping[str, Any]]  # tool -> its config of `sample`: top_k, tau_s, ...
    assembled: Mapping[str, Any]  # the config of `assemble`; empty until C* is assembled
    run_id: str  # the newest run that used the current commits; "" if there is none
    floors: Mapping[str, float] = field(
        default_factory=dict
    )  # tool -> gain below which calls are not scored to the end
    decays: Mapping[str, float] = field(default_factory=dict)  # tool -> decay of the weights, where it is known
    marked_out: Mapping[str, int] = field(default_factory=dict)  # reason -> calls that marks left out of the current C*
    chained: bool = False  # whether calls were chained


@dataclass(frozen=True, slots=True)
class Change:
    """What two filters yield for one tool."""

    before: Yield
    after: Yield


@dataclass(frozen=True, slots=True)
class WhatIf:
    """How the results of two filters differ."""

    changes: tuple[Change, ...]  # by tool
    comes: tuple[Sample, ...]  # calls that survive only the second filter, the largest gain first
    goes: tuple[Sample, ...]  # ... only the first filter


def stored_scores(path: str | Path) -> StoredScores:
    """Return how the current scores were made.

    Raises:
        SnapshotError: there is no snapshot.
    """
    sql = """SELECT c.stage, c.tool, any_value(c.config) AS config FROM facts.commits AS c
        JOIN facts.current USING (commit_id) WHERE c.stage IN ('sample', 'assemble', 'score_2')
        GROUP BY ALL ORDER BY ALL"""
    floors = """SELECT c.tool, max(TRY_CAST(c.config::JSON->>'floor' AS DOUBLE)) AS floor FROM facts.commits AS c
        JOIN facts.current USING (commit_id) WHERE c.stage = 'score' GROUP BY c.tool HAVING floor IS NOT NULL"""
    decays = """SELECT c.tool, max(TRY_CAST(c.config::JSON->>'decay' AS DOUBLE)) AS decay FROM facts.commits AS c
        JOIN facts.current USING (commit_id) WHERE c.stage = 'score' GROUP BY c.tool HAVING decay IS NOT NULL"""
    marked = f"""SELECT b.reason, sum(b.rows)::BIGINT AS calls FROM facts.balances AS b JOIN facts.commits AS c
        USING (commit_id) JOIN facts.current USING (commit_id)
        WHERE c.stage = 'assemble' AND b.reason IN ({", ".join(map(sql_text, MARK_REASONS))}) GROUP BY b.reason"""
    newest = f"""SELECT run_id FROM facts.runs AS r WHERE flow <> '{WHAT_IF}' AND run_id IN (
            SELECT rc.run_id FROM facts.run_commits AS rc JOIN facts.current USING (commit_id)
            JOIN facts.commits AS c USING (commit_id) WHERE c.stage = 'score')
        ORDER BY state = 'completed' DESC, {NEWEST} LIMIT 1"""
    with open_snapshot(path) as connection:
        configs = rows_in(connection, sql)
        runs = rows_in(connection, newest)
        lowest = {row["tool"]: row["floor"] for row in rows_in(connection, floors)}
        of_tool = {row["tool"]: row["decay"] for row in rows_in(connection, decays)}
        left_out = {row["reason"]: row["calls"] for row in rows_in(connection, marked)}
    sampled = {row["tool"]: json.loads(row["config"]) for row in configs if row["stage"] == "sample"}
    assembled: dict[str, Any] = next((json.loads(row["config"]) for row in configs if row["stage"] == "assemble"), {})
    chained = any(row["stage"] == "score_2" for row in configs)
    run_id = runs[0]["run_id"] if runs else ""
    return StoredScores(sampled, assembled, run_id, lowest, of_tool, left_out, chained)


def count_unranked(path: str | Path) -> int:
    """Return the number of allowed calls whose position has no known rank, because the draws are gone.

    Raises:
        SnapshotError: there is no snapshot.
    """
    with open_snapshot(path) as connection:
        return int(rows_in(connection, 'SELECT count(*) AS n FROM facts.gains WHERE "rank" IS NULL')[0]["n"])


def yields(path: str | Path, call_filter: CallFilter) -> list[Yield]:
    """Return examples and calls per tool, each tool at its own threshold, sorted by tool.

    Raises:
        SnapshotError: there is no snapshot.
    """
    with open_snapshot(path) as connection:
        return _yields(connection, call_filter)


def what_if(path: str | Path, before: CallFilter, after: CallFilter, n: int = 5, width: int = 60) -> WhatIf:
    """Compare two filters.

    Args:
        path: the snapshot.
        before: the first filter.
        after: the second filter, with the same tools.
        n: how many calls to return at most of those that come, and of those that go.
        width: characters of text before and after a call's position.

    Raises:
        SnapshotError: there is no snapshot, or data that it refers to is gone.
    """
    with open_snapshot(path) as connection:
        changes = tuple(map(Change, _yields(connection, before), _yields(connection, after)))
        sides = zip((after, before), _moved(connection, before, after, n), strict=True)
        comes, goes = (calls_with_text(connection, calls, width, side.gains.of_call) for side, calls in sides)
    return WhatIf(changes, comes, goes)


def allowed_sql(call_filter: CallFilter) -> str:
    """Return SQL of whether the filter allows a row of `gains` with its slot; it uses constants and joins nothing.

    The threshold of a chain is that of its last call's tool; it stands where its first call was drawn.
    """
    cases = " ".join(
        f"WHEN {sql_text(tool)} THEN g.gain >= {float(tau)!r}::DOUBLE" for tool, tau in call_filter.tau_f.items()
    )
    places = []
    for tool in {**call_filter.top_k, **call_filter.tau_s}:
        tau_s = call_filter.tau_s.get(tool, 0.0)
        limits = [f'g."rank" < {int(call_filter.top_k[tool])}'] if tool in call_filter.top_k else []
        limits += [f"g.log_p > {math.log(tau_s)!r}::DOUBLE"] if tau_s > 0 else []
        places.append(f"WHEN {sql_text(tool)} THEN {' AND '.join(limits) or 'true'}")
    passes = f"CASE tool {cases} ELSE false END" if cases else "false"
    placed = f"CASE coalesce(behind[1], tool) {' '.join(places)} ELSE true END" if places else "true"
    return f"coalesce({passes} AND {placed}, false)"


def lowest_sql(call_filter: CallFilter) -> str:
    """Return SQL of a condition that every kept call meets, which excludes most calls before anything is joined."""
    return f"g.gain >= {float(min(call_filter.tau_f.values(), default=0.0))!r}::DOUBLE"


def _yields(connection: duckdb.DuckDBPyConnection, call_filter: CallFilter) -> list[Yield]:
    counted = {row["tool"]: row for row in rows_in(connection, count_sql(kept_sql(call_filter)))}
    none = {"examples": 0, "calls": 0}
    return [
        Yield(tool, float(tau), (of_tool := counted.get(tool, none))["examples"], of_tool["calls"])
        for tool, tau in sorted(call_filter.tau_f.items())
    ]


def kept_sql(call_filter: CallFilter) -> str:
    """Return SQL of the calls (slot, tool, doc, "position", gain) that a filter keeps."""
    rows = f"""SELECT g.*, tool FROM {call_filter.gains.relation} AS g JOIN facts.slots USING (slot)
        WHERE {lowest_sql(call_filter)} AND {allowed_sql(call_filter)}"""
    return survivors_sql(rows, _bool(call_filter.keep_repeats))


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _moved(
    connection: duckdb.DuckDBPyConnection, before: CallFilter, after: CallFilter, n: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the calls that survive only the second filter, and those that survive only the first, the best first."""
    rows = rows_in(
        connection,
        f"""WITH moved AS MATERIALIZED ({moved_sql(before, after)})
        (FROM moved WHERE holds {BY_GAIN} LIMIT {int(n)}) UNION ALL
        (FROM moved WHERE NOT holds {BY_GAIN} LIMIT {int(n)})
        {BY_GAIN}""",
    )
    return [row for row in rows if row["holds"]], [row for row in rows if not row["holds"]]


def moved_sql(before: CallFilter, after: CallFilter) -> str:
    """Return SQL of the calls (slot, tool, doc, "position", gain, holds) that survive one of two filters.

    A call without a rival at its position or in its window survives every filter that allows it. The other calls are
    only examined in documents in which the two filters allow different ones of them: elsewhere the same calls survive.
    If the two filters take gains from elsewhere, all calls are compared: a call is then the same one at its position.
    """
    if before.gains != after.gains:
        same = 'USING (slot, doc, "position")'
        return f"""
WITH was AS MATERIALIZED ({kept_sql(before)}), becomes AS MATERIALIZED ({kept_sql(after)})
SELECT *, false AS holds FROM was ANTI JOIN becomes {same}
UNION ALL SELECT *, true AS holds FROM becomes ANTI JOIN was {same}"""
    other_rule = _bool(before.keep_repeats != after.keep_repeats)
    return f"""
WITH kept AS MATERIALIZED (
    SELECT g.*, tool, contested OR repeated AS rivalled, {allowed_sql(before)} AS held, {allowed_sql(after)} AS holds
    FROM {before.gains.relation} AS g JOIN facts.slots USING (slot)
    WHERE ({lowest_sql(before)} OR {lowest_sql(after)}) AND (held OR holds) AND (rivalled OR held <> holds)
), rivals AS MATERIALIZED (
    SELECT * FROM kept SEMI JOIN (SELECT doc FROM kept WHERE rivalled AND (held <> holds OR {other_rule})) AS changed
    USING (doc) WHERE rivalled
), survives AS (
    SELECT *, false AS holds FROM ({survivors_sql("FROM rivals WHERE held", _bool(before.keep_repeats))})
    UNION ALL
    SELECT *, true AS holds FROM ({survivors_sql("FROM rivals WHERE holds", _bool(after.keep_repeats))})
), either AS (
    SELECT slot, tool, doc, "position", gain, holds FROM kept WHERE NOT rivalled
    UNION ALL
    SELECT slot, tool, doc, "position", any_value(gain), any_value(holds) FROM survives GROUP BY ALL HAVING count(*) = 1
)
SELECT * FROM either"""
