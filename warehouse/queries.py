"""Questions to the published snapshot that return plain rows: balances, yields, samples, figures of evaluations.

The rules they share stand in `views`; what a change of thresholds would do in `what_if`, one document's path in
`explain`. Readers open the snapshot read-only, for one query or for hours: a newly published snapshot is another file
under the same name, seen at the next opening.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from warehouse.analyst_views import SUBJECT
from warehouse.errors import SnapshotError, told
from warehouse.index import FORMAT
from warehouse.views import MEASURED, THRESHOLDS, yield_sql

__all__ = [
    "Coverage",
    "GainBin",
    "Sample",
    "StageBalance",
    "Stats",
    "Subject",
    "Yield",
    "accuracies",
    "coverage",
    "evaluation_limits",
    "gain_histogram",
    "nearest_call",
    "opened",
    "perplexities",
    "rows_in",
    "rows_of",
    "samples",
    "stats",
    "subject",
    "yield_by_threshold",
]

_TRIES = 50  # to open a snapshot that is being replaced, once in twenty seconds as a rule

_SAMPLES = """
WITH picked AS (SELECT doc_id, tool, "position", input, response, gain FROM {calls}
                WHERE $tool IS NULL OR tool = $tool
                ORDER BY gain DESC, doc_id, "position", tool LIMIT $n)
SELECT c.doc_id, c.tool, c."position", c.input, c.response, c.gain,
       substring(d.text, greatest(c."position" - $width, 0) + 1, least($width, c."position")) AS before,
       substring(d.text, c."position" + 1, $width) AS after
FROM picked AS c JOIN documents AS d USING (doc_id) ORDER BY c.gain DESC, c.doc_id, c."position", c.tool"""

_NEAREST = f"""
SELECT c.doc_id, c.tool, c."position", c.input, c.response, c.gain,
       substring(d.text, greatest(c."position" - $width, 0) + 1, least($width, c."position")) AS before,
       substring(d.text, c."position" + 1, $width) AS after
