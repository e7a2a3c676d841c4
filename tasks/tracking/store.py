"""MLflow at one address: its tables made ready, its experiments found, its runs begun or taken up again."""

import contextlib
import glob
import json
import logging
import math
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.db.utils import _initialize_tables
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_RUN_NAME, MLFLOW_RUN_NOTE
from mlflow.utils.validation import MAX_DATASET_DIGEST_SIZE, MAX_PARAM_VAL_LENGTH, MAX_TAG_VAL_LENGTH
from mlflow.version import VERSION
from sqlalchemy import create_engine

from tasks.settings import cache_folder
from tasks.tracking.run import TrackingError, as_tracking_error, page, safe_name
from tasks.tracking.training import TrainingRun
from warehouse.errors import CatalogError
from warehouse.files.base import put_local
from warehouse.files.folders import make_private
from warehouse.files.lock import FileLock
from warehouse.files.paths import sqlite_file, sqlite_url

# Without it MLflow's page takes an experiment for one of traces, and opens with none of its runs.
_SHOWS_RUNS = {"mlflow.experimentKind": "custom_model_development"}
_CHATTY = ("mlflow.store.db.utils", "mlflow.system_metrics.system_metrics_monitor")


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """A dataset that went into a run. Name and digest together must differ between the datasets of one run."""

    name: str  # e.g. `demo/toolformer`
    digest: str  # ours, hex; MLflow keeps its first 36 digits
    source: str  # a path or URL
    context: str  # `train`, `dev` or `evaluation`
    rows: int  # texts or items in it


