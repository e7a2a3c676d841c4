"""Garbage collection: finds the files that nothing refers to any more, and deletes them.

Kept are what dataset versions depend on, what is current (of builds and evaluations), commits that list a file of a
kept one, manifests and cards, and for some days what unfinished runs made or used. The caller holds the catalog, so no
flow works meanwhile; on PostgreSQL, which locks nobody out, it checks `active_runs` first.
"""

import datetime as dt
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import duckdb

from warehouse.catalog import Catalog
from warehouse.commits import Commit, Dataset, Run
from warehouse.facts import Facts, facts_from_records
from warehouse.snapshot.publish import publish
from warehouse.snapshot.relations import execute_with
from warehouse.snapshot.views import query
from warehouse.store import Store

_DAY_S = 86_400.0
_SUPERSEDED = "superseded: not current, and no dataset depends on it"
_RESPONSES = f"{_SUPERSEDED}; after its deletion the tools' responses in it cannot be replayed"
# The path of a dataset's record in quarantine, where a number may follow its name; the group is the record's key.
_RECORD = re.compile(r"quarantine/datasets/([^/]+/[0-9a-f]{16}(?:-[0-9a-f]{12})?)(?:-[0-9]+)?[.]")


@dataclass(frozen=True, slots=True)
class Garbage:
    """One file that nothing refers to."""

    kind: str  # commit | data | temporary | quarantine
    path: str  # within the store
    bytes: int
    why: str


def needed_commits(
    commits: Iterable[Commit],
    runs: Iterable[Run],
    datasets: Iterable[Dataset],
    *,
    unfinished_since: str,
    all_completed: bool = False,
) -> set[str]:
    """Return the ids of the commits that must be kept, with what unfinished runs since a time (ISO UTC) made or used.

    `all_completed` keeps all that completed runs used: where a dataset's card is lost, its needs are unknown.
    """
    by_id = {commit.id: commit for commit in commits}
    runs, datasets = list(runs), list(datasets)
    state = {run.run_id: run.state for run in runs}
    keep = _current(facts_from_records(by_id.values(), runs, datasets))
    for dataset in datasets:
        keep |= dataset_commits(dataset, by_id, runs)
    for run in runs:
        if all_completed if run.state == "completed" else run.started >= unfinished_since:
            keep |= {key.id for key in run.commits}
    unfinished = (commit for commit in by_id.values() if state.get(commit.run_id) != "completed")
    keep |= {commit.id for commit in unfinished if commit.created >= unfinished_since}
    keep &= by_id.keys()
    keep |= _sources(by_id, keep)
    listed = {file.path for commit_id in keep for file in by_id[commit_id].files}
    return keep | {i for i, commit in by_id.items() if any(file.path in listed for file in commit.files)}


def dataset_commits(dataset: Dataset, commits: Mapping[str, Commit], runs: Iterable[Run]) -> set[str]:
    """Return the ids of the commits that a dataset version depends on, including lost ones."""
    ids = {key.id for run in runs if run.run_id == dataset.run_id for key in run.commits}
    files = {(file.path, file.digest) for file in dataset.files}
    ids |= {i for i, commit in commits.items() if any((file.path, file.digest) in files for file in commit.files)}
    return ids | _sources(commits, ids & commits.keys())


def _current(facts: Facts) -> set[str]:
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA facts")
        for name in ("commits", "runs", "run_commits"):
            execute_with(connection, f"CREATE TABLE facts.{name} AS SELECT * FROM _rows", facts[name])
        return {commit_id for (commit_id,) in connection.execute(query("current")).fetchall()}


def _sources(by_id: Mapping[str, Commit], keep: set[str]) -> set[str]:
    """Return the ids of the further commits whose files the kept commits were made from, directly or indirectly."""
    makers: dict[str, list[str]] = defaultdict(list)  # digest of a file -> commits that list it
    for commit_id, commit in by_id.items():
        for file in commit.files:
            makers[file.digest].append(commit_id)
    available = {file.digest for commit_id in keep for file in by_id[commit_id].files}
    sources: set[str] = set()
    pending = [by_id[commit_id] for commit_id in keep]
    while pending:
        for digest in pending.pop().inputs:
            if digest in available:
                continue
            new = [commit_id for commit_id in makers.get(digest, ()) if commit_id not in sources]
            sources |= set(new)
            pending += [by_id[commit_id] for commit_id in new]
            available |= {file.digest for commit_id in new for file in by_id[commit_id].files}
    return sources


def find_garbage(
    store: Store, *, unfinished_days: float = 7.0, temporary_s: float = 3600.0, now: float | None = None
) -> list[Garbage]:
    """Return the files that nothing refers to, commits first.

    From `temporary_s` seconds on, temporary files and data without a commit count as left by a dead writer.
    """
    now = time.time() if now is None else now
    since = _since(now, unfinished_days)
    commits, datasets = list(store.commits()), store.datasets()
    known = {dataset.key for dataset in datasets}
    cards = ((path, _RECORD.match(path)) for path in store.files.walk("quarantine/datasets"))
    lost = {path for path, match in cards if match is None or match[1] not in known}
    keep = needed_commits(commits, store.runs(), datasets, unfinished_since=since, all_completed=bool(lost))
    listed = {file.path for dataset in datasets for file in dataset.files}
    listed |= {file.path for commit in commits if commit.id in keep for file in commit.files}
    stale = [commit for commit in commits if commit.id not in keep]
    stale_data = {file.path: _why(commit) for commit in stale for file in commit.files}
    found = [("commit", f"commits/{commit.id}.json", _why(commit)) for commit in stale]
    for path in (*store.files.walk("shards"), *store.files.walk("rejects")):
        if path in stale_data and path not in listed:
            found.append(("data", path, stale_data[path]))
        elif path not in listed and (stat := store.files.stat(path)) is not None and stat[1] <= now - temporary_s:
            found.append(("data", path, "no commit lists it: its writer was killed"))
    found += [("temporary", path, "its writer was killed") for path in store.files.stale_temporaries(temporary_s)]
    aside = (path for path in store.files.walk("quarantine") if path not in lost)
    found += [("quarantine", path, "set aside as damaged") for path in aside]
    return [Garbage(kind, path, (store.files.stat(path) or (0,))[0], why) for kind, path, why in found]


def active_runs(store: Store, *, unfinished_days: float, now: float | None = None) -> list[str]:
    """Return the ids of the runs that may be running: started within `unfinished_days`, and not ended."""
    since = _since(time.time() if now is None else now, unfinished_days)
    return [run.run_id for run in store.runs() if run.state == "running" and run.started >= since]


def _since(now: float, days: float) -> str:
    return dt.datetime.fromtimestamp(now - days * _DAY_S, dt.UTC).isoformat()


def _why(commit: Commit) -> str:
    return _RESPONSES if commit.stage == "execute" else _SUPERSEDED


def delete_garbage(store: Store, catalog: Catalog, garbage: Collection[Garbage]) -> None:
    """Delete garbage: commits, and then data, so that a kill leaves at worst data that the next `gc` finds."""
    for path in [item.path for item in garbage if item.kind == "commit"]:
        store.files.delete(path)
    catalog.catch_up(store)
    publish(store, catalog)
    for path in [item.path for item in garbage if item.kind != "commit"]:
        store.files.delete(path)
