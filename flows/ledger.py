"""What a flow has seen finish, and the catalog and snapshot that follow it. It knows shards, not what is in them.

The flow process alone holds one, inside the catalog's lock. While a run goes on its snapshot is refreshed from a thread
of its own, so that what has finished is seen soon, also while no further shard finishes for long.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path

from prefect import get_run_logger

from tasks.settings import seconds, shared_catalog
from tasks.shards import Done
from warehouse.catalog import Catalog
from warehouse.commits import Commit, CommitKey, Run
from warehouse.errors import LockHeldError, StoreError, WarehouseError
from warehouse.snapshot import SNAPSHOT, publish, snapshot_of
from warehouse.store import Store

__all__ = ["Ledger", "Progress", "keeping", "new_run_id", "now", "reporting_to", "republish"]

_log = logging.getLogger(__name__)
_BREATH_S = 0.05  # between two looks at whether to publish, however often it is asked for

_TOGETHER = 256  # commits that the catalog is told of in one transaction, if no snapshot is due before

Progress = Callable[[str, int, int, Done], None]  # stage, shards finished, shards in all, the last one
_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def reporting_to(progress: Progress) -> Iterator[None]:
    """Tell `progress` of every shard that the flows run inside this block finish."""
    token = _progress.set(progress)
    try:
        yield
    finally:
        _progress.reset(token)


def now() -> str:
    """Return the time as ISO UTC text that sorts."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")


def new_run_id() -> str:
    return f"{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}"


