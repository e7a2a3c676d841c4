"""Queries on the current build: where its rows went, what thresholds would keep, and which run it is."""

from dataclasses import dataclass, field
from pathlib import Path

from warehouse.queries.rows import open_snapshot, rows_in, rows_of
from warehouse.snapshot.outcomes import THRESHOLDS
from warehouse.snapshot.views import queries_beside, query

_SQL = queries_beside(__file__)


@dataclass(frozen=True, slots=True)
class CurrentBuild:
    """The run whose data is current, and the version of C* that it made."""

    run_id: str
    flow: str
    started: str
    state: str
    corpus: str
    model: str
    name: str  # of the dataset; "" until there is one
    version: str
    created: str | None  # when the version was made

    def __str__(self) -> str:
        corpus = Path(self.corpus).name
        if not self.version:
            return f"{corpus}, no version of C* yet (run {self.run_id}, {self.state})"
        when = (self.created or self.started)[:16].replace("T", " ")
        found = "found by " if self.created is not None and self.created < self.started else ""
        return f"{self.name}@{self.version} of {corpus}, built {when} ({found}run {self.run_id})"


@dataclass(frozen=True, slots=True)
class StageBalance:
    """Where the rows of one stage, tool and unit went, over all current shards."""

    stage: str
    tool: str
    unit: str
    shards: int
    rows_in: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> rows
    failed: dict[str, int] = field(default_factory=dict)  # reason -> rows

    @property
    def conserved(self) -> bool:
        return self.rows_in == self.kept + sum(self.dropped.values()) + sum(self.failed.values())


@dataclass(frozen=True, slots=True)
class BenchmarkInCorpus:
    """How much of a benchmark the corpus held (`--decontaminate`)."""

    benchmark: str
    items: int
    found: int  # items that some document holds
    documents: int  # dropped for it, or, of several benchmarks in a document, for the one named first
    calls: int | None  # kept calls lost; None: the documents that are dropped were not annotated


@dataclass(frozen=True, slots=True)
class KeptCalls:
    tool: str
    calls: int
    inputs: int  # distinct
    responses: int  # distinct


@dataclass(frozen=True, slots=True)
class Yield:
    """What a threshold would keep of a tool."""

    tool: str
    tau_f: float
    examples: int  # documents with at least one surviving call of the tool
    calls: int  # surviving calls, at most one per position


@dataclass(frozen=True, slots=True)
class FalseDiscoveryRate:
    """How often wrong responses would pass a threshold, estimated from decoys."""

    tool: str
    tau_f: float
    calls: int  # that gain at least tau_f, of any position
    of_calls: int
    decoys: int
    of_decoys: int
    rate: float | None  # None: no call passes, or there are no decoys


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of the corpus on which a tool was annotated, if that is not all of it."""

    tool: str
    shards: int
    of_shards: int
    documents: int
    of_documents: int

    def __str__(self) -> str:
        return (
            f"{self.tool} was annotated on {self.shards:,} of {self.of_shards:,} shards ({self.documents:,} of "
            f"{self.of_documents:,} documents) and then had enough examples: its yields are those of these shards alone"
        )


@dataclass(frozen=True, slots=True)
class ToolCosts:
    """The calls of one tool in the current build; None where an earlier program version counted nothing."""

    tool: str
    shards: int
    hosts: int
    questions: int  # distinct in each shard
    answered: int
    failed_transient: int | None  # failures that need not come again
    failed_lasting: int | None
    from_cache: int | None  # questions whose answer was known
    requested: int | None  # the others
    calls: int | None  # of which `retries` beyond the first of each question
    retries: int | None
    seconds: float | None  # in the tool
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    cost: float | None  # in the user's unit


@dataclass(frozen=True, slots=True)
class Stats:
    """What `toolformer stats` prints."""

    balances: tuple[StageBalance, ...]
    yields: tuple[Yield, ...]
    coverage: tuple[Coverage, ...] = ()  # of tools that were not annotated on every shard
    tools: tuple[ToolCosts, ...] = ()
    benchmarks: tuple[BenchmarkInCorpus, ...] = ()  # that the corpus must not hold
    rates: tuple[FalseDiscoveryRate, ...] = ()  # at the thresholds of `yields`; empty where no decoys were scored

    @property
    def conserved(self) -> bool:
        return all(balance.conserved for balance in self.balances)


def yield_by_threshold(path: str | Path) -> list[Yield]:
    """Return examples and calls per tool at each of the `THRESHOLDS`, sorted by tool and threshold."""
    return [Yield(**row) for row in rows_of(path, "FROM yield_by_threshold")]


def stats(path: str | Path) -> Stats:
    """Return the balances of all current shards, in the order of the stages, yields, and rates if there are decoys."""
    with open_snapshot(path) as connection:
        thresholds = THRESHOLDS if rows_in(connection, _SQL["has_decoys"])[0]["decoys"] else ()
        sql = "FROM false_discovery_rate($tau_f)"
        rated = [row for tau_f in thresholds for row in rows_in(connection, sql, {"tau_f": tau_f})]
        return Stats(
            balances=tuple(StageBalance(**row) for row in rows_in(connection, _SQL["balances"])),
            yields=tuple(Yield(**row) for row in rows_in(connection, "FROM yield_by_threshold")),
            coverage=tuple(Coverage(**row) for row in rows_in(connection, _SQL["coverage"])),
            tools=tuple(ToolCosts(**row) for row in rows_in(connection, "FROM tool_costs")),
            benchmarks=tuple(BenchmarkInCorpus(**row) for row in rows_in(connection, _SQL["benchmarks"])),
            rates=tuple(sorted((FalseDiscoveryRate(**row) for row in rated), key=lambda rate: (rate.tool, rate.tau_f))),
        )


def kept_calls(path: str | Path) -> tuple[KeptCalls, ...]:
    """Return the kept calls of each tool, and how many are distinct; it reads C*, unlike `stats`."""
    return tuple(KeptCalls(**row) for row in rows_of(path, _SQL["kept_calls"]))


def coverage(path: str | Path) -> tuple[Coverage, ...]:
    """Return the tools that were not annotated on every shard (`--stop-when-full`), and on how many they were."""
    return tuple(Coverage(**row) for row in rows_of(path, _SQL["coverage"]))


def current_build(path: str | Path) -> CurrentBuild | None:
    """Return the current build; None if nothing was built."""
    rows = rows_of(path, query("current_build"))
    return CurrentBuild(**rows[0]) if rows else None
