"""The steps of a run, of a dataset and what was made of it, or of a whole data folder, oldest run first."""

from collections.abc import Iterator, Mapping
from typing import Any

from flows.export.find import find_dataset
from flows.lineage.build import run_steps
from flows.lineage.outcomes import export_step, training_step, version_step
from flows.lineage.steps import Step
from toolformer_core.errors import UnknownNameError
from warehouse.commits import Dataset, Run
from warehouse.records import exports, trainings
from warehouse.store import Store

__all__ = ["steps_of"]


class _Records:
    """The records of a data folder that steps are made of."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.runs = {run.run_id: run for run in store.runs()}
        self.datasets = store.datasets()
        self.trainings = {row["job"]: row for row in trainings(store)}
        self.exports = exports(store)
        self.checkpoints = {job: str(row["checkpoint"]) for job, row in self.trainings.items()}

    def run(self, run: Run, dataset: Dataset | None) -> list[Step]:
        """Return a flow run's steps, the last of them the version of C* that came of it."""
        steps = run_steps(self.store, run, self.checkpoints)
        if dataset is not None:
            steps.append(version_step(self.store, run, dataset, steps[0].program))
        return steps

    def trained_on(self, training: Mapping[str, Any]) -> Dataset | None:
        """Return the oldest record of the version that was trained on: a training knows the version alone."""
        named = (training["dataset"], training["version"])
        return next((dataset for dataset in self.datasets if (dataset.name, dataset.version) == named), None)

    def _dataset(self, key: str) -> Dataset | None:
        return next((dataset for dataset in self.datasets if dataset.key == key), None)

    def of_run(self, name: str) -> list[Step]:
        """Return the steps of a flow run, a training or an export, by its id."""
        if name in self.runs:
            run = self.runs[name]
            return self.run(run, self._dataset(run.dataset))
        if name in self.trainings:
            training = self.trainings[name]
            return [training_step(self.store, training, self.trained_on(training), self.checkpoints)]
        if name in self.exports:
            export = self.exports[name]
            return [export_step(self.store, name, export, self._dataset(export.dataset))]
        raise UnknownNameError("run", name, [*self.runs, *self.trainings, *self.exports])

    def of_dataset(self, dataset: Dataset) -> Iterator[list[Step]]:
        """Yield the steps of the run that made a record of C*, and of what was made of it."""
        if dataset.run_id in self.runs:
            yield self.run(self.runs[dataset.run_id], dataset)
        trained = [job for job, training in self.trainings.items() if self.trained_on(training) == dataset]
        exported = [export_id for export_id, export in self.exports.items() if export.dataset == dataset.key]
        for name in (*trained, *exported):
            yield self.of_run(name)


def steps_of(store: Store, run: str = "", dataset: str = "") -> list[Step]:
    """Return steps, run by run in the order in which the runs began; those of a run in the order of its stages.

    Args:
        run: id of a flow run, a training's job or an export; "": see `dataset`.
        dataset: name of a dataset, see `find_dataset`: the run that made it, trainings on it and exports of it; "" and
            no run: everything.

    Raises:
        UnknownNameError: there is no such run or dataset.
        UsageError: the dataset has no such version.
    """
    records = _Records(store)
    if run:
        return records.of_run(run)
    if dataset:
        chosen = records.of_dataset(find_dataset(store, dataset))
    else:
        chosen = map(records.of_run, (*records.runs, *records.trainings, *records.exports))
    return [step for steps in sorted(chosen, key=lambda steps: steps[0].started) for step in steps]
