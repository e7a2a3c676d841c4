"""Reading everything once to see that it is what it was: every record and every data file, by its digest.

What is truncated, altered or gone is set aside (see `Store.set_aside`), its commit with it, so that the next build does
it anew; and of each it is said which dataset versions rest on it. It mends nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warehouse.commits import Dataset
from warehouse.errors import StoreError
from warehouse.gc import rests_on
from warehouse.store import Store

__all__ = ["Damage", "audit", "gone"]


@dataclass(frozen=True, slots=True)
class Damage:
    """One file that is not what it was."""

    path: str  # within the store, where it was
    why: str
    datasets: tuple[str, ...]  # labels of the dataset records that rest on it: name@version-made


def audit(store: Store) -> list[Damage]:
    """Compare every record and data file with its digest; set aside what is damaged and return it.

    Raises:
        StoreError: a file is there and cannot be read now.
    """
    records = {kind: store.names(kind) for kind in ("commits", "runs", "datasets")}
    commits = {commit.id: commit for commit in store.commits()}
    runs, datasets = store.runs(), store.datasets()
    needs = {d.label: rests_on(d, commits, runs) for d in datasets}

    def resting(commit_id: str) -> tuple[str, ...]:
        return tuple(sorted(name for name, ids in needs.items() if commit_id in ids))

    lost = "is truncated or altered: it has not the digest that it carries"
    out = [Damage(f"commits/{own}.json", lost, resting(own)) for own in sorted(records["commits"] - commits.keys())]
    for name in sorted(records["runs"] - {run.run_id for run in runs}):
        theirs = tuple(d.label for d in datasets if d.run_id == name)
        out.append(Damage(f"runs/{name}.json", lost, theirs))
    for name in sorted(records["datasets"] - {d.key for d in datasets}):
        out.append(Damage(f"datasets/{name}.json", lost, (name.replace("/", "@"),)))
    for own, commit in commits.items():
        if store.damage(commit):
            out += [Damage(path, why, resting(own)) for path, why in store.quarantine(commit).items()]
    checked = {file.path for commit in commits.values() for file in commit.files}
    for dataset in datasets:
        out += [one for one in _own_files(store, dataset) if one.path not in checked]
    return out


def gone(store: Store, dataset: Dataset) -> list[str]:
    """Return which of a version's files are not there or have another size; nothing is read, nothing set aside.

    Raises:
        StoreError: the store cannot be asked now.
    """
    return [file.path for file in dataset.files if (store.files.look(file.path) or (None,))[0] != file.bytes]


def _own_files(store: Store, dataset: Dataset) -> Iterator[Damage]:
    """Yield what is wrong with a dataset's files; most are listed in commits too."""
    for file in dataset.files:
        try:
            store.read(file, columns=[])
        except StoreError as exc:
            store.set_aside(file.path, str(exc))
            yield Damage(file.path, "is truncated, altered or gone", (dataset.label,))