FROM scored AS c JOIN documents AS d USING (doc_id) WHERE c.tool = $tool AND {MEASURED}
ORDER BY abs(c.gain - $gain), c.doc_id, c."position", c.input LIMIT 1"""

# Bins of half a nat, closed below; the first and the last are open.
_GAINS = f"""
SELECT tool, least(greatest(floor(gain / $width), $low / $width - 1), $high / $width)::INT AS bin, count(*) AS calls
FROM scored WHERE {MEASURED} GROUP BY ALL ORDER BY tool, bin"""

_STATS = """
SELECT c.stage, c.tool, b.unit, b.kind, b.reason, sum(b.rows)::BIGINT, count(DISTINCT c.commit_id)
FROM facts.balances AS b JOIN facts.commits AS c USING (commit_id) JOIN facts.current USING (commit_id)
JOIN facts.stages AS s ON s.stage = c.stage
GROUP BY s.rank, c.stage, c.tool, b.unit, b.kind, b.reason ORDER BY s.rank, c.tool, b.unit, b.kind, b.reason"""

# Per assembled shard its documents and the tools that had enough examples before it.
_COVERAGE = """
SELECT c.config::JSON->'not_annotated' AS tools, sum(b.rows)::BIGINT AS documents
FROM facts.commits AS c JOIN facts.current USING (commit_id) JOIN facts.balances AS b USING (commit_id)
WHERE c.stage = 'assemble' AND b.unit = 'documents' AND b.kind = 'in' GROUP BY c.commit_id, c.config"""


@dataclass(frozen=True, slots=True)
class Subject:
    """What questions about the current data speak of: a run, and the version of C* that it made."""

    run_id: str
    flow: str
    started: str
    state: str
    corpus: str
    model: str
    name: str  # of the dataset; "" until there is one
    version: str
    created: str | None  # when the version was

    def __str__(self) -> str:
        corpus = Path(self.corpus).name
        if not self.version:
            return f"{corpus}, no version of C* yet (run {self.run_id}, {self.state})"
        when = (self.created or self.started)[:16].replace("T", " ")
        return f"{self.name}@{self.version} of {corpus}, built {when} (run {self.run_id})"


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
class GainBin:
    """How many scored calls of a tool gain at least `low` nats and less than `high`; None: without end."""

    tool: str
    low: float | None
    high: float | None
    calls: int

    @property
    def label(self) -> str:
        """The bin as a person reads it."""
        if self.low is None:
            return f"below {self.high:+.1f}"
        return f"{self.low:+.1f} and more" if self.high is None else f"{self.low:+.1f} to {self.high:+.1f}"


@dataclass(frozen=True, slots=True)
class Coverage:
    """On how much of the corpus a tool was annotated, where that is not all of it."""

    tool: str
    shards: int
    of_shards: int
    documents: int
    of_documents: int

    def __str__(self) -> str:
        return (
            f"{self.tool} was annotated on {self.shards:,} of {self.of_shards:,} shards ({self.documents:,} of "
            f"{self.of_documents:,} documents) and then had enough examples: its yields speak of these alone"
        )


@dataclass(frozen=True, slots=True)
class Stats:
    """What `toolformer stats` prints."""

    balances: tuple[StageBalance, ...]
    yields: tuple[Yield, ...]
    coverage: tuple[Coverage, ...] = ()  # of tools that were not annotated on every shard

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


def opened(path: str | Path) -> duckdb.DuckDBPyConnection:
    """Open the snapshot read-only; close what is returned.

    Raises:
        SnapshotError: there is none, or it cannot be opened.
    """
    for _ in range(_TRIES):
        before = _identity(path)
        if before is None:
            raise SnapshotError(f"there is no snapshot at {path} yet; build a dataset, or reconcile")
        try:
            return duckdb.connect(str(path), read_only=True)
        except duckdb.Error as exc:
            # Seen once, while snapshots were published as fast as they could be: "No more data remaining in
            # MetadataReader". Why is not known (DuckDB opens the path once); a file that was replaced is asked again.
            if _identity(path) == before:
                raise SnapshotError(f"cannot open the snapshot {path}: {told(exc)}; run toolformer reconcile") from exc
    raise SnapshotError(f"the snapshot {path} was replaced at each of {_TRIES} attempts to open it")


def _identity(path: str | Path) -> tuple[int, int] | None:
    """What tells a file from the one that takes its place, None if there is none."""
    try:
        found = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


def rows_in(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return a query's rows as dicts; see `rows_of`.

    Raises:
        SnapshotError: the query fails.
    """
    try:
        found = connection.execute(sql, parameters) if parameters else connection.execute(sql)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    except duckdb.IOException as exc:
        raise SnapshotError(
            f"data the snapshot points at cannot be read ({told(exc)}): if the folder was moved or files are gone, "
            "run toolformer reconcile with the same --data"
        ) from exc
    except duckdb.Error as exc:
        if _is_of_another_version(connection):
            raise SnapshotError(
                "another version of this program wrote the snapshot: run toolformer reconcile with the same --data"
            ) from exc
        raise SnapshotError(f"the query failed: {told(exc)}") from exc


def _is_of_another_version(connection: duckdb.DuckDBPyConnection) -> bool:
    try:
        found = connection.execute("SELECT value FROM facts.about WHERE name = 'index'").fetchone()
    except duckdb.Error:  # it has no such table
        return True
    return found != (FORMAT,)


