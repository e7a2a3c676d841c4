"""All SQL over the published snapshot, in one place, and functions that return plain rows.

The filtering rules stand here once, and every view and function uses them:

- a call must gain at least its tool's threshold tau_f;
- MT only: a call whose input stands after its position but not before it is dropped;
- of several such calls at one position of a document, of whichever tools, the one with the largest gain survives
  (ties: the first by tool, then input, then response).

An example of a tool is a document with a survivor of that tool. With one threshold for all tools the winner of a
position does not depend on the threshold: it is the position's *best call*. The limit on examples per tool is not
applied here: it is a choice among examples, not a property of calls.

Gains are in nats. Positions are character offsets (code points). Readers open the snapshot read-only, for one query
or for hours: a newly published snapshot is another file under the same name, seen at the next opening.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from warehouse.errors import SnapshotError
from warehouse.schema import EVALUATION_STAGES

__all__ = [
    "RULES",
    "THRESHOLDS",
    "Explanation",
    "Sample",
    "StageBalance",
    "Stats",
    "Yield",
    "accuracies",
    "explain",
    "nearest_call",
    "perplexities",
    "rows_of",
    "samples",
    "stats",
    "survivors_sql",
    "what_if",
    "yield_by_threshold",
    "yield_sql",
]

THRESHOLDS = (0.5, 1.0, 2.0)  # nats; those of the paper's Table 2

# Which scored calls may be kept at all, whatever the threshold. DuckDB holds NaN to be the largest number.
RULES = "NOT isnan(gain) AND NOT (tool = 'mt' AND seen_after AND NOT seen_before)"

_WINNER = 'row_number() OVER (PARTITION BY doc_id, "position" ORDER BY gain DESC, tool, input, response) = 1'

BEST_CALLS = f"SELECT * FROM scored WHERE {RULES} QUALIFY {_WINNER}"

_MEASURES = "stage IN ({})".format(", ".join(f"'{stage}'" for stage in EVALUATION_STAGES))

# Of a build: the commits of one run, the newest completed one that has any, else the newest that has any (it runs, or
# failed). Of evaluations: for each (task, text, arm, k, model, tools), the commits of one run, chosen in the same way.
# Without runs, the newest commit of every shard.
CURRENT = f"""
WITH known AS (
    SELECT r.run_id, r.started, r.state = 'completed' AS completed, c.commit_id,
           CASE WHEN c.{_MEASURES} THEN coalesce(c.config::JSON->>'evaluation', c.shard) ELSE '' END AS of
    FROM facts.run_commits AS rc JOIN facts.runs AS r USING (run_id) JOIN facts.commits AS c USING (commit_id)
), loose AS (
    SELECT commit_id, stage, tool, shard, created,
           CASE WHEN {_MEASURES} THEN coalesce(config::JSON->>'evaluation', shard) ELSE '' END AS of FROM facts.commits
)
SELECT DISTINCT commit_id FROM (
    SELECT * FROM known
    QUALIFY dense_rank() OVER (PARTITION BY of ORDER BY completed DESC, started DESC, run_id DESC) = 1)
UNION ALL
SELECT commit_id FROM loose WHERE of NOT IN (SELECT of FROM known)
QUALIFY row_number() OVER (PARTITION BY stage, tool, shard ORDER BY created DESC, commit_id DESC) = 1"""

SHARDS = """
SELECT c.stage, c.tool, c.shard, c.commit_id IN (SELECT commit_id FROM facts.current) AS "current",
       c.commit_id NOT IN (SELECT commit_id FROM facts.broken) AS intact, c.rows, c.bytes, c.seconds, c.created,
       c.run_id, c.host, c.stage_version, c.fingerprint, c.content_digest, c.config::JSON AS config,
       c.counters::JSON AS counters, c.versions::JSON AS versions, c.commit_id
