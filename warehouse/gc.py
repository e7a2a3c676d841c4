"""What nothing refers to any more, and taking it away.

Kept, however old it is:
    what a dataset version rests on: its files, the commits that hold them, all that its run used, and what those were
      made from. A finetuned model's record names such a version, and no version is ever taken away here;
    what is current: the commits of the newest completed build, and of every evaluation's newest completed run;
    the manifests of runs and the cards of datasets: they are small, and they are the history.
Kept for some days: what runs made or used that have not completed, as the same command goes on from it.
Garbage: the other commits and their data; data that no commit lists; temporary files; what lies in quarantine.

The order of taking away: commits, then catalog and snapshot, then data. A commit says that its data is there, so it
must go first: killed after any step, what is left is at worst data without a commit, which nobody reads and the next
`gc` finds. (Data first would leave commits that look damaged.) Whoever holds open an older snapshot, one in which what
is garbage now was current, finds that its files are gone; the newest snapshot never names a file that is garbage.
The caller holds the catalog, and so its lock: no flow is at work meanwhile. A catalog on PostgreSQL holds nobody up:
there the caller looks at `going_on` first. A flow that begins in that very moment and counts on what is being removed
ends with an error, and does it anew when it is started again.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import duckdb

from warehouse.catalog import Catalog
from warehouse.commits import Commit, Dataset, Run
from warehouse.facts import Facts, facts_of
from warehouse.snapshot import publish
from warehouse.store import Store
from warehouse.views import CURRENT

__all__ = ["Garbage", "collect", "garbage", "going_on", "needed", "rests_on"]

_DAY_S = 86_400.0
_SUPERSEDED = "superseded: not current, and no dataset rests on it"
_ANSWERS = f"{_SUPERSEDED}; what tools answered in it can then not be replayed"
# A dataset's record in quarantine, where a number may have been added to its name; the group is its key.
_RECORD = re.compile(r"quarantine/datasets/([^/]+/[0-9a-f]{16}(?:-[0-9a-f]{12})?)(?:-[0-9]+)?[.]")


@dataclass(frozen=True, slots=True)
class Garbage:
    """One file that nothing refers to."""

    kind: str  # commit | data | temporary | quarantine
    path: str  # within the store
    bytes: int
    why: str


def needed(
    commits: Iterable[Commit],
    runs: Iterable[Run],
    datasets: Iterable[Dataset],
    *,
    unfinished_since: str = "",
    all_completed: bool = False,
) -> set[str]:
    """Return the ids of the commits that must stay.

    Args:
        unfinished_since: ISO UTC; what runs that have not completed made or used is kept from then on.
        all_completed: keep whatever a completed run used; for when a dataset's card is lost, and so what it needs.
    """
    by_id = {commit.id: commit for commit in commits}
    runs, datasets = list(runs), list(datasets)
    state = {run.run_id: run.state for run in runs}
    keep = set(_current(facts_of(by_id.values(), runs, datasets)))
    for dataset in datasets:
        keep |= rests_on(dataset, by_id, runs)
    for run in runs:
        completed = run.state == "completed"
        if all_completed if completed else run.started >= unfinished_since:
            keep |= {key.id for key in run.commits}
    for own, commit in by_id.items():
        if state.get(commit.run_id) != "completed" and commit.created >= unfinished_since:
            keep.add(own)
    keep &= by_id.keys()
    return keep | _sources(by_id, keep)


def rests_on(dataset: Dataset, commits: Mapping[str, Commit], runs: Iterable[Run]) -> set[str]:
    """Return the ids of the commits that a dataset version rests on, also of those that are lost.

    Args:
        commits: by id.
    """
    found = {key.id for run in runs if run.run_id == dataset.run_id for key in run.commits}
    files = {(file.path, file.digest) for file in dataset.files}
    found |= {own for own, c in commits.items() if any((file.path, file.digest) in files for file in c.files)}
    return found | _sources(commits, found & commits.keys())


def _current(facts: Facts) -> Iterator[str]:
    """Yield the ids of the commits that a snapshot of these facts shows."""
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA facts")
        for name in ("commits", "runs", "run_commits"):
            connection.register("_rows", facts[name])
            connection.execute(f"CREATE TABLE facts.{name} AS SELECT * FROM _rows")
            connection.unregister("_rows")
        yield from (own for (own,) in connection.execute(CURRENT).fetchall())


def _sources(by_id: Mapping[str, Commit], keep: set[str]) -> set[str]:
    """Return the commits that hold what the kept ones read, where no kept one holds it."""
    holders: dict[str, list[str]] = defaultdict(list)
    for own, commit in by_id.items():
        for file in commit.files:
            holders[file.digest].append(own)
    held = {file.digest for own in keep for file in by_id[own].files}
    found: set[str] = set()
    todo = [by_id[own] for own in keep]
    while todo:
        for digest in todo.pop().inputs:
            if digest in held:
                continue
            new = [own for own in holders.get(digest, ()) if own not in found]
            found |= set(new)
            todo += [by_id[own] for own in new]
            held |= {file.digest for own in new for file in by_id[own].files}
    return found


def garbage(
    store: Store, *, unfinished_days: float = 7.0, temporary_s: float = 3600.0, now: float | None = None
) -> list[Garbage]:
    """Return what nothing refers to, commits first.

    Args:
        unfinished_days: for how long the work of runs that have not completed is kept.
        temporary_s: from which age a temporary file, or data without a commit, is taken for a dead writer's.
        now: seconds since 1970; default: the clock's.
    """
    now = time.time() if now is None else now
    since = _since(now, unfinished_days)
    commits, datasets = list(store.commits()), store.datasets()
    lost = _lost_cards(store, datasets)
    keep = needed(commits, store.runs(), datasets, unfinished_since=since, all_completed=bool(lost))
    listed = {file.path for dataset in datasets for file in dataset.files}
    listed |= {file.path for commit in commits if commit.id in keep for file in commit.files}
    stale = [commit for commit in commits if commit.id not in keep]
    theirs = {file.path: _why(commit) for commit in stale for file in commit.files}
    out = [_item(store, "commit", f"commits/{commit.id}.json", _why(commit)) for commit in stale]
    for path in (*store.files.walk("shards"), *store.files.walk("rejects")):
        if path in listed:
            continue
        found = store.files.look(path)
        if path in theirs:
            out.append(_item(store, "data", path, theirs[path]))
        elif found is not None and found[1] <= now - temporary_s:
            out.append(_item(store, "data", path, "no commit lists it: its writer was killed"))
    out += [_item(store, "temporary", path, "its writer was killed") for path in store.files.abandoned(temporary_s)]
    for path in store.files.walk("quarantine"):
        if path not in lost:
            out.append(_item(store, "quarantine", path, "set aside as damaged"))
    return out


def going_on(store: Store, *, unfinished_days: float, now: float | None = None) -> list[str]:
    """Return the runs that may be at work: those that have not ended and began no longer ago than that."""
    since = _since(time.time() if now is None else now, unfinished_days)
    return [run.run_id for run in store.runs() if run.state == "running" and run.started >= since]


def _since(now: float, days: float) -> str:
    return dt.datetime.fromtimestamp(now - days * _DAY_S, dt.UTC).isoformat()


def _why(commit: Commit) -> str:
    return _ANSWERS if commit.stage == "execute" else _SUPERSEDED


def _item(store: Store, kind: str, path: str, why: str) -> Garbage:
    found = store.files.look(path)
    return Garbage(kind, path, found[0] if found is not None else 0, why)


def _lost_cards(store: Store, datasets: Iterable[Dataset]) -> set[str]:
    """Return the paths in quarantine of dataset cards that were not written anew since."""
    known = {dataset.key for dataset in datasets}
    out = set()
    for path in store.files.walk("quarantine/datasets"):
        found = _RECORD.match(path)
        if found is None or found[1] not in known:
            out.add(path)
    return out


def collect(store: Store, catalog: Catalog, found: Iterable[Garbage]) -> Iterator[Garbage]:
    """Take garbage away, commits first; yield each file that is gone.

    Args:
        catalog: held open, so that no flow is at work.

    Raises:
        WarehouseError: a file cannot be removed, or the snapshot cannot be written; what is left is consistent.
    """
    found = list(found)
    for item in found:
        if item.kind == "commit":
            store.files.delete(item.path)
            yield item
    catalog.catch_up(store)
    publish(store, catalog, store.beside)
    for item in found:
        if item.kind != "commit":
            store.files.delete(item.path)
            yield item