def rows_of(path: str | Path, sql: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return a query's rows as dicts.

    Args:
        path: the snapshot.
        sql: any SELECT; named parameters as `$name`.
        parameters: their values.

    Raises:
        SnapshotError: there is no snapshot, or the query fails.
    """
    with opened(path) as connection:
        return rows_in(connection, sql, parameters)


def yield_by_threshold(path: str | Path, thresholds: Iterable[float] = THRESHOLDS) -> list[Yield]:
    """Return examples and calls per tool at each threshold (nats), sorted by tool and threshold.

    Raises:
        SnapshotError: there is no snapshot.
        ValueError: a threshold is not finite.
    """
    return [Yield(**row) for row in rows_of(path, yield_sql(thresholds))]


def stats(path: str | Path, thresholds: Iterable[float] = THRESHOLDS) -> Stats:
    """Return the balances of all current shards, in the order of the stages, and the yields.

    Raises:
        SnapshotError: there is no snapshot.
    """
    with opened(path) as connection:
        found = rows_in(connection, _STATS)
        yields = rows_in(connection, yield_sql(thresholds))
        assembled = rows_in(connection, _COVERAGE)
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
    return Stats(balances, tuple(Yield(**row) for row in yields), _coverage(assembled))


def coverage(path: str | Path) -> tuple[Coverage, ...]:
    """Return the tools that were not annotated on every shard (`--stop-when-full`), and on how many they were.

    Raises:
        SnapshotError: there is no snapshot.
    """
    return _coverage(rows_of(path, _COVERAGE))


def _coverage(assembled: list[dict[str, Any]]) -> tuple[Coverage, ...]:
    shards = [(set(json.loads(row["tools"] or "[]")), row["documents"]) for row in assembled]
    return tuple(
        Coverage(
            tool=tool,
            shards=sum(tool not in missing for missing, _ in shards),
            of_shards=len(shards),
            documents=sum(documents for missing, documents in shards if tool not in missing),
            of_documents=sum(documents for _, documents in shards),
        )
        for tool in sorted(set().union(*(missing for missing, _ in shards)))
    )


def subject(path: str | Path) -> Subject | None:
    """Return what the current data of a build is; None where nothing was built.

    Raises:
        SnapshotError: there is no snapshot.
    """
    found = rows_of(path, SUBJECT)
    return Subject(**found[0]) if found else None


def samples(
    path: str | Path,
    n: int = 10,
    tool: str | None = None,
    width: int = 60,
    kept: bool = False,
) -> list[Sample]:
    """Return the n best calls by gain, with `width` characters of text on either side.

    Args:
        path: the snapshot.
        n: how many at most.
        tool: only this one's calls; None: those of all.
        width: characters.
        kept: only calls that stand in C*; else all that would, were the threshold low enough.

    Raises:
        SnapshotError: there is no snapshot.
    """
    sql = _SAMPLES.format(calls="kept_calls" if kept else "best_calls")
    found = rows_of(path, sql, {"n": n, "tool": tool, "width": width})
    return [Sample(**row) for row in found]


def nearest_call(path: str | Path, tool: str, gain: float, width: int = 40) -> Sample | None:
    """Return the tool's scored call, kept or not, whose gain (nats) is nearest; None if it has none.

    Raises:
        SnapshotError: there is no snapshot.
    """
    found = rows_of(path, _NEAREST, {"tool": tool, "gain": gain, "width": width})
    return Sample(**found[0]) if found else None


def gain_histogram(path: str | Path, low: float = -2.0, high: float = 4.0, width: float = 0.5) -> list[GainBin]:
    """Return how many scored calls of every tool gain how much, kept or not: by tool, all its bins, rising.

    Args:
        low: nats below which calls are counted together; a multiple of `width`, as `high`.
        high: nats from which on calls are counted together.
        width: nats of a bin between them.

    Raises:
        SnapshotError: there is no snapshot.
    """
    found = rows_of(path, _GAINS, {"low": low, "high": high, "width": width})
    counts = {(row["tool"], row["bin"]): row["calls"] for row in found}
    first, last = round(low / width) - 1, round(high / width)
    return [
        GainBin(
            tool,
            None if number == first else number * width,
            None if number == last else (number + 1) * width,
            counts.get((tool, number), 0),
        )
        for tool in sorted({tool for tool, _ in counts})
        for number in range(first, last + 1)
    ]


def accuracies(path: str | Path, task: str | None = None) -> list[dict[str, Any]]:
    """Return the view `accuracy` of completed runs, oldest first: of one task, or of all.

    Raises:
        SnapshotError: there is no snapshot.
    """
    sql = "FROM accuracy WHERE completed AND ($task IS NULL OR task = $task) ORDER BY evaluated, evaluation"
    return rows_of(path, sql, {"task": task})


def evaluation_limits(path: str | Path) -> dict[str, int | None]:
    """Return of every evaluation, by name, the `limit` on items of the run whose figures its views show; None: all.

    Raises:
        SnapshotError: there is no snapshot.
    """
    sql = """
    SELECT c.config::JSON->>'evaluation' AS evaluation, (r.parameters::JSON->>'limit')::BIGINT AS "limit"
    FROM facts.run_commits AS rc JOIN facts.runs AS r USING (run_id) JOIN facts.commits AS c USING (commit_id)
    WHERE r.state = 'completed' AND c.stage IN ('evaluate', 'perplexity')
    QUALIFY row_number() OVER (PARTITION BY evaluation ORDER BY r.started DESC, r.run_id DESC) = 1"""
    return {row["evaluation"]: row["limit"] for row in rows_of(path, sql)}


def perplexities(path: str | Path) -> list[dict[str, Any]]:
    """Return the view `perplexity` of completed runs, oldest first.

    Raises:
        SnapshotError: there is no snapshot.
    """
    return rows_of(path, "FROM perplexity WHERE completed ORDER BY evaluated, evaluation")