FROM facts.commits AS c"""

DROPS = """
SELECT c.stage, c.tool, b.unit, b.reason, b.kind, sum(b.rows)::BIGINT AS rows
FROM facts.balances AS b JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
WHERE b.kind <> 'in'
GROUP BY ALL"""

LINEAGE = """
WITH RECURSIVE used(name, version, run_id, commit_id) AS (
    SELECT d.name, d.version, d.run_id, f.commit_id
    FROM facts.datasets AS d JOIN facts.dataset_files AS df USING (name, version)
    JOIN facts.files AS f ON f.path = df.path AND f.digest = df.digest
    UNION
    SELECT u.name, u.version, u.run_id, source.commit_id
    FROM used AS u JOIN facts.commits AS own ON own.commit_id = u.commit_id
    JOIN facts.commit_inputs AS i ON i.commit_id = u.commit_id
    JOIN facts.files AS f ON f.digest = i.digest AND f.commit_id <> u.commit_id
    JOIN facts.commits AS source ON source.commit_id = f.commit_id
    WHERE (source.tool = own.tool OR source.tool = '' OR own.tool = '')
      AND (EXISTS (FROM facts.run_commits AS rc WHERE rc.run_id = u.run_id AND rc.commit_id = source.commit_id)
           OR NOT EXISTS (FROM facts.run_commits AS rc WHERE rc.run_id = u.run_id))
)
SELECT u.name AS dataset, u.version, c.stage, c.tool, c.shard, f.path AS file, f.rows, f.digest, c.commit_id
FROM used AS u JOIN facts.commits AS c USING (commit_id) JOIN facts.files AS f USING (commit_id)"""


# One row per evaluation: an arm at one k on one task. Its names are those of its newest commit.
EVALUATIONS = """
WITH used AS (
    SELECT rc.commit_id, max(r.started) AS started, bool_or(r.state = 'completed') AS completed
    FROM facts.run_commits AS rc JOIN facts.runs AS r USING (run_id) GROUP BY ALL
), own AS (
    SELECT c.*, c.config::JSON AS told, u.started, coalesce(u.completed, false) AS completed
    FROM facts.commits AS c JOIN facts.current USING (commit_id) LEFT JOIN used AS u USING (commit_id)
    WHERE c.stage IN ('evaluate', 'perplexity')
)
SELECT told->>'evaluation' AS evaluation, any_value(told->>'task') AS task, any_value(told->>'arm') AS arm,
       any_value((told->>'k')::BIGINT) AS k, max_by(told->>'model', created) AS model,
       max_by(told->>'base', created) AS base, any_value(told->>'model_digest') AS model_digest,
       any_value(told->>'base_digest') AS base_digest, any_value(told->>'source') AS source,
       max_by(told->>'path', created) AS path, count(*) AS shards, sum(seconds) AS seconds,
       bool_and(completed) AS completed, max(started) AS evaluated
FROM own GROUP BY told->>'evaluation'"""

ACCURACY = """
WITH counted AS (
    SELECT evaluation, any_value(parameters) AS parameters, count(*) AS items, count_if(correct) AS "right",
           avg(correct::INT) AS accuracy, count_if(called) AS called, avg(called::INT) AS call_rate,
           avg(correct::INT) FILTER (called) AS accuracy_called,
           avg(correct::INT) FILTER (NOT called) AS accuracy_uncalled, count_if(problem <> '') AS failed
    FROM predictions GROUP BY evaluation
)
SELECT e.task, e.base, e.arm, e.k, c.* EXCLUDE (evaluation), e.model, e.base_digest, e.model_digest, e.source, e.path,
       e.completed, e.evaluated, e.seconds, e.evaluation
FROM counted AS c JOIN evaluations AS e USING (evaluation)"""

CALL_RATES = """
SELECT evaluation, any_value(task) AS task, any_value(arm) AS arm, any_value(k) AS k, tool, count(*) AS items,
       count(*) / any_value(total) AS rate, avg(correct::INT) AS accuracy,
       avg((failure IS NOT NULL)::INT) AS failure_rate
