"""A dataset by the name that a user gives."""

from toolformer_core.errors import UnknownNameError, UsageError
from warehouse.commits import Dataset
from warehouse.store import Store


def find_dataset(store: Store, name: str) -> Dataset:
    """Return a dataset by `name`, `name@version` or `name@version-made` (the last two may be shortened).

    Of several matches, return the one that was made last, or made again in the same way last; of none, raise an
    UnknownNameError (the name) or a UsageError (the version, or there are no datasets).
    """
    datasets = store.datasets()
    if not datasets:
        raise UsageError(f"there is no dataset in {store.root} yet: run the same toolformer build to its end")
    plain, _, version = name.partition("@")
    versions = [d for d in datasets if d.name == plain]
    if not versions:
        raise UnknownNameError("dataset", plain, {d.name for d in datasets})
    matches = [d for d in versions if d.id.startswith(version)]
    if not matches:
        raise UsageError(f"dataset {plain!r} has no version {version!r}; it has: {', '.join(d.id for d in versions)}")
    contents = {d.version for d in matches}
    if version and len(contents) > 1:
        raise UsageError(f"{name} may be any of {', '.join(sorted(contents))}: write more of it")
    last_made = {run.dataset: (run.number, run.finished or run.started) for run in store.runs()}  # oldest first
    return max(matches, key=lambda d: (*last_made.get(d.key, (d.number, d.created)), d.created))