def flatten(values: Mapping[str, Any]) -> dict[str, str]:
    """Return nested mappings as one, keys joined by dots, values as texts cut at MLflow's 6,000 characters."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{inner}": text for inner, text in flatten(value).items()})
        else:
            flat[str(key)] = str(value)[:MAX_PARAM_VAL_LENGTH]
    return flat


def project(data: str) -> str:
    """Return the experiment that holds all runs of a data folder or URL: its last part, e.g. `c4` of `s3://bucket/c4`."""
    if "://" not in data:
        return Path(data).absolute().name or "toolformer"
    where = urlsplit(data)
    return where.path.rstrip("/").rpartition("/")[2] or where.netloc.rpartition("@")[2] or "toolformer"


class Tracking:
    """MLflow at one address: `sqlite:///<path>`, another database's URL, or `http(s)://` of a tracking server.

    Several processes may open a new SQLite file at once: the first makes its tables under a lock, other databases' are
    made without. A TrackingError: it cannot be reached or written, or is of another version of MLflow.
    """

    def __init__(self, uri: str) -> None:
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        self.uri = uri
        self.artifacts: str | None = None  # URL of those of new experiments; a server has its own place
        path = sqlite_file(uri)
        if path is None:
            self.client = self._open()
            return
        self.artifacts = (path.parent / "mlartifacts").as_uri()
        try:
            with FileLock(f"{path}.lock", wait_s=math.inf):
                if not path.exists() or not path.stat().st_size:
                    _make_database(path)
                make_private(path)
                self.client = self._open()
        except CatalogError as exc:
            raise TrackingError(str(exc)) from exc

    def _open(self) -> MlflowClient:
        with as_tracking_error(f"opening {urlsplit(self.uri).scheme} store"):
            client = MlflowClient(self.uri, self.uri)
            client.search_experiments(max_results=1)  # the first question makes the tables
            client.search_registered_models(max_results=1)
        return client

    def start(
        self,
        *,
        experiment: str,
        name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        datasets: Sequence[DatasetRef],
        sources: Mapping[str, str] | None = None,
        run_id: str | None = None,
        folder: str = "",
        system_metrics: bool = True,
        links: Mapping[str, str | None] | None = None,
    ) -> TrainingRun:
        """Begin a run, or go on with one; a TrackingError: MLflow could not be reached, or there is no such run.

        Args:
            params: may be nested; of a run that goes on, a value that has changed since becomes the tag
                `changed.<param>`, because MLflow's params are for ever.
            tags: `arm` labels the run's curve among others; `registered_model` names the model that the best
                checkpoint is registered as; `dataset_digest` says which runs are comparable (default: the digest of
                the dataset for training).
            datasets: what went in; checkpoints are measured on the one whose context is `dev`.
            sources: runs that this one rests on, by what they gave it: tags `run.<what>`, and links in the description.
            run_id: the run to go on with, e.g. after a failure.
            folder: the job folder, a path or URL; checkpoints in events are relative to it.
            system_metrics: whether the machine is sampled until `finish`.
            links: words -> the address of a page that shows more, for the description; None: there is none.
        """
        digests = [("dataset_digest", d.digest) for d in datasets if d.context == "train"]
        all_tags, flat = {**dict(digests[:1]), **tags}, flatten(params)
        with as_tracking_error(f"starting {name}"):
            if run_id is None:
                run = self.client.create_run(self._experiment(experiment), run_name=name)
            else:
                self.client.update_run(run_id, status="RUNNING", name=name)
                run = self.client.get_run(run_id)
            all_tags |= self._linked(sources or {}, links or {})
            known = run.data.params
            all_tags |= {f"changed.{k}": v for k, v in flat.items() if known.get(k, v) != v}
            new = [Param(k, v) for k, v in flat.items() if k not in known]
            labels = [RunTag(k, v[:MAX_TAG_VAL_LENGTH]) for k, v in all_tags.items()]
            self.client.log_batch(run.info.run_id, params=new, tags=labels, synchronous=True)
            inputs = [_dataset_input(dataset) for dataset in datasets]
            try:
                self.client.log_inputs(run.info.run_id, inputs)
            except MlflowException:  # another run has added the same dataset meanwhile: now MLflow finds it
                self.client.log_inputs(run.info.run_id, inputs)
            started = TrainingRun(self.client, run.info.run_id, folder=folder)
            if system_metrics:
                started.sample_machine()  # last: its thread can be stopped only through the run
        return started

    def find(self, experiment: str, tags: Mapping[str, str]) -> str | None:
        """Return the id of the newest finished run of an experiment that has these tags; None if there is none."""
        with as_tracking_error(f"looking into {experiment}"):
            found = self.client.get_experiment_by_name(experiment)
            if found is None:
                return None
            among = " and ".join([*(f"tags.`{k}` = '{v}'" for k, v in tags.items()), "attributes.status = 'FINISHED'"])
            newest = ["attributes.start_time DESC"]
            runs = self.client.search_runs([found.experiment_id], among, max_results=1, order_by=newest)
        return str(runs[0].info.run_id) if runs else None

    def params(self, sources: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
        """Return params of those runs that are there, of the last where they differ; names also mean `name.<key>`."""
        found: dict[str, str] = {}
        with as_tracking_error("reading params"):
            for run in filter(None, map(self._run, sources.values())):
                found |= {name: value for name, value in run.data.params.items() if name.partition(".")[0] in names}
        return found

    def _run(self, run_id: str) -> Run | None:
        try:
            return self.client.get_run(run_id)
        except MlflowException as exc:
            if exc.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None

    def _linked(self, sources: Mapping[str, str], links: Mapping[str, str | None]) -> dict[str, str]:
        lines = [
            f"- {what}: [{run.data.tags.get(MLFLOW_RUN_NAME, run_id)}]({page(str(run.info.experiment_id), run_id)})"
            for what, run_id in sources.items()
            if (run := self._run(run_id)) is not None
        ]
        parts = ["\n".join(["Rests on", "", *lines])] if lines else []
        parts += [f"[{words}]({address})" for words, address in links.items() if address]
        note = {MLFLOW_RUN_NOTE: "\n\n".join(parts)} if parts else {}
        return {f"run.{what}": run_id for what, run_id in sources.items()} | note

    def _experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            if self.artifacts is None and not self.uri.startswith("http"):
                raise TrackingError("this database names no place for artifacts: put `mlflow server` in front of it")
            try:
                where = f"{self.artifacts}/{safe_name(name)}" if self.artifacts else None
                return self.client.create_experiment(name, artifact_location=where, tags=_SHOWS_RUNS)
            except MlflowException as exc:  # another process was faster
                if exc.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = self.client.get_experiment_by_name(name)
        if found is None or found.lifecycle_stage != "active":
            raise TrackingError(f"the MLflow experiment {name!r} was deleted: restore it, or give another name")
        return str(found.experiment_id)


def _make_database(path: Path) -> None:
    new = path.with_name(f"{path.name}.new")
    with as_tracking_error("making its database"):
        for leftover in path.parent.glob(f"{glob.escape(new.name)}*"):  # of a killed process, with SQLite's own files
            leftover.unlink(missing_ok=True)
        make_private(new)
        template = cache_folder() / f"mlflow-{VERSION}.db"
        if not _copied(template, new):
            engine = create_engine(sqlite_url(new))
            try:
                _initialize_tables(engine)  # type: ignore[no-untyped-call]
            finally:
                engine.dispose()
            with contextlib.suppress(OSError):
                template.parent.mkdir(parents=True, exist_ok=True)
                put_local(template, new.read_bytes())
        new.replace(path)


def _copied(template: Path, new: Path) -> bool:
    """Return whether empty tables, which MLflow takes seconds to make, could be copied whole."""
    with contextlib.suppress(OSError, sqlite3.Error):
        shutil.copyfile(template, new)
        with contextlib.closing(sqlite3.connect(new)) as copy:
            if copy.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]:
                return True
    new.write_bytes(b"")
    return False


def _dataset_input(ref: DatasetRef) -> DatasetInput:
    """What MLflow's `MetaDataset` would leave, and the rows: its constructor takes no profile and few kinds of URL."""
    dataset = Dataset(
        ref.name,
        ref.digest[:MAX_DATASET_DIGEST_SIZE],
        urlsplit(ref.source).scheme or "local",
        json.dumps({"uri": ref.source}),
        profile=json.dumps({"num_rows": ref.rows}),
    )
    return DatasetInput(dataset, [InputTag(MLFLOW_DATASET_CONTEXT, ref.context)])