FROM predictions JOIN (SELECT evaluation, count(*) AS total FROM predictions GROUP BY evaluation) USING (evaluation)
WHERE called GROUP BY evaluation, tool"""

PERPLEXITY = """
WITH summed AS (
    SELECT evaluation, any_value(parameters) AS parameters, count(*) AS texts, sum(tokens)::BIGINT AS tokens,
           exp(sum(nll) / nullif(sum(tokens), 0)) AS perplexity, count_if(problem <> '') AS failed
    FROM perplexities GROUP BY evaluation
)
SELECT e.task, e.source, e.base, e.arm, p.* EXCLUDE (evaluation), e.model, e.base_digest, e.model_digest, e.path,
       e.completed, e.evaluated, e.seconds, e.evaluation
FROM summed AS p JOIN evaluations AS e USING (evaluation)"""


def yield_sql(thresholds: Iterable[float]) -> str:
    """Return the query for (tool, tau_f, examples, calls), each threshold (nats) applied to all tools alike.

    Raises:
        ValueError: there is no threshold, or one is not finite.
    """
    values = sorted({float(value) for value in thresholds})
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"thresholds must be finite numbers, got {values}")
    listed = ", ".join(f"({value!r}::DOUBLE)" for value in values)
    return f"""
WITH tau AS (
    SELECT tool, tau_f FROM (
        SELECT tool FROM shards WHERE stage = 'score' AND "current" UNION SELECT tool FROM scored
    ) CROSS JOIN (VALUES {listed}) AS t(tau_f)
),
winners AS (
    SELECT tool, doc_id, gain FROM scored WHERE gain >= {values[0]!r}::DOUBLE AND {RULES} QUALIFY {_WINNER}
),
kept AS (SELECT tau.tool, tau.tau_f, w.doc_id FROM tau JOIN winners AS w ON w.tool = tau.tool AND w.gain >= tau.tau_f)
{_COUNT_KEPT}"""


_COUNT_KEPT = """
, per_document AS (SELECT tool, tau_f, doc_id, count(*) AS calls FROM kept GROUP BY ALL)
SELECT tau.tool, tau.tau_f, count(p.doc_id) AS examples, coalesce(sum(p.calls), 0)::BIGINT AS calls
FROM tau LEFT JOIN per_document AS p ON p.tool = tau.tool AND p.tau_f = tau.tau_f GROUP BY ALL ORDER BY ALL"""


def survivors_sql(tau: str) -> str:
    """Return the query for the surviving calls (columns of `scored`, and tau_f) under a threshold per tool.

    Args:
        tau: SQL of a relation (tool, tau_f), one row per tool; tools without a row take no part.
    """
    return f"""
SELECT scored.*, t.tau_f FROM scored JOIN ({tau}) AS t USING (tool)
WHERE gain >= t.tau_f AND {RULES} QUALIFY {_WINNER}"""


_SAMPLES = """
WITH picked AS (SELECT * FROM best_calls WHERE $tool IS NULL OR tool = $tool
                ORDER BY gain DESC, doc_id, "position", tool LIMIT $n)
SELECT c.doc_id, c.tool, c."position", c.input, c.response, c.gain,
       substring(d.text, greatest(c."position" - $width, 0) + 1, least($width, c."position")) AS before,
       substring(d.text, c."position" + 1, $width) AS after
FROM picked AS c JOIN documents AS d USING (doc_id) ORDER BY c.gain DESC, c.doc_id, c."position", c.tool"""

_NEAREST = """
SELECT c.doc_id, c.tool, c."position", c.input, c.response, c.gain,
       substring(d.text, greatest(c."position" - $width, 0) + 1, least($width, c."position")) AS before,
       substring(d.text, c."position" + 1, $width) AS after
FROM scored AS c JOIN documents AS d USING (doc_id) WHERE c.tool = $tool AND NOT isnan(c.gain)
ORDER BY abs(c.gain - $gain), c.doc_id, c."position", c.input LIMIT 1"""

_STATS = """
SELECT c.stage, c.tool, b.unit, b.kind, b.reason, sum(b.rows)::BIGINT, count(DISTINCT c.commit_id)
FROM facts.balances AS b JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
JOIN facts.stages AS s ON s.stage = c.stage
GROUP BY s.rank, c.stage, c.tool, b.unit, b.kind, b.reason ORDER BY s.rank, c.tool, b.unit, b.kind, b.reason"""

_EXPLAIN = {
    "document": "SELECT * FROM documents WHERE doc_id = $doc_id",
    "prefiltered": "SELECT * FROM prefiltered WHERE doc_id = $doc_id ORDER BY tool",
    "sampled": 'SELECT * FROM sampled WHERE doc_id = $doc_id ORDER BY tool, "rank", "position", raw',
    "executed": """
