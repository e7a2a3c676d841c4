"""The audit: compares every record and every data file with its digest.

A file that is truncated, altered or gone is set aside (see `Store.set_aside`) together with its commit, so that the
next build computes it again. The report says which dataset versions depend on each file. The audit itself repairs
nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from warehouse.commits import Dataset
from warehouse.errors import StoreError
from warehouse.gc import dataset_commits
from warehouse.store import Store


@dataclass(frozen=True, slots=True)
class Damage:
    path: str  # within the store, where it was
    why: str
    datasets: tuple[str, ...]  # labels of the dataset records that depend on it: name@version-made


def audit(store: Store) -> list[Damage]:
    """Compare every record and data file with its digest; set the damaged ones aside and return them.

    Raises:
        StoreError: a file exists but cannot be read now.
    """
    names = {kind: store.names(kind) for kind in ("commits", "runs", "datasets")}
    commits = {commit.id: commit for commit in store.commits()}
    runs, datasets = store.runs(), store.datasets()
    needed = {dataset.label: dataset_commits(dataset, commits, runs) for dataset in datasets}

    def dependents(commit_id: str) -> tuple[str, ...]:
        return tuple(sorted(label for label, ids in needed.items() if commit_id in ids))

    why = "is truncated or altered: its digest is not the one that it contains"
    unreadable = sorted(names["commits"] - commits.keys())
    damaged = [Damage(f"commits/{commit_id}.json", why, dependents(commit_id)) for commit_id in unreadable]
    for name in sorted(names["runs"] - {run.run_id for run in runs}):
        labels = tuple(dataset.label for dataset in datasets if dataset.run_id == name)
        damaged.append(Damage(f"runs/{name}.json", why, labels))
    for name in sorted(names["datasets"] - {dataset.key for dataset in datasets}):
        damaged.append(Damage(f"datasets/{name}.json", why, (name.replace("/", "@"),)))
    for commit_id, commit in commits.items():
        if store.damage(commit):
            problems = store.quarantine(commit).items()
            damaged += [Damage(path, problem, dependents(commit_id)) for path, problem in problems]
    checked = {file.path for commit in commits.values() for file in commit.files}
    for dataset in datasets:
        damaged += [damage for damage in _damaged_files(store, dataset) if damage.path not in checked]
    return damaged


def missing_files(store: Store, dataset: Dataset) -> list[str]:
    """Return the files of a version that are missing or have another size; none is read, and none is set aside.

    Raises:
        StoreError: the place cannot be reached now.
    """
    return [file.path for file in dataset.files if (store.files.stat(file.path) or (None,))[0] != file.bytes]


def _damaged_files(store: Store, dataset: Dataset) -> Iterator[Damage]:
    """Yield the damaged files of a dataset; most of its files are listed in commits too."""
    for file in dataset.files:
        try:
            store.read(file, columns=[])
        except StoreError as exc:
            store.set_aside(file.path, str(exc))
            yield Damage(file.path, "is truncated, altered or gone", (dataset.label,))
