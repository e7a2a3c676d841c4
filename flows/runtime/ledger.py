"""The finished shards of a run, and the catalog and snapshot that are updated with them by the flow process alone."""

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path

from prefect import get_run_logger

from flows.lineage.send import send_run
from flows.runtime.context import repeating, using
from tasks.settings import seconds, shared_catalog
from tasks.shards.run_shard import ShardResult
from warehouse.catalog import Catalog
from warehouse.commits import Commit, CommitKey, Run
from warehouse.errors import LockHeldError, StoreError, WarehouseError
from warehouse.queries.rows import low_memory
from warehouse.snapshot.publish import SNAPSHOT, publish, run_snapshot
from warehouse.store import Store

_log = logging.getLogger(__name__)
_MIN_PAUSE_S = 0.05  # least time between two checks whether to publish
_SHORT_S = 1.0  # a snapshot that takes no longer is refreshed as often as requested
_PAUSES = 20  # ... and a longer one only after that multiple of its time: large runs publish less often

_BATCH = 256  # commits recorded in the catalog in one transaction, if no snapshot is due before

Progress = Callable[[str, int, int, ShardResult], None]  # stage, shards finished, shards in all, the last one
_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


def reporting_to(progress: Progress) -> AbstractContextManager[None]:
    """Call `progress` for every shard that flows finish inside this block."""
    return using(_progress, progress)


def now() -> str:
    """Return the time as ISO UTC text that sorts."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")


@dataclass(slots=True)
class Ledger:
    """The progress of one flow run."""

    store: Store  # where shards are committed
    catalog: Catalog
    run: Run  # the run's manifest, without commits
    keys: set[CommitKey] = field(default_factory=set)  # of the finished shards
    totals: dict[str, int] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    refresh_s: float = field(default_factory=lambda: seconds("refresh"))  # seconds between two snapshots
    clock: Callable[[], float] = time.monotonic
    # called for every shard, in the thread that finished it
    watchers: list[Callable[[ShardResult], None]] = field(default_factory=list)
    snapshot: Path = field(init=False)  # replaced whenever one is published
    _published: float = field(init=False)  # by `clock`
    _pause_s: float = field(init=False)  # until the next refresh
    _changed: bool = False  # shards finished since
    _unrecorded: list[Commit] = field(default_factory=list)  # in the store, not yet in the catalog
    _turn: threading.RLock = field(default_factory=threading.RLock, repr=False)  # guards the catalog and the snapshot
    _counting: threading.Lock = field(default_factory=threading.Lock, repr=False)  # held briefly: no shard waits

    def __post_init__(self) -> None:
        self.snapshot = self.store.local_folder / SNAPSHOT
        self._published = self.clock()
        self._pause_s = self.refresh_s

    def expect(self, stage: str, shards: int) -> None:
        """Expect more shards of a stage, or fewer if the number is negative."""
        self.totals[stage] = self.totals.get(stage, 0) + shards

    def add(self, done: ShardResult) -> None:
        """Add a finished shard, unless it was added; publish a snapshot if the last one is old."""
        if done.key not in self.keys:
            self.note(done)
        if len(self._unrecorded) >= _BATCH:  # if the process dies first, the next flow finds their commits
            with self._turn:
                self._record_commits()
        self.refresh()

    def note(self, done: ShardResult) -> None:
        """Add a finished shard at once, from the thread that finished it. A StoreError: its commit is not there."""
        key = done.key
        commit = self.store.find(key.stage, key.tool, key.shard, key.fingerprint)
        if commit is None:
            advice = "give the flow and its workers a data folder or URL that all of them reach"
            raise StoreError(f"{key.id} was done, but {self.store.root} does not hold it: {advice}")
        with self._counting:
            self._unrecorded.append(commit)
            self.keys.add(key)
            self._changed = True
            self.finished[key.stage] = self.finished.get(key.stage, 0) + 1
            self.skipped += done.skipped
            for watch in self.watchers:
                watch(done)
            if (progress := _progress.get()) is not None:
                progress(key.stage, self.finished[key.stage], self.totals[key.stage], done)
                return
        if not done.skipped:
            get_run_logger().debug("%s %s %s in %.1f s", key.stage, key.tool, key.shard, done.seconds)

    def also_record(self, stage: str) -> None:
        """Have the catalog list a stage's commits that are no results of the run, such as the parts of a corpus."""
        commits = list(self.store.commits(stage))
        with self._counting:
            self._unrecorded += commits

    def _record_commits(self) -> None:
        with self._counting:
            commits = list(self._unrecorded)
        self.catalog.record(commits)
        with self._counting:
            del self._unrecorded[: len(commits)]

    def refresh(self) -> float:
        """Publish new results if the last snapshot is old; return the seconds until the next check."""
        with self._turn:
            left = self._published + self._pause_s - self.clock()
            if left > 0:
                return left
            if self._changed:
                try:
                    self.publish("running")
                except WarehouseError as exc:
                    _log.warning("the snapshot is not refreshed, the run goes on: %s", exc)
                    self._published = self.clock()
                    self._changed = True
            return self._pause_s

    def record(self, state: str) -> None:
        """Write the run's manifest."""
        with self._turn:
            ended = now() if state != "running" else None
            with self._counting:
                keys = tuple(sorted(self.keys))
                self._changed = False
            self._record_commits()
            self.run = replace(self.run, commits=keys, state=state, finished=ended)
            self.store.write_run(self.run)
            self.catalog.record(runs=[self.run])

    @contextmanager
    def own_snapshot(self) -> Iterator[Path]:
        """Write the run's manifest, and yield a snapshot that holds only this run; queries take little memory."""
        with self._turn:
            self.record("running")
        with run_snapshot(self.store, self.catalog, self.run.run_id) as snapshot, low_memory():
            yield snapshot

    def publish(self, state: str) -> None:
        """Write the run's manifest, then the snapshot; at the run's end every data file is checked once more."""
        with self._turn:
            begin = self.clock()
            self.record(state)
            publish(self.store, self.catalog, recheck=state != "running")
            self._published = self.clock()
            took = self._published - begin
            self._pause_s = max(self.refresh_s, _PAUSES * took if took > _SHORT_S else 0.0)


