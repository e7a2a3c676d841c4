"""The audit: compares every record and every data file with its digest, and says which dataset versions depend on each.

What is truncated, altered or gone is set aside with its commit, so that the next build computes it again.
"""

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
    """Compare every record and data file with its digest; set the damaged ones aside and return them."""
    names = [store.names(kind) for kind in ("commits", "runs", "datasets")]
    commits = {commit.id: commit for commit in store.commits()}
    runs, datasets = store.runs(), store.datasets()
    needed = {dataset.label: dataset_commits(dataset, commits, runs) for dataset in datasets}

    def dependents(commit_id: str) -> tuple[str, ...]:
        return tuple(sorted(label for label, ids in needed.items() if commit_id in ids))

    readable = (commits.keys(), {run.run_id for run in runs}, {dataset.key for dataset in datasets})
    lost = [sorted(there - known) for there, known in zip(names, readable, strict=True)]
    records = [(f"commits/{name}", dependents(name)) for name in lost[0]]
    records += [(f"runs/{name}", tuple(one.label for one in datasets if one.run_id == name)) for name in lost[1]]
    records += [(f"datasets/{name}", (name.replace("/", "@"),)) for name in lost[2]]
    why = "is truncated or altered: its digest is not the one that it contains"
    damaged = [Damage(f"{path}.json", why, labels) for path, labels in records]
    for commit_id, commit in commits.items():
        problems = store.quarantine(commit).items()
        damaged += [Damage(path, problem, dependents(commit_id)) for path, problem in problems]
    checked = {file.path for commit in commits.values() for file in commit.files}
    for dataset, file in [(one, file) for one in datasets for file in one.files if file.path not in checked]:
        try:
            store.read(file, columns=[])
        except StoreError as exc:
            store.set_aside(file.path, str(exc))
            damaged.append(Damage(file.path, "is truncated, altered or gone", (dataset.label,)))
    return damaged


def missing_files(store: Store, dataset: Dataset) -> list[str]:
    """Return the files of a version that are missing or have another size; none is read, and none is set aside."""
    return [file.path for file in dataset.files if (store.files.stat(file.path) or (None,))[0] != file.bytes]
