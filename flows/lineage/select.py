"""The steps of a run, of a dataset and what was made of it, or of a whole data folder, oldest run first."""

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flows.export.find import find_dataset
from flows.lineage.build import contents, model, run_steps
from flows.lineage.names import HUB, place, table_at
from flows.lineage.steps import Data, Step
from toolformer_core.errors import UnknownNameError
from warehouse.commits import Dataset, Run
from warehouse.records import Export, exports, trainings
from warehouse.store import Store

__all__ = ["steps_of"]

_FIGURES = ("steps", "train_loss", "dev_perplexity", "base_perplexity", "best_step", "best_perplexity")  # of a training


class _Records:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.runs = {run.run_id: run for run in store.runs()}
        self.datasets = store.datasets()
        self.trainings = {row["job"]: row for row in trainings(store)}
        self.exports = exports(store)
        self.checkpoints = {job: str(row["checkpoint"]) for job, row in self.trainings.items()}

    def of_run(self, name: str) -> list[Step]:
        """Return the steps of a flow run, a training or an export, by its id."""
        if name in self.runs:
            return self._flow_run(self.runs[name], self._recorded(self.runs[name].dataset))
        if name in self.trainings:
            return [self._training(self.trainings[name])]
        if name in self.exports:
            return [self._export(name, self.exports[name])]
        raise UnknownNameError("run", name, [*self.runs, *self.trainings, *self.exports])

    def of_dataset(self, dataset: Dataset) -> Iterator[list[Step]]:
        """Yield the steps of the run that made a record of C*, and of what was made of it."""
        if dataset.run_id in self.runs:
            yield self._flow_run(self.runs[dataset.run_id], dataset)
        trained = [job for job, training in self.trainings.items() if self._trained_on(training) == dataset]
        exported = [export_id for export_id, export in self.exports.items() if export.dataset == dataset.key]
        yield from map(self.of_run, (*trained, *exported))

    def _recorded(self, key: str) -> Dataset | None:
        return next((dataset for dataset in self.datasets if dataset.key == key), None)

    def _trained_on(self, training: Mapping[str, Any]) -> Dataset | None:
        """Return the oldest record of the version that was trained on: a training knows the version alone."""
        named = (training["dataset"], training["version"])
        return next((dataset for dataset in self.datasets if (dataset.name, dataset.version) == named), None)

    def _cstar(self, dataset: Dataset | None, name: str, version: str) -> Data:
        at = table_at(self.store, "datasets", name)
        if dataset is None:
            return Data(*at, kind="TABLE", version=version)
        facts = {name: getattr(dataset, name) for name in ("label", "counts", "thresholds", "licence")}
        return contents(at, dataset.files, facts=facts, version=dataset.id)

    def _flow_run(self, run: Run, dataset: Dataset | None) -> list[Step]:
        """Return a flow run's steps; the last one gives what it assembled a name and a version, or finds them given."""
        steps = run_steps(self.store, run, self.checkpoints)
        if dataset is None:
            return steps
        at = dataset.created if dataset.run_id == run.run_id else run.started
        facts = {"stage": "assemble", "tool": ""}
        version = Step(
            job=f"{run.flow}.version",
            run=run.run_id,
            kind="VERSION",
            about="C*: the assembled examples under a name and a version.",
            state=run.state,
            started=at,
            ended=at,
            inputs=(contents(table_at(self.store, "shards", "assemble", "_"), dataset.files, facts=facts),),
            outputs=(self._cstar(dataset, dataset.name, ""),),
            parent=(run.flow, run.run_id),
            program=steps[0].program,
            facts={"dataset": dataset.key},
        )
        return [*steps, version]

    def _training(self, training: Mapping[str, Any]) -> Step:
        ended = dt.datetime.fromisoformat(training["finished"])
        cstar = self._cstar(self._trained_on(training), training["dataset"], str(training["version"] or ""))
        figures = {name: training[name] for name in _FIGURES if training.get(name) is not None}
        checkpoint = Data(
            *place(self.checkpoints[training["job"]]),
            kind="MODEL",
            version=training["job"].rpartition("-")[2],
            facts={"job": training["job"], "arm": training["arm"], **figures},
        )
        return Step(
            job=f"finetune.{training['arm']}",
            run=training["job"],
            kind="TRAINING",
            about="A model finetuned on C*, or on the same documents without calls.",
            state="completed",
            started=(ended - dt.timedelta(seconds=training["seconds"])).isoformat(timespec="microseconds"),
            ended=training["finished"],
            inputs=(cstar, model(training["model"], str(training.get("model_digest") or ""), self.checkpoints)),
            outputs=(checkpoint,),
            facts={"arm": training["arm"], "recipe": dict(training["recipe"]), "seconds": training["seconds"]},
        )

    def _export(self, export_id: str, export: Export) -> Step:
        name, _, version = export.dataset.partition("/")
        return Step(
            job=f"export.{export.format}",
            run=export_id,
            kind="EXPORT",
            about="C* in files that a trainer reads.",
            state="completed",
            started=export.created,
            ended=export.created,
            inputs=(self._cstar(self._recorded(export.dataset), name, version),),
            outputs=tuple(_exported(export)),
            program=export.program,
            facts={"format": export.format, "dataset": export.dataset},
        )


def _exported(export: Export) -> Iterator[Data]:
    for file in export.files:
        digest, rows, size = str(file["sha256"]), file.get("rows"), file["bytes"]
        at = place(str(Path(export.folder) / str(file["name"])))
        yield Data(*at, kind="FILE", version=digest[:16], rows=rows, bytes=size, files=1, facts={"sha256": digest})
    if export.repository:
        rows = sum(int(file.get("rows") or 0) for file in export.files)
        at = export.hub or HUB, f"datasets/{export.repository}"
        yield Data(*at, kind="FILE", version=export.revision or "", rows=rows)


def steps_of(store: Store, run: str = "", dataset: str = "") -> list[Step]:
    """Return the steps of a run (also a training or an export), of a dataset and its uses, or of all, in order.

    A UsageError: there is no such run, dataset or version.
    """
    records = _Records(store)
    if run:
        return records.of_run(run)
    if dataset:
        chosen = records.of_dataset(find_dataset(store, dataset))
    else:
        chosen = map(records.of_run, (*records.runs, *records.trainings, *records.exports))
    return [step for steps in sorted(chosen, key=lambda steps: steps[0].started) for step in steps]
