"""What a flow has seen finish, and the catalog and snapshot that follow it. It knows shards, not what is in them.

The flow process alone holds one, inside the catalog's lock.
"""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from prefect.task_runners import ThreadPoolTaskRunner

from tasks.shards import Done
from toolformer_core.errors import UsageError
from warehouse.catalog import Catalog
from warehouse.commits import CommitKey, Run
from warehouse.errors import StoreError
from warehouse.snapshot import publish
from warehouse.store import Store

__all__ = ["Ledger", "Progress", "new_run_id", "now", "reporting_to", "task_runner"]

_PUBLISH_S = 20.0  # seconds between two snapshots while a run goes on

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
    """

    store: Store
    catalog: Catalog
    run: Run
    keys: list[CommitKey] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    published: float = field(default_factory=time.monotonic)

    @property
    def share(self) -> float:
        """Shards finished of those expected, in [0, 1]."""
        return len(self.keys) / max(1, sum(self.totals.values()))

    def expect(self, stage: str, shards: int) -> None:
        self.totals[stage] = self.totals.get(stage, 0) + shards

    def add(self, done: Done) -> None:
        """Record one finished shard; say so; publish if the last snapshot is old.

        Raises:
            StoreError: its commit is not in the flow's own store.
        """
        key = done.key
        commit = self.store.find(key.stage, key.tool, key.shard, key.fingerprint)
        if commit is None:
            raise StoreError(
                f"{key.id} was done, but {self.store.root} does not hold it: give the flow and its workers a data "
                "folder or URL that all of them reach"
            )
        self.catalog.record([commit])
        self.keys.append(key)
        self.finished[key.stage] = self.finished.get(key.stage, 0) + 1
        self.skipped += done.skipped
        if (progress := _progress.get()) is not None:
            progress(key.stage, self.finished[key.stage], self.totals[key.stage], done)
        elif not done.skipped:
            get_run_logger().info("%s %s in %.1f s", key.stage, key.shard, done.seconds)
        if time.monotonic() - self.published > _PUBLISH_S:
            self.publish("running")

    def publish(self, state: str) -> Path:
        """Write the run's manifest, then the snapshot; return the snapshot's path."""
        ended = now() if state != "running" else None
        self.run = replace(self.run, commits=tuple(sorted(self.keys)), state=state, finished=ended)
        self.store.write_run(self.run)
        self.catalog.record_run(self.run)
        path = publish(self.store, self.catalog, None if self.store.is_local else Path.cwd())
        self.published = time.monotonic()
        return path


def task_runner(name: str, workers: int) -> Any:
    if name == "threads":
        return ThreadPoolTaskRunner(max_workers=workers)
    if name != "dask" and "://" not in name:
        raise UsageError(f"unknown runner {name!r}: give 'threads', 'dask', or a scheduler's address (tcp://host:8786)")
    from prefect_dask.task_runners import DaskTaskRunner

    if name == "dask":
        return DaskTaskRunner(cluster_kwargs={"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None})
    return DaskTaskRunner(address=name)
