"""One MLflow run for each record of a version of C*: the build makes it at its end, else the first training on it."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from flows.build_dataset.record import BuildRecord
from flows.build_dataset.versions import card_of
from tasks.settings import seconds, tracking_uri
from tasks.stages import BUILD_STAGES
from tasks.viewer_links import version_page
from toolformer_core.errors import UsageError
from warehouse.commits import Dataset
from warehouse.errors import LockHeldError
from warehouse.files.lock import FileLock
from warehouse.queries import stats
from warehouse.queries.calls import GainBin, best_calls, gain_histogram
from warehouse.queries.rows import low_memory, rows_of
from warehouse.snapshot.publish import SNAPSHOT
from warehouse.snapshot.views import queries_beside
from warehouse.store import Store

_log = logging.getLogger(__name__)

SAMPLED_BY = ("tau_s", "top_k", "samples")
CALLS_FROM = ("dataset", "tau_f", *SAMPLED_BY)  # params that the runs of what was trained on a version share
_CALLS_SHOWN = 100  # in the table of the most helpful calls, with their text
_SQL = queries_beside(__file__)


def try_to_track_build(store: Store, data: str, dataset: Dataset) -> Any:
    """Return the `TrackedRun` of a version, made if it does not exist; None if MLflow is unnamed or out of reach."""
    try:
        uri = tracking_uri(data)
    except UsageError:  # data at a URL, and no server named
        return None
    from tasks.tracking import TrackedRun, Tracking, TrackingError

    try:
        tracking = Tracking(uri)
        return TrackedRun(tracking.client, track_build(tracking, store, data, dataset))
    except (TrackingError, LockHeldError) as exc:
        _log.warning("the build is done, but not recorded in MLflow: %s", exc)
        return None


def track_build(tracking: Any, store: Store, data: str, dataset: Dataset) -> str:
    """Return the id of the run of a version's record; make the run if it does not exist."""
    from tasks.tracking import DatasetRef, project

    label, snapshot = f"{dataset.name}@{dataset.version}", store.local_folder / SNAPSHOT
    tags = {"kind": "build", "dataset": label, "flow_run": dataset.run_id}
    with FileLock(store.local_folder / "tracking.lock", wait_s=seconds("wait")):
        if (known := tracking.find(project(data), tags)) is not None:
            return str(known)
        record = BuildRecord.of_run(store, dataset.run_id)
        rows, digest = _corpus(store, dataset)
        is_current = _is_current(snapshot, dataset)  # before there is a run: it reads the snapshot
        run = tracking.start(
            experiment=project(data),
            name=f"build {label}",
            params={
                "dataset": label,
                "dataset_digest": dataset.version,
                **call_settings(store, dataset),
                "model": dataset.model,
                "corpus": dataset.corpus,
                "corpus_digest": digest,
                "licence": dataset.licence,
                "build": {k: v for k, v in record.requested("tau_f", *SAMPLED_BY).items() if v is not None},
            },
            tags=tags | {"dataset_digest": dataset.version},
            datasets=[DatasetRef(Path(dataset.corpus).name or dataset.corpus, digest, dataset.corpus, "corpus", rows)],
            system_metrics=False,
            links={"Its page in the viewer": version_page(label)},
        )
        with run:
            metrics: dict[str, float | None] = {"examples": sum(f.rows for f in dataset.files)}
            metrics |= {f"examples/{tool}": n for tool, n in dataset.counts.items()}
            metrics |= {f"promised_rate/{one.tool}": one.promised for one in record.found}
            metrics |= {f"estimated_rate/{one.tool}": one.at.rate for one in record.found}
            run.metrics({name: value for name, value in metrics.items() if value is not None})
            run.text(card_of(store, dataset), "card.md")
            if is_current:
                with low_memory():
                    _figures(run, snapshot, dataset)
        return str(run.run_id)


def call_settings(store: Store, dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Return a version's resolved thresholds, k (`top_k`) and m (`samples`), each by tool, as its commits have them."""
    settings: dict[str, dict[str, Any]] = {"tau_f": dict(dataset.thresholds), **{name: {} for name in SAMPLED_BY}}
    for run in store.runs([dataset.run_id]):
        tools = {key.tool: key for key in run.commits if key.stage == "sample"}  # one shard of each is enough
        for tool, key in tools.items():
            if (commit := store.read_commit(key)) is not None:
                for name in SAMPLED_BY:
                    settings[name][tool] = commit.config[name]
    return settings


def _is_current(snapshot: Path, dataset: Dataset) -> bool:
    if not snapshot.is_file():
        return False
    values = {"name": dataset.name, "version": dataset.version, "made": dataset.made}
    rows = rows_of(snapshot, _SQL["current_files"], values)
    return bool(dataset.files) and rows[0]["files"] == len({file.path for file in dataset.files})


def _corpus(store: Store, dataset: Dataset) -> tuple[int, str]:
    """Return how many documents the version's run read, and the corpus's digest; 0 and "" if no commit has them."""
    keys = (key for run in store.runs([dataset.run_id]) for key in run.commits if key.stage == "ingest")
    commit = next(filter(None, map(store.read_commit, keys)), None)
    return (0, "") if commit is None else (sum(b.kept for b in commit.balances), commit.parts.get("inputs", ""))


def _figures(run: Any, snapshot: Path, dataset: Dataset) -> None:
    found = stats(snapshot)
    metrics = {f"examples_at_{y.tau_f:g}/{y.tool}": float(y.examples) for y in found.yields}
    metrics |= {f"calls_at_{y.tau_f:g}/{y.tool}": float(y.calls) for y in found.yields}
    own = {stage.name for stage in BUILD_STAGES}  # an evaluation of the same folder has others
    balances = [b for b in found.balances if b.stage in own]
    metrics |= {f"kept/{b.stage}/{b.tool or 'all'}/{b.unit}": float(b.kept) for b in balances}
    costs = [row for row in rows_of(snapshot, _SQL["costs"]) if row["stage"] in own]
    for name in ("seconds", "lm_tokens"):
        metrics |= {f"{name}/{row['stage']}": row[name] for row in costs if row[name] is not None}
    run.metrics(metrics)
    run.table([asdict(y) for y in found.yields], "tables/yields.json")
    run.table([asdict(one) for one in best_calls(snapshot, _CALLS_SHOWN)], "tables/best_calls.json")
    if gains := gain_histogram(snapshot):
        run.figure(gains_figure(gains, dataset.thresholds), "figures/gains.png")


def gains_figure(gains: Iterable[GainBin], thresholds: Mapping[str, float]) -> Any:
    """Draw a histogram of the scored calls of each tool by their gain, with its threshold."""
    from tasks.tracking.figures import histograms

    bins = {tool: list(own) for tool, own in groupby(gains, key=lambda one: one.tool)}
    counts = {tool: [(one.label, one.calls) for one in own] for tool, own in bins.items()}
    marks = {
        tool: sum(1 for one in bins[tool] if one.low is None or one.low < tau_f)
        for tool, tau_f in thresholds.items()
        if tool in bins
    }
    return histograms("Scored calls by gain (blue: at or above tau_f)", "L- minus L+ (nats)", counts, marks)