SELECT DISTINCT e.* FROM executed AS e
JOIN (SELECT DISTINCT tool, input FROM sampled WHERE doc_id = $doc_id AND outcome = 'ok') AS s USING (tool, input)
LEFT JOIN prefiltered AS p ON p.doc_id = $doc_id AND p.tool = e.tool
WHERE p.context IS NULL OR p.context = e.context ORDER BY e.tool, e.input, e.context""",
    "scored": f"""
SELECT *, allowed AND row_number() OVER (
    PARTITION BY allowed, "position" ORDER BY gain DESC, tool, input, response) = 1 AS best
FROM (SELECT *, {RULES} AS allowed FROM scored WHERE doc_id = $doc_id)
ORDER BY tool, "position", gain DESC, input, response""",
    "examples": "SELECT * FROM examples WHERE doc_id = $doc_id",
}


@dataclass(frozen=True, slots=True)
class StageBalance:
    """Where the rows of one stage, tool and unit went, over all current shards."""

    stage: str
    tool: str
    unit: str
    shards: int
    rows_in: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)

    @property
    def conserved(self) -> bool:
        """In = kept + dropped + failed."""
        return self.rows_in == self.kept + sum(self.dropped.values()) + sum(self.failed.values())


@dataclass(frozen=True, slots=True)
class Yield:
    """What a threshold would keep."""

    tool: str
    tau_f: float
    examples: int  # documents with at least one surviving call of the tool
    calls: int  # surviving calls, at most one per position


@dataclass(frozen=True, slots=True)
class Stats:
    """What `toolformer stats` prints."""

    balances: tuple[StageBalance, ...]
    yields: tuple[Yield, ...]

    @property
    def conserved(self) -> bool:
        """No row of any stage went missing."""
        return all(balance.conserved for balance in self.balances)


@dataclass(frozen=True, slots=True)
class Sample:
    """A call with the text around its position."""

    doc_id: str
    tool: str
    position: int
    input: str
    response: str
    gain: float
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One document's path: the rows that each current table holds of it."""

    document: dict[str, Any] | None
    prefiltered: tuple[dict[str, Any], ...]
    sampled: tuple[dict[str, Any], ...]
    executed: tuple[dict[str, Any], ...]
    scored: tuple[dict[str, Any], ...]  # with `allowed` (by the rules) and `best` (of its position)
    examples: tuple[dict[str, Any], ...]


def _connect(path: str | Path) -> duckdb.DuckDBPyConnection:
    if not Path(path).is_file():
        raise SnapshotError(f"there is no snapshot at {path} yet; build a dataset, or reconcile")
    try:
        return duckdb.connect(str(path), read_only=True)
    except duckdb.Error as exc:
        raise SnapshotError(f"cannot open the snapshot {path}: {exc}") from exc


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: dict[str, Any] | None) -> list[dict[str, Any]]:
    try:
        found = connection.execute(sql, parameters) if parameters else connection.execute(sql)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    except duckdb.Error as exc:
        raise SnapshotError(f"the query failed: {exc}") from exc


