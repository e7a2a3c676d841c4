"""One MLflow run per training job, for all its attempts; it links to the run of the build that made its dataset."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.build_dataset.tracking import call_settings, track_build
from flows.finetune.parameters import FinetuneParameters
from flows.finetune.resolve import FinetunePlan
from tasks.provenance import versions
from tasks.settings import tracking_uri
from tasks.training.job import JobCard
from tasks.training.registry import MLFLOW_NOTE, model_label
from tasks.viewer_links import version_page
from toolformer_core.finetune.events import read_events
from warehouse.store import Store


def start_run(plan: FinetunePlan, p: FinetuneParameters, card: JobCard) -> Any:
    """Start the MLflow run of a job, or resume the one named in the job's folder; return a `TrainingRun`."""
    from tasks.tracking import DatasetRef, Tracking, project

    spec, dataset, base = plan.spec, plan.spec.dataset, model_label(p.model)
    note = spec.folder / MLFLOW_NOTE
    name = f"{dataset.name}@{dataset.version}"
    datasets = [DatasetRef(name, card.train_digest, f"{p.data}/datasets/{dataset.name}", "train", card.train)]
    if card.dev:
        datasets.append(DatasetRef(f"{dataset.name}-dev", card.dev_digest, dataset.corpus, "dev", card.dev))
    tracking, store = Tracking(plan.tracking), Store(p.data)
    run = tracking.start(
        experiment=project(p.data),
        name=f"{p.arm} {base} {name} {spec.digest[:8]}",
        params={
            "dataset": name,
            "dataset_digest": dataset.version,
            **call_settings(store, dataset),
            "arm": p.arm,
            "model": p.model,
            "model_digest": spec.model_digest,
            "annotator": dataset.model,
            "recipe": {name: value for name, value in asdict(spec.recipe).items() if value is not None and value != {}},
            "dev_documents": card.dev,
            "profile": p.profile,
            "launcher": plan.launcher.name,
            "processes": plan.processes,
            "code": versions(),
        },
        tags={
            "kind": "finetune",
            "arm": p.arm,
            "dataset": name,
            "dataset_digest": dataset.version,
            "job": spec.digest,
            "registered_model": f"{p.arm}-{base}",
        },
        datasets=datasets,
        sources={"build": track_build(tracking, store, p.data, dataset)},
        run_id=note.read_text(encoding="utf-8").strip() if note.is_file() else None,
        folder=str(spec.folder),
        system_metrics=plan.launcher.name == "local",
        links={"What it was trained on, in the viewer": version_page(name)},
    )
    note.write_text(run.run_id + "\n", encoding="utf-8")
    return run


def close_run(folder: Path, data: str) -> None:
    """Record a cancelled job's events and close its MLflow run, if the job's own process could not."""
    from tasks.tracking import Tracking, TrainingRun

    client = Tracking(tracking_uri(data)).client
    run_id = (folder / MLFLOW_NOTE).read_text(encoding="utf-8").strip()
    if client.get_run(run_id).info.status == "RUNNING":
        run = TrainingRun(client, run_id, folder=str(folder))
        run.record(read_events(folder)[0])
        run.finish("KILLED")
