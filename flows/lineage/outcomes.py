"""The steps that come after a flow's stages: a version of C*, a training on it, an export of it; from their records."""

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flows.lineage.build import contents, dataset_at, model
from flows.lineage.names import HUB, place, table_at
from flows.lineage.steps import Data, Step
from warehouse.commits import Dataset, Run
from warehouse.records import Export
from warehouse.store import Store


def cstar(store: Store, dataset: Dataset) -> Data:
    facts = {
        "label": dataset.label,
        "counts": dataset.counts,
        "thresholds": dataset.thresholds,
        "licence": dataset.licence,
    }
    return contents(dataset_at(store, dataset.name), dataset.files, facts=facts, version=dataset.id)


def version_step(store: Store, run: Run, dataset: Dataset, program: str) -> Step:
    """Return the step in which a run gave what it had assembled a name and a version, or found that it had them."""
    at = dataset.created if dataset.run_id == run.run_id else run.started
    assembled = contents(
        table_at(store, "shards", "assemble", "_"), dataset.files, facts={"stage": "assemble", "tool": ""}
    )
    return Step(
        job=f"{run.flow}.version",
        run=run.run_id,
        kind="VERSION",
        about="C*: the assembled examples under a name and a version.",
        state=run.state,
        started=at,
        ended=at,
        inputs=(assembled,),
        outputs=(cstar(store, dataset),),
        parent=(run.flow, run.run_id),
        program=program,
        facts={"dataset": dataset.key},
    )


def training_step(
    store: Store, training: Mapping[str, Any], dataset: Dataset | None, checkpoints: Mapping[str, str]
) -> Step:
    """Return the step of a finished training."""
    ended = dt.datetime.fromisoformat(training["finished"])
    named = Data(*dataset_at(store, training["dataset"]), kind="TABLE", version=str(training["version"] or ""))
    figures = ("steps", "train_loss", "dev_perplexity", "base_perplexity", "best_step", "best_perplexity")
    figures_known = {name: training[name] for name in figures if training.get(name) is not None}
    checkpoint = Data(
        *place(checkpoints[training["job"]]),
        kind="MODEL",
        version=training["job"].rpartition("-")[2],
        facts={"job": training["job"], "arm": training["arm"], **figures_known},
    )
    return Step(
        job=f"finetune.{training['arm']}",
        run=training["job"],
        kind="TRAINING",
        about="A model finetuned on C*, or on the same documents without calls.",
        state="completed",
        started=(ended - dt.timedelta(seconds=training["seconds"])).isoformat(timespec="microseconds"),
        ended=training["finished"],
        inputs=(
            named if dataset is None else cstar(store, dataset),
            model(training["model"], str(training.get("model_digest") or ""), checkpoints),
        ),
        outputs=(checkpoint,),
        facts={"arm": training["arm"], "recipe": dict(training["recipe"]), "seconds": training["seconds"]},
    )


def export_step(store: Store, export_id: str, export: Export, dataset: Dataset | None) -> Step:
    """Return the step of an export: the files, and the repository on the hub that they were pushed to."""
    name, _, version = export.dataset.partition("/")
    named = Data(*dataset_at(store, name), kind="TABLE", version=version)
    return Step(
        job=f"export.{export.format}",
        run=export_id,
        kind="EXPORT",
        about="C* in files that a trainer reads.",
        state="completed",
        started=export.created,
        ended=export.created,
        inputs=(named if dataset is None else cstar(store, dataset),),
        outputs=tuple(_exported(export)),
        program=export.program,
        facts={"format": export.format, "dataset": export.dataset},
    )


def _exported(export: Export) -> Iterator[Data]:
    for file in export.files:
        digest = str(file["sha256"])
        at = place(str(Path(export.folder) / str(file["name"])))
        rows = file.get("rows")
        yield Data(
            *at, kind="FILE", version=digest[:16], rows=rows, bytes=file["bytes"], files=1, facts={"sha256": digest}
        )
    if export.repository:
        rows_in_all = sum(int(file.get("rows") or 0) for file in export.files)
        namespace = export.hub or HUB
        yield Data(
            namespace, f"datasets/{export.repository}", kind="FILE", version=export.revision or "", rows=rows_in_all
        )
