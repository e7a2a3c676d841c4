"""Skip, run, commit: the one place where idempotence happens.

A shard's work is named by a fingerprint of all it depends on. If its commit is there and its data is whole, nothing is
done; otherwise the work runs, its data is written, and the commit last. A process killed at any moment therefore leaves
either a finished shard or one to be done again. What the work is, this module does not know.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tasks.settings import host, versions
from warehouse.claims import Claims
from warehouse.commits import Balance, Commit, CommitKey, DataFile, fingerprint
from warehouse.store import Store

__all__ = ["AtWork", "Done", "Outcome", "Work", "Writer", "at_work", "done_of", "run_shard", "tell", "telling"]


@dataclass(frozen=True, slots=True)
class Work:
    """One shard of one stage, before it is done: everything its result depends on."""

    stage: str
    version: str  # of the stage's code
    tool: str  # "" where the stage runs once for all tools
    shard: str
    config: Mapping[str, Any]
    parts: Mapping[str, str]  # named digests: model, prompt, tool, ...
    inputs: tuple[DataFile, ...] = ()

    def all_parts(self) -> dict[str, str]:
        """Return the named parts of the fingerprint."""
        return {"code": f"{self.stage}/{self.version}", **self.parts}

    @property
    def key(self) -> CommitKey:
        """What names its commit."""
        return CommitKey(self.stage, self.tool, self.shard, fingerprint(self.all_parts()))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the work's rows went."""

    balances: tuple[Balance, ...]
    counters: Mapping[str, int | float] = field(default_factory=dict)


class Writer:
    """Takes a shard's tables one by one as the work makes them, so that none has to wait in memory."""

    def __init__(self, store: Store, key: CommitKey) -> None:
        self._store = store
        self._key = key
        self.files: list[DataFile] = []
        self.waited = 0.0  # seconds

    def waits(self, seconds: float) -> None:
        """Note that others were before, e.g. at the model: that time is not the shard's work."""
        self.waited += seconds

    def table(self, table: pa.Table, name: str | None = None) -> None:
        """Write a table under the shard's own name, or under `name` where a commit has several."""
        k = self._key
        self.files.append(self._store.write(k.stage, k.tool, k.shard, k.fingerprint, table, name))

    def rejects(self, table: pa.Table) -> None:
        """Write rejected rows; they are listed in the commit, and no later stage reads them."""
        k = self._key
        name = f"{k.shard}-{len(self.files):05d}"
        self.files.append(self._store.write_rejects(k.stage, k.tool, name, k.fingerprint, table))


@dataclass(frozen=True, slots=True)
class Done:
    """A finished shard: a small, picklable reference that travels between tasks instead of data."""

    key: CommitKey
    files: tuple[DataFile, ...]  # without rejects
    balances: tuple[Balance, ...]
    seconds: float
    skipped: bool  # it was done before


_listener: ContextVar[Callable[[Done], None] | None] = ContextVar("listener", default=None)


@contextmanager
def telling(listener: Callable[[Done], None]) -> Iterator[None]:
    """Have `listener` told, from the thread it happens in, of what tasks begun in this block finish in this process."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(done: Done) -> Done:
    """Tell the listener, if there is one, of a finished shard; return the shard."""
    if (listener := _listener.get()) is not None:
        listener(done)
    return done


@dataclass(frozen=True, slots=True)
class AtWork:
    """A shard that this process works on."""

    stage: str
    tool: str
    shard: str
    begun: float  # by `time.monotonic`

    def __str__(self) -> str:
        return " ".join(filter(None, (self.stage, self.tool, self.shard)))


_AT_WORK: dict[object, AtWork] = {}


def at_work() -> list[AtWork]:
    """Return the shards that this process works on now, waiting for its model included; those begun first first."""
    return list(_AT_WORK.values())


def run_shard(
    store: Store, work: Work, run_id: str, do: Callable[[Writer], Outcome], claims: Claims | None = None
) -> Done:
    """Return the shard's commit if it stands, else do the work and commit it.

    Args:
        store: where its data and its commit go.
        work: what it depends on.
        run_id: the run that asks for it.
        do: does the work.
        claims: who is at work on what, where several processes share the store: what another is doing is waited for.

    Raises:
        ConservationError: the rows do not add up; nothing is committed.
        StoreError: the data could not be written.
        CatalogError: the claims' database could not be used.
    """
    key = work.key
    if claims is None:
        return _finished(store, key) or _committed(store, _worked(store, work, key, run_id, do))
    while True:
        turn = claims.wait_for(key.id, lambda: _finished(store, key))
        if isinstance(turn, Done):
            return turn
        try:
            commit = _worked(store, work, key, run_id, do)
            if claims.confirm(turn):
                return _committed(store, commit)
        finally:
            claims.release(turn)
        # The lease ended while the work was done: whoever took it over commits it, or it is done here once more.


def _finished(store: Store, key: CommitKey) -> Done | None:
    found = store.recorded(key)
    if found is None:
        return None
    if not store.damage(found):  # digests and all: a reader would otherwise find out too late
        return done_of(found, skipped=True)
    store.quarantine(found)
    return None


def _worked(store: Store, work: Work, key: CommitKey, run_id: str, do: Callable[[Writer], Outcome]) -> Commit:
    """Do the work and write its data; return the commit that is to follow."""
    begin = time.perf_counter()
    writer = Writer(store, key)
    _AT_WORK[writer] = AtWork(key.stage, key.tool, key.shard, time.monotonic())
    try:
        outcome = do(writer)
    finally:
        del _AT_WORK[writer]
    return Commit(
        stage=key.stage,
        stage_version=work.version,
        tool=key.tool,
        shard=key.shard,
        fingerprint=key.fingerprint,
        parts=work.all_parts(),
        config=dict(work.config),
        files=tuple(writer.files),
        inputs=tuple(file.digest for file in work.inputs),
        balances=outcome.balances,
        seconds=time.perf_counter() - begin - writer.waited,
        counters=dict(outcome.counters),
        host=host(),
        versions=versions(),
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        run_id=run_id,
    )


def _committed(store: Store, commit: Commit) -> Done:
    standing = store.commit(commit)
    return done_of(standing, skipped=standing != commit)  # another process may have been faster


def done_of(commit: Commit, *, skipped: bool) -> Done:
    """Return the reference to a shard that a commit says is finished."""
    files = tuple(f for f in commit.files if not f.path.startswith("rejects/"))
    return Done(commit.key, files, commit.balances, commit.seconds, skipped)
