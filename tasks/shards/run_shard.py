"""Skip, take the lease, run, commit, notify: the one place where idempotence happens, for every stage.

The commit comes last, after its data: a kill leaves a finished shard or one to be done again.
"""

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tasks.provenance import host, versions
from tasks.shards.cpu_time import CpuTime
from warehouse.commits import Commit, CommitKey, DataFile, RowCounts, fingerprint
from warehouse.leases import Leases
from warehouse.store import Store


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """One shard of one stage, before it runs: everything its result depends on."""

    stage: str
    version: str  # of the stage's code
    tool: str  # "" where the stage runs once for all tools
    shard: str
    config: Mapping[str, Any]  # for people to read; settings that affect the result are also digested in `parts`
    parts: Mapping[str, str]  # named digests: config, inputs, model, prompt, tool, ...
    inputs: tuple[DataFile, ...] = ()

    def all_parts(self) -> dict[str, str]:
        return {"code": f"{self.stage}/{self.version}", **self.parts}

    @property
    def key(self) -> CommitKey:
        return CommitKey(self.stage, self.tool, self.shard, fingerprint(self.all_parts()))


@dataclass(frozen=True, slots=True)
class StageOutput:
    """What a stage makes of one shard: a table, and where its input rows went."""

    counts: tuple[RowCounts, ...]
    table: pa.Table | None = None  # None: the stage wrote its tables itself, several of them
    counters: Mapping[str, int | float] = field(default_factory=dict)  # further figures of the commit


@dataclass(slots=True, eq=False)
class ShardWriter:
    """Writes a shard's tables. A stage that cuts a source into shards writes each as soon as it is complete."""

    store: Store
    key: CommitKey
    files: list[DataFile] = field(default_factory=list)
    waited: float = 0.0  # seconds

    def add_wait(self, seconds: float) -> None:
        """Count time spent waiting for others, e.g. for the model: it is not part of the shard's own seconds."""
        self.waited += seconds

    def write(self, table: pa.Table, name: str | None = None, *, stage: str = "") -> None:
        """Write a table of the shard's stage, or of `stage`; under a `name` of its own where a commit has several."""
        k = self.key
        self.files.append(self.store.write(stage or k.stage, k.tool, k.shard, k.fingerprint, table, name))

    def write_rejects(self, table: pa.Table, *, stage: str = "") -> None:
        """Write rejected rows, which no later stage reads."""
        k, name = self.key, f"{self.key.shard}-{len(self.files):05d}"
        self.files.append(self.store.write_rejects(stage or k.stage, k.tool, name, k.fingerprint, table))


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A finished shard: a small, picklable reference that travels between tasks instead of data."""

    key: CommitKey
    files: tuple[DataFile, ...]  # without rejects and outcomes of calls
    counts: tuple[RowCounts, ...]
    seconds: float
    skipped: bool  # it was done before


_listener: ContextVar[Callable[[ShardResult], None] | None] = ContextVar("listener", default=None)


@contextmanager
def on_shard_done(listener: Callable[[ShardResult], None]) -> Iterator[None]:
    """Call `listener` with every shard that tasks submitted in this block finish in this process, in their thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@dataclass(frozen=True, slots=True)
class ActiveShard:
    stage: str
    tool: str
    shard: str
    started: float  # by `time.monotonic`

    def __str__(self) -> str:
        return " ".join(filter(None, (self.stage, self.tool, self.shard)))


_ACTIVE: dict[object, ActiveShard] = {}


def active_shards() -> list[ActiveShard]:
    """Return the shards that this process is running, those that wait for its model included, oldest first."""
    return list(_ACTIVE.values())


def run_shard(
    store: Store, spec: ShardSpec, run_id: str, run: Callable[[ShardWriter], StageOutput], leases: Leases | None = None
) -> ShardResult:
    """Return the shard's result if its commit exists and its data is intact, else run the stage; notify the listener.

    If several processes share the store, `leases` say who works on which shard; another's shard is waited for. A
    ConservationError: the rows do not add up, nothing is committed. A StoreError or CatalogError: the data could not be
    written, or the leases' database not be used.
    """
    if leases is None:
        result = _finished(store, spec.key) or _commit(store, _run(store, spec, run_id, run))
    else:
        result = _leased(store, spec, run_id, run, leases)
    if (listener := _listener.get()) is not None:
        listener(result)
    return result


def _leased(
    store: Store, spec: ShardSpec, run_id: str, run: Callable[[ShardWriter], StageOutput], leases: Leases
) -> ShardResult:
    while True:
        lease_or_result = leases.wait_for(spec.key.id, lambda: _finished(store, spec.key))
        if isinstance(lease_or_result, ShardResult):
            return lease_or_result
        try:
            commit = _run(store, spec, run_id, run)
            if leases.confirm(lease_or_result):
                return _commit(store, commit)
        finally:
            leases.release(lease_or_result)
        # The lease ended while the stage ran: its new holder commits the shard, or it runs here once more.


def _finished(store: Store, key: CommitKey) -> ShardResult | None:
    commit = store.read_commit(key)
    if commit is None:
        return None
    if not store.damage(commit):  # digests and all: a reader would otherwise find out too late
        return result_of(commit, skipped=True)
    store.quarantine(commit)
    return None


def _run(store: Store, spec: ShardSpec, run_id: str, run: Callable[[ShardWriter], StageOutput]) -> Commit:
    start, cpu, key = time.perf_counter(), CpuTime(), spec.key
    writer = ShardWriter(store, key)
    _ACTIVE[writer] = ActiveShard(key.stage, key.tool, key.shard, time.monotonic())
    try:
        output = run(writer)
        if output.table is not None:
            writer.write(output.table)
    finally:
        del _ACTIVE[writer]
    return Commit(
        stage=key.stage,
        stage_version=spec.version,
        tool=key.tool,
        shard=key.shard,
        fingerprint=key.fingerprint,
        parts=spec.all_parts(),
        config=dict(spec.config),
        files=tuple(writer.files),
        inputs=tuple(file.digest for file in spec.inputs),
        balances=output.counts,
        seconds=time.perf_counter() - start - writer.waited,
        counters={**output.counters, **cpu.counters()},
        host=host(),
        versions=versions(),
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        run_id=run_id,
    )


def _commit(store: Store, commit: Commit) -> ShardResult:
    stored = store.commit(commit)
    return result_of(stored, skipped=stored != commit)  # another process may have been faster


def result_of(commit: Commit, *, skipped: bool) -> ShardResult:
    files = tuple(file for file in commit.files if file.is_result)
    return ShardResult(commit.key, files, commit.balances, commit.seconds, skipped)