@contextmanager
def open_run(store: Store, run: Run) -> Iterator[Ledger]:
    """Open a run: lock the data folder's catalog, waiting for another flow if necessary; publish results at its end.

    A catalog that several machines share is not locked. A LockHeldError: another flow held it for $TOOLFORMER_WAIT_S.
    """
    wait_s = seconds("wait")

    def log_wait(error: LockHeldError) -> None:
        get_run_logger().warning("waiting at most %.0f s: %s", wait_s, error)

    with Catalog(_catalog_of(store), store=store, wait_s=wait_s, on_wait=log_wait) as catalog:
        store.sweep_temporary(seconds("sweep"))
        ledger = Ledger(store, catalog, catalog.begin(store, run))
        try:
            with repeating("snapshot", lambda: max(_MIN_PAUSE_S, ledger.refresh())):
                yield ledger
        except BaseException:
            try:
                ledger.publish("failed")
            except WarehouseError as exc:  # the run's own failure matters more
                _log.warning("the end of the run is not recorded: %s", exc)
            raise
        ledger.publish("completed")
    send_run(store, run.run_id)  # nothing waits for the catalog any more


def _catalog_of(store: Store) -> str | Path:
    return shared_catalog() or store.local_folder / "catalog.duckdb"


def republish(store: Store) -> None:
    """Publish an existing snapshot again, for changes that no run records; failures are only logged."""
    if not (store.local_folder / SNAPSHOT).is_file():
        return
    try:
        with Catalog(_catalog_of(store), store=store) as catalog:
            publish(store, catalog, recheck=False)
    except LockHeldError as exc:
        _log.info("the running flow will publish the snapshot: %s", exc)
    except WarehouseError as exc:
        _log.warning("the snapshot is not refreshed: %s", exc)
