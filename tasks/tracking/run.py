"""One MLflow run of any flow: its metrics, tags, figures and end, and system metrics of the machine."""

from __future__ import annotations

import json
import math
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS
from mlflow.utils.validation import MAX_METRICS_PER_BATCH
from sqlalchemy.exc import SQLAlchemyError

from tasks.settings import shown_url
from toolformer_core.errors import ToolformerError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tasks.tracking.figures import Point

Status = Literal["FINISHED", "FAILED", "KILLED"]


class TrackingError(ToolformerError):
    """MLflow could not be reached, or refused a request; nothing is lost, as the same events can be sent again."""


@contextmanager
def as_tracking_error(doing: str) -> Iterator[None]:
    """Raise errors of MLflow and of its files as `TrackingError`, with a message of one line."""
    try:
        yield
    except (MlflowException, OSError, SQLAlchemyError) as exc:  # of artifact files, or of a database
        message = next(iter(str(exc).strip().splitlines()), type(exc).__name__)
        raise TrackingError(f"MLflow, {doing}: {shown_url(message)}") from exc


class TrackedRun:
    """One MLflow run, open until `finish` or the end of a `with` block, with what every flow needs."""

    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self.client = client
        self.run_id = run_id
        self._monitor: SystemMetricsMonitor | None = None

    @cached_property
    def experiment_id(self) -> str:
        with as_tracking_error("finding the run"):
            return str(self.client.get_run(self.run_id).info.experiment_id)

    @property
    def address(self) -> str | None:
        """The run's address for a browser; None if no tracking server is set."""
        uri = str(self.client.tracking_uri)
        return f"{uri.rstrip('/')}/{page(self.experiment_id, self.run_id)}" if uri.startswith("http") else None

    @property
    def runs_view(self) -> str:
        """How to open the table of the experiment's runs: its address, after a command if no tracking server is set."""
        uri, table = str(self.client.tracking_uri), f"{page(self.experiment_id)}?workflowType=machine_learning"
        if uri.startswith("http"):
            return f"{uri.rstrip('/')}/{table}"
        command = shlex.join(["mlflow", "ui", "--backend-store-uri", shown_url(uri)])
        return f"{command}, then http://127.0.0.1:5000/{table}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.finish("FINISHED" if kind is None else "FAILED")

    def sample_machine(self) -> None:
        """Sample CPU, memory, disk, network and GPUs of this machine in a thread, until `finish`."""
        uri = self.client.tracking_uri
        self._monitor = SystemMetricsMonitor(self.run_id, resume_logging=True, tracking_uri=uri)  # type: ignore[no-untyped-call]
        self._monitor.start()  # type: ignore[no-untyped-call]

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        now = int(time.time() * 1000)
        self.log([[Metric(k, float(v), now, step) for k, v in values.items()]])

    def figure(self, figure: Figure, path: str) -> None:
        with as_tracking_error(f"keeping {path}"):
            self.client.log_figure(self.run_id, figure, path)

    def table(self, rows: Sequence[Mapping[str, Any]], path: str) -> None:
        """Store flat rows as a table for MLflow's page; what a row lacks, and what is not finite, become null."""
        columns = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[row.get(name) for name in columns] for row in rows]
        data = [[None if isinstance(v, float) and not math.isfinite(v) else v for v in row] for row in cells]
        with as_tracking_error(f"keeping {path}"):
            self.client.log_dict(self.run_id, {"columns": columns, "data": data}, path)
            known = json.loads(self.client.get_run(self.run_id).data.tags.get(MLFLOW_LOGGED_ARTIFACTS, "[]"))
            if path not in [one["path"] for one in known]:
                known.append({"path": path, "type": "table"})
                self.client.set_tag(self.run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps(known))

    def text(self, text: str, path: str) -> None:
        with as_tracking_error(f"keeping {path}"):
            self.client.log_text(self.run_id, text, path)

    def history(self, metric: str, run_id: str | None = None) -> list[Point]:
        """Return a metric's (step, value) pairs by step, of this run or another."""
        with as_tracking_error(f"reading {metric}"):
            metrics = self.client.get_metric_history(run_id or self.run_id, metric)
        return sorted((m.step, m.value) for m in metrics)

    def finish(self, status: Status) -> None:
        if self._monitor is not None:
            self._monitor.finish()  # type: ignore[no-untyped-call]
            self._monitor = None
        with as_tracking_error("closing the run"):
            self.client.set_terminated(self.run_id, status)

    def log(self, groups: Iterable[Sequence[Metric]]) -> None:
        """Log metrics in batches that do not split a group, so that a resumed run never finds half a step."""
        batch: list[Metric] = []
        with as_tracking_error("logging metrics"):
            for group in (*groups, None):  # None: the end
                if batch and (group is None or len(batch) + len(group) > MAX_METRICS_PER_BATCH):
                    self.client.log_batch(self.run_id, metrics=batch, synchronous=True)
                    batch = []
                batch.extend(group or ())


def page(experiment_id: str, run_id: str = "") -> str:
    """Return where a run, or the table of all of an experiment, stands on MLflow's own pages, relative to them."""
    return f"#/experiments/{experiment_id}/runs/{run_id}".rstrip("/")


def safe_name(name: str) -> str:
    """A name for a folder or a registered model, from one that may hold slashes, colons or quotes."""
    return re.sub(r"[^\w.-]+", "-", name)