@dataclass(slots=True)
class Ledger:
    """The run of a flow.

    Args:
        store: where shards are committed.
        catalog: held open.
        run: the run's manifest, without commits.
        refresh_s: seconds after which what has finished is published.
        clock: seconds that only grow.
    """

    store: Store
    catalog: Catalog
    run: Run
    keys: list[CommitKey] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    refresh_s: float = field(default_factory=lambda: seconds("refresh"))
    clock: Callable[[], float] = time.monotonic
    watchers: list[Callable[[Done], None]] = field(default_factory=list)  # told of every shard, by whoever finished it
    snapshot: Path = field(init=False)  # replaced by every publishing
    _published: float = field(init=False)  # by `clock`
    _news: bool = False  # something finished since
    _unrecorded: list[Commit] = field(default_factory=list)  # in the store, and not in the catalog yet
    _noted: set[CommitKey] = field(default_factory=set)  # by the threads that finished them
    _turn: threading.RLock = field(default_factory=threading.RLock, repr=False)  # at the catalog and the snapshot
    _counting: threading.Lock = field(default_factory=threading.Lock, repr=False)  # held briefly: no shard waits for it

    def __post_init__(self) -> None:
        self.snapshot = self.store.beside / SNAPSHOT
        self._published = self.clock()

    def expect(self, stage: str, shards: int) -> None:
        self.totals[stage] = self.totals.get(stage, 0) + shards

    def add(self, done: Done) -> None:
        """Take note of one finished shard, if that was not done as it finished; publish if the last snapshot is old.

        The catalog is told of many shards at once: a transaction takes it longer than a small shard takes. Should the
        process die before, the next flow finds their commits.

        Raises:
            StoreError: its commit is not in the flow's own store.
        """
        if done.key not in self._noted:
            self._note(done)
        if len(self._unrecorded) >= _TOGETHER:
            with self._turn:
                self._catch_up()
        self.refresh()

    def note(self, done: Done) -> None:
        """Take note of a shard at once, from the thread that finished it; `add` then passes over it.

        Raises:
            StoreError: its commit is not in the flow's own store.
        """
        self._noted.add(done.key)
        self._note(done)

    def _note(self, done: Done) -> None:
        key = done.key
        commit = self.store.find(key.stage, key.tool, key.shard, key.fingerprint)
        if commit is None:
            raise StoreError(
                f"{key.id} was done, but {self.store.root} does not hold it: give the flow and its workers a data "
                "folder or URL that all of them reach"
            )
        with self._counting:
            self._unrecorded.append(commit)
            self.keys.append(key)
            self._news = True
            self.finished[key.stage] = self.finished.get(key.stage, 0) + 1
            self.skipped += done.skipped
            for watch in self.watchers:
                watch(done)
            if (progress := _progress.get()) is not None:
                progress(key.stage, self.finished[key.stage], self.totals[key.stage], done)
                return
        if not done.skipped:
            get_run_logger().debug(
                "%s %s in %.1f s", " ".join(filter(None, (key.stage, key.tool))), key.shard, done.seconds
            )

    def _catch_up(self) -> None:
        with self._counting:
            commits = list(self._unrecorded)
        self.catalog.record(commits)
        with self._counting:
            del self._unrecorded[: len(commits)]

    def refresh(self) -> float:
        """Publish what is new, if the last snapshot is old; return after how many seconds to ask again.

        A snapshot that cannot be written now is no reason to stop: it is said, and tried again later.
        """
        with self._turn:
            left = self._published + self.refresh_s - self.clock()
            if left > 0:
                return left
            if self._news:
                try:
                    self.publish("running")
                except WarehouseError as exc:
                    _log.warning("the snapshot is not refreshed, the run goes on: %s", exc)
                    self._published = self.clock()
                    self._news = True
            return self.refresh_s

    @contextmanager
    def refreshing(self) -> Iterator[None]:
        """Keep the snapshot fresh from a thread while this block runs."""
        ended = threading.Event()

        def keep() -> None:
            while not ended.wait(max(_BREATH_S, self.refresh())):
                pass

        thread = threading.Thread(target=keep, name="snapshot", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def record(self, state: str) -> None:
        """Write the run's manifest."""
        with self._turn:
            ended = now() if state != "running" else None
            with self._counting:
                keys = tuple(sorted(self.keys))
                self._news = False
            self._catch_up()
            self.run = replace(self.run, commits=keys, state=state, finished=ended)
            self.store.write_run(self.run)
            self.catalog.record_run(self.run)

    @contextmanager
    def own_snapshot(self) -> Iterator[Path]:
        """Write the run's manifest, and yield a snapshot of this run alone; see `snapshot_of`."""
        with self._turn:
            self.record("running")
        with snapshot_of(self.store, self.catalog, self.run.run_id) as own:
            yield own

    def publish(self, state: str) -> None:
        """Write the run's manifest, then the snapshot; at the run's end every data file is looked at once more."""
        with self._turn:
            self.record(state)
            publish(self.store, self.catalog, self.snapshot.parent, again=state != "running")
            self._published = self.clock()


@contextmanager
def keeping(store: Store, run: Run) -> Iterator[Ledger]:
    """Hold the catalog of a data folder for a run, waiting for another flow if need be; its end is published.

    A catalog that several machines share is not held: their flows run at once.

    What killed writers left behind is swept first, and the catalog brought in step with the commits.

    Raises:
        LockHeldError: another flow is at work there, and still was after $TOOLFORMER_WAIT_S.
        WarehouseError: the end of the run could not be published.
    """
    wait_s = seconds("wait")

    def waiting(held: LockHeldError) -> None:
        get_run_logger().warning("waiting at most %.0f s: %s", wait_s, held)

    place = shared_catalog() or store.beside / "catalog.duckdb"
    with Catalog(place, store=store, wait_s=wait_s, waiting=waiting) as catalog:
        store.sweep_temporary(seconds("sweep"))
        ledger = Ledger(store, catalog, run)
        try:
            with ledger.refreshing():
                yield ledger
        except BaseException:
            try:
                ledger.publish("failed")
            except WarehouseError as exc:  # why the run failed matters more
                _log.warning("the end of the run is not recorded: %s", exc)
            raise
        ledger.publish("completed")


def republish(store: Store) -> None:
    """Publish the snapshot anew where there is one, for what no run records. A failure is only logged.

    A flow that is at work in the folder publishes its own snapshot as it ends, which tells of it too.
    """
    if not (store.beside / SNAPSHOT).is_file():
        return
    try:
        with Catalog(shared_catalog() or store.beside / "catalog.duckdb", store=store) as catalog:
            publish(store, catalog, store.beside, again=False)
    except LockHeldError as exc:
        _log.info("the snapshot is left to who is at work: %s", exc)
    except WarehouseError as exc:
        _log.warning("the snapshot is not refreshed: %s", exc)
