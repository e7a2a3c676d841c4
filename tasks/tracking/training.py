"""The MLflow run of one training: turns the events of its rank 0 into curves, tags, checkpoints and the candidate.

Of each kind of event only steps after the last known one count: one that comes twice, or is repeated, changes nothing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Metric, RunTag
from mlflow.exceptions import MlflowException
from mlflow.models.utils import get_external_mlflow_model_spec
from mlflow.utils import mlflow_tags
from mlflow.utils.validation import MAX_TAG_VAL_LENGTH

from tasks.tracking.run import TrackedRun, as_tracking_error, page, safe_name

if TYPE_CHECKING:
    from tasks.tracking.figures import Point

Event = Mapping[str, Any]

# Of each event, its figures and the metrics they become. The first is in every event of its kind.
_METRICS: Mapping[str, Mapping[str, str]] = {
    "step": {
        name: name for name in ("loss", "learning_rate", "grad_norm", "tokens", "tokens_per_second", "memory_bytes")
    },
    "evaluated": {"loss": "dev_loss", "perplexity": "dev_perplexity"},
    "finished": {"best_step": "best_step", "best_perplexity": "best_dev_perplexity"},
}
_ENDINGS = ("reason", "message", "failed_step", "stopped_step")  # tags that a new attempt removes

CHECKPOINT = "finetune-checkpoint"  # the name of every checkpoint's LoggedModel
CANDIDATE = "candidate"  # the alias of the best checkpoint
_ARMS_SHOWN = 10  # curves in the figure of arms; more cannot be distinguished


class TrainingRun(TrackedRun):
    def __init__(self, client: MlflowClient, run_id: str, *, folder: str = "") -> None:
        super().__init__(client, run_id)
        self.folder = folder
        run = self.client.get_run(run_id)
        self._params: dict[str, str] = run.data.params
        self._tags: dict[str, str] = run.data.tags
        inputs = [(i.dataset, tag) for i in (run.inputs.dataset_inputs if run.inputs else ()) for tag in i.tags]
        self._dev = next(
            (d for d, tag in inputs if (tag.key, tag.value) == (mlflow_tags.MLFLOW_DATASET_CONTEXT, "dev")), None
        )
        self._outputs = {output.model_id for output in run.outputs.model_outputs} if run.outputs else set()
        seen = {kind: self.history(next(iter(names.values()))) for kind, names in _METRICS.items()}
        self._last = {kind: max((step for step, _ in points), default=-1) for kind, points in seen.items()}
        dev = self.client.get_metric_history(run_id, "dev_perplexity")
        self._measured = {m.step: (m.timestamp, m.value) for m in dev}
        found = self.client.search_logged_models([self.experiment_id], f"source_run_id = '{run_id}'")
        self._models: dict[str, LoggedModel] = {m.tags.get("checkpoint", ""): m for m in found}
        self._registered = safe_name(self._tags.get("registered_model", ""))
        ours = f"name = '{self._registered}' and run_id = '{run_id}'"
        versions = self.client.search_model_versions(ours) if self._registered else ()
        self._versions = {v.tags.get("checkpoint", ""): int(v.version) for v in versions}

    def record(self, events: Sequence[Event]) -> None:
        """Record events in the order of the file; events recorded before change nothing."""
        points = list(_new_points(events, self._last))
        self.log([[Metric(k, v, _ms(e), e["step"]) for k, v in figures.items()] for e, figures in points])
        for event, figures in points:
            self._last[event["event"]] = event["step"]
            if "dev_perplexity" in figures:
                self._measured[event["step"]] = (_ms(event), figures["dev_perplexity"])
        with as_tracking_error("recording a checkpoint"):
            for event in events:
                if event["event"] == "saved" and event["model"] is not None:  # not one to go on from only
                    self._checkpoint(event)
        with as_tracking_error("setting tags"):
            self._label(_tags_of(events))

    def _label(self, tags: Mapping[str, str | None]) -> None:
        wanted = {k: v if v is None else v[:MAX_TAG_VAL_LENGTH] for k, v in tags.items()}
        changed = {k: v for k, v in wanted.items() if self._tags.get(k) != v}
        set_ = [RunTag(k, v) for k, v in changed.items() if v is not None]
        if set_:
            self.client.log_batch(self.run_id, tags=set_, synchronous=True)
        for key in (k for k, v in changed.items() if v is None):
            self.client.delete_tag(self.run_id, key)
        self._tags = {k: v for k, v in (self._tags | changed).items() if v is not None}

    def _checkpoint(self, event: Event) -> None:
        """Create the checkpoint's LoggedModel, or complete one that an earlier process left unfinished."""
        where, step = event["checkpoint"], event["step"]
        model = self._models.get(where)
        if model is None:
            tags = {"checkpoint": where, "folder": self._located(event["model"])}
            tags |= {mlflow_tags.MLFLOW_MODEL_IS_EXTERNAL: "true", mlflow_tags.MLFLOW_RUN_NOTE: self._note()}
            params = self._params | {"step": str(step)}
            about: dict[str, Any] = {"source_run_id": self.run_id, "params": params, "tags": tags}
            model = self.client.create_logged_model(self.experiment_id, CHECKPOINT, model_type="finetune", **about)
        if model.status != LoggedModelStatus.READY:
            if event["perplexity"] is not None:
                # At the time and value of the evaluation itself, so that the run's curve gets no second point.
                at, value = self._measured.get(step, (_ms(event), float(event["perplexity"])))
                name, digest = (self._dev.name, self._dev.digest) if self._dev else (None, None)
                point = Metric("dev_perplexity", value, at, step, model.model_id, name, digest, self.run_id)
                self.client.log_batch(self.run_id, metrics=[point], synchronous=True)
            with tempfile.TemporaryDirectory() as scratch:  # a card without weights: MLflow registers no model without
                get_external_mlflow_model_spec(model).save(f"{scratch}/MLmodel")
                self.client.log_model_artifacts(model.model_id, scratch)
            if model.model_id not in self._outputs:
                self.client.log_outputs(self.run_id, [LoggedModelOutput(model.model_id, step)])
                self._outputs.add(model.model_id)
            model = self.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        self._models[where] = model
        if event["best"] and self._registered:
            self._register(model, where)

    def _register(self, model: LoggedModel, where: str) -> None:
        """Register a model version once, and move the alias to it unless the alias is at a newer one."""
        try:
            self.client.create_registered_model(self._registered)
        except MlflowException as exc:
            if exc.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        if where not in self._versions:
            folder = model.tags["folder"]
            # A server refuses folders it cannot see into; the address then stands in the tag alone.
            unseen = self.client.tracking_uri.startswith("http") and folder.startswith("file:")
            version = self.client.create_model_version(
                self._registered,
                f"models:/{model.model_id}" if unseen else folder,
                self.run_id,
                tags={"checkpoint": where, "folder": folder, "arm": self._tags.get("arm", "")},
                description=self._note(),
                model_id=model.model_id,
                await_creation_for=0,
            )
            self._versions[where] = int(version.version)
        number = self._versions[where]
        link = json.dumps([{"name": self._registered, "version": str(number)}])
        self.client.set_logged_model_tags(model.model_id, {mlflow_tags.MLFLOW_MODEL_VERSIONS: link})
        aliases = self.client.get_registered_model(self._registered).aliases
        if int(aliases.get(CANDIDATE, 0)) < number:
            self.client.set_registered_model_alias(self._registered, CANDIDATE, str(number))

    def _note(self) -> str:
        name = self._tags.get(mlflow_tags.MLFLOW_RUN_NAME, self.run_id)
        training = f"Trained by [{name}]({page(self.experiment_id, self.run_id)})"
        return "\n\n".join(filter(None, [training, self._tags.get(mlflow_tags.MLFLOW_RUN_NOTE)]))

    def _located(self, path: str) -> str:
        if "://" in self.folder:
            return f"{self.folder.rstrip('/')}/{path}"
        return (Path(self.folder).absolute() / path).as_uri()

    def figures(self) -> None:
        """Store the run's curves as artifacts, and those of all arms: finished runs with the same `dataset_digest`."""
        from tasks.tracking.figures import curves

        label = self._curve_name(self._tags)
        loss, dev = {label: self.history("loss")}, {label: self.history("dev_perplexity")}
        self.figure(curves("Training loss", "loss (nats per token)", loss), "figures/loss.png")
        self.figure(curves("Perplexity on the development set", "perplexity", dev), "figures/dev_perplexity.png")
        self.figure(curves("Dev perplexity of arms", "perplexity", self._arms()), "figures/dev_perplexity_of_arms.png")

    def _arms(self) -> dict[str, list[Point]]:
        arms = {self._curve_name(self._tags): self.history("dev_perplexity")}
        if digest := self._tags.get("dataset_digest"):
            among = f"tags.dataset_digest = '{digest}' and tags.arm != '' and attributes.status = 'FINISHED'"
            how: dict[str, Any] = {"max_results": _ARMS_SHOWN, "order_by": ["attributes.start_time DESC"]}
            with as_tracking_error("looking for other arms"):
                found = self.client.search_runs([self.experiment_id], among, **how)
            for run in found:
                if run.info.run_id != self.run_id:
                    label = self._curve_name(run.data.tags)
                    label = f"{label} ({run.info.run_id[:6]})" if label in arms else label
                    arms[label] = self.history("dev_perplexity", run.info.run_id)
        return {label: points for label, points in arms.items() if points}

    @staticmethod
    def _curve_name(tags: Mapping[str, str]) -> str:
        return " · ".join(filter(None, (tags.get("arm"), tags.get(mlflow_tags.MLFLOW_RUN_NAME))))


def _ms(event: Event) -> int:
    return int(event["t"] * 1000)


def _new_points(events: Iterable[Event], last: Mapping[str, int]) -> Iterator[tuple[Event, dict[str, float]]]:
    reached = dict(last)
    for event in events:
        kind = event["event"]
        if kind not in _METRICS or event["step"] <= reached.get(kind, -1):
            continue
        reached[kind] = event["step"]
        figures = {metric: event.get(name) for name, metric in _METRICS[kind].items()}
        yield event, {metric: float(value) for metric, value in figures.items() if value is not None}


def _tags_of(events: Iterable[Event]) -> dict[str, str | None]:
    """Return the run's tags, each from the last event that sets it; None removes one of an earlier attempt's end."""
    tags: dict[str, str | None] = {}
    for event in events:
        match event["event"]:
            case "started":
                tags |= dict.fromkeys(_ENDINGS)
                tags |= {k: str(v) for k, v in event.items() if k not in ("t", "event")}
            case "failed":
                tags |= {"reason": event["reason"], "message": event["message"], "failed_step": str(event["step"])}
            case "stopped":
                tags["stopped_step"] = str(event["step"])
    return tags