def rows_of(path: str | Path, sql: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return a query's rows as dicts.

    Args:
        path: the snapshot.
        sql: any SELECT; named parameters as `$name`.
        parameters: their values.

    Raises:
        SnapshotError: there is no snapshot, or the query fails.
    """
    with _connect(path) as connection:
        return _rows(connection, sql, parameters)


def yield_by_threshold(path: str | Path, thresholds: Iterable[float] = THRESHOLDS) -> list[Yield]:
    """Return examples and calls per tool at each threshold (nats), sorted by tool and threshold.

    Raises:
        SnapshotError: there is no snapshot.
        ValueError: a threshold is not finite.
    """
    return [Yield(**row) for row in rows_of(path, yield_sql(thresholds))]


def what_if(path: str | Path, tau_f: Mapping[str, float]) -> list[Yield]:
    """Return examples and calls per tool, each at its own threshold, sorted by tool.

    Args:
        path: the snapshot.
        tau_f: tool key -> threshold in nats; tools that are not named take no part.

    Raises:
        SnapshotError: there is no snapshot.
    """
    if not tau_f:
        return []
    values = ", ".join(f"($tool{i}, $tau{i}::DOUBLE)" for i in range(len(tau_f)))
    parameters: dict[str, Any] = {}
    for i, (tool, threshold) in enumerate(tau_f.items()):
        parameters |= {f"tool{i}": tool, f"tau{i}": float(threshold)}
    kept = survivors_sql("SELECT tool, tau_f FROM tau")
    sql = f"WITH tau(tool, tau_f) AS (VALUES {values}), kept AS ({kept}) {_COUNT_KEPT}"
    return [Yield(**row) for row in rows_of(path, sql, parameters)]


def stats(path: str | Path, thresholds: Iterable[float] = THRESHOLDS) -> Stats:
    """Return the balances of all current shards, in the order of the stages, and the yields.

    Raises:
        SnapshotError: there is no snapshot.
    """
    with _connect(path) as connection:
        found = _rows(connection, _STATS, None)
        yields = _rows(connection, yield_sql(thresholds), None)
    grouped: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in found:
        stage, tool, unit, kind, reason, rows, shards = row.values()
        own = grouped.setdefault((stage, tool, unit), {"rows_in": 0, "kept": 0, "dropped": {}, "failed": {}})
        if kind == "in":
            own |= {"rows_in": rows, "shards": shards}
        elif kind == "kept":
            own["kept"] = rows
        else:
            own[kind][reason] = rows
    balances = tuple(StageBalance(*key, **value) for key, value in grouped.items())
    return Stats(balances, tuple(Yield(**row) for row in yields))


def samples(path: str | Path, n: int = 10, tool: str | None = None, width: int = 60) -> list[Sample]:
    """Return the n best calls by gain, with `width` characters of text on either side.

    Raises:
        SnapshotError: there is no snapshot.
    """
    found = rows_of(path, _SAMPLES, {"n": n, "tool": tool, "width": width})
    return [Sample(**row) for row in found]


def nearest_call(path: str | Path, tool: str, gain: float, width: int = 40) -> Sample | None:
    """Return the tool's scored call, kept or not, whose gain (nats) is nearest; None if it has none.

    Raises:
        SnapshotError: there is no snapshot.
    """
    found = rows_of(path, _NEAREST, {"tool": tool, "gain": gain, "width": width})
    return Sample(**found[0]) if found else None


def accuracies(path: str | Path, task: str | None = None) -> list[dict[str, Any]]:
    """Return the view `accuracy` of completed runs, oldest first: of one task, or of all.

    Raises:
        SnapshotError: there is no snapshot.
    """
    sql = "FROM accuracy WHERE completed AND ($task IS NULL OR task = $task) ORDER BY evaluated, evaluation"
    return rows_of(path, sql, {"task": task})


def perplexities(path: str | Path) -> list[dict[str, Any]]:
    """Return the view `perplexity` of completed runs, oldest first.

    Raises:
        SnapshotError: there is no snapshot.
    """
    return rows_of(path, "FROM perplexity WHERE completed ORDER BY evaluated, evaluation")


def explain(path: str | Path, doc_id: str) -> Explanation:
    """Return everything the current tables hold of one document; an unknown id gives no document and empty parts.

    Raises:
        SnapshotError: there is no snapshot.
    """
    with _connect(path) as connection:
        parts = {name: _rows(connection, sql, {"doc_id": doc_id}) for name, sql in _EXPLAIN.items()}
    documents = parts.pop("document")
    return Explanation(documents[0] if documents else None, **{name: tuple(rows) for name, rows in parts.items()})
