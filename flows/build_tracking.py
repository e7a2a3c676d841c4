"""One MLflow run for each way in which a version of C* was made: thresholds, what it was made of, yields, best calls.

A training's run points at the run of its dataset, so a checkpoint leads to its thresholds. To bring MLflow up takes
longer than a small build, so a build by itself does not: where MLflow is in use (MLFLOW_TRACKING_URI is set, or the
data folder has its database) the run is made when the build ends, and else by the first training on the version. All
figures come from the warehouse. Of a version that is no longer the current one there are only its card and its counts.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tasks.settings import seconds, tracking_uri
from toolformer_core.errors import UsageError
from warehouse.analyst_views import with_column
from warehouse.commits import Dataset
from warehouse.lock import FileLock
from warehouse.queries import GainBin, gain_histogram, rows_of, samples, stats
from warehouse.snapshot import SNAPSHOT
from warehouse.store import Store

__all__ = ["KIND", "in_use", "track_build", "tracked_build"]

_log = logging.getLogger(__name__)

KIND = "build"  # the tag `kind` of these runs
_CALLS_SHOWN = 100  # in the table of the most helpful calls, with their text
_CURRENT = f"""
SELECT count(DISTINCT df.path) AS files FROM {with_column("dataset_files", "made")} AS df
JOIN facts.files AS f USING (path, digest)
JOIN facts.current USING (commit_id) WHERE df.name = $name AND df.version = $version AND df.made = $made"""
_COSTS = """
SELECT stage, sum(seconds) AS seconds, sum((counters->>'lm_tokens')::DOUBLE) AS lm_tokens
FROM shards WHERE "current" AND stage <> 'assemble' GROUP BY stage"""


def in_use(uri: str) -> bool:
    """Return whether MLflow has been brought up there; asked without importing it."""
    return not uri.startswith("sqlite:///") or Path(uri.removeprefix("sqlite:///").partition("?")[0]).exists()


def tracked_build(store: Store, data: str, dataset: Dataset) -> tuple[str, str | None] | None:
    """Make the run of a version that a build has just recorded, where MLflow is in use. A failure is said, no more.

    Args:
        data: the data folder or URL, as it was given.

    Returns:
        The run's id and its address, if a server shows it; None if there is no run.
    """
    try:
        uri = tracking_uri(data)
    except UsageError:  # data at a URL, and no server named
        return None
    if not in_use(uri):
        return None
    from tasks.tracking import Tracked, Tracking, TrackingError

    try:
        tracking = Tracking(uri)
        run_id = track_build(tracking, store, data, dataset)
        return run_id, Tracked(tracking.client, run_id).address
    except TrackingError as exc:
        _log.warning("the build is done, but MLflow does not know: %s", exc)
        return None


def track_build(tracking: Any, store: Store, data: str, dataset: Dataset) -> str:
    """Return the id of the run of a version's record, made if it is not there.

    Raises:
        TrackingError: MLflow could not be reached.
        LockHeldError: another process makes one, and still did after $TOOLFORMER_WAIT_S.
    """
    from tasks.tracking import project

    label = f"{dataset.name}@{dataset.version}"
    with FileLock(store.beside / "tracking.lock", wait_s=seconds("wait")):
        own = {"kind": KIND, "dataset": label, "flow_run": dataset.run_id}
        known: str | None = tracking.find(project(data), own)
        return known or _make(tracking, store, data, dataset, label)


def _make(tracking: Any, store: Store, data: str, dataset: Dataset, label: str) -> str:
    from flows.versions import card_of
    from tasks.tracking import DatasetRef, project

    snapshot = store.beside / SNAPSHOT
    run = next(iter(store.runs([dataset.run_id])), None)
    current = _is_current(snapshot, dataset)
    rows, digest = _corpus(store, dataset)
    started = tracking.start(
        experiment=project(data),
        name=f"build {label}",
        params={
            "dataset": label,
            "dataset_digest": dataset.version,
            "tau_f": dataset.thresholds,
            "model": dataset.model,
            "corpus": dataset.corpus,
            "corpus_digest": digest,
            "licence": dataset.licence,
            "build": {k: v for k, v in run.parameters.items() if v is not None and k != "tau_f"} if run else {},
        },
        tags={"kind": KIND, "dataset": label, "dataset_digest": dataset.version, "flow_run": dataset.run_id},
        datasets=[DatasetRef(Path(dataset.corpus).name or dataset.corpus, digest, dataset.corpus, "corpus", rows)],
        system_metrics=False,
    )
    try:
        started.metrics(
            {"examples": sum(f.rows for f in dataset.files)} | {f"examples/{t}": n for t, n in dataset.counts.items()}
        )
        started.text(card_of(store, dataset), "card.md")
        if current:
            _figures(started, snapshot, dataset)
    except BaseException:
        started.finish("FAILED")
        raise
    started.finish("FINISHED")
    return str(started.run_id)


def _is_current(snapshot: Path, dataset: Dataset) -> bool:
    """Whether the snapshot's figures are those of this version."""
    if not snapshot.is_file():
        return False
    own = {"name": dataset.name, "version": dataset.version, "made": dataset.made}
    found = rows_of(snapshot, _CURRENT, own)
    return bool(dataset.files) and found[0]["files"] == len({file.path for file in dataset.files})


def _corpus(store: Store, dataset: Dataset) -> tuple[int, str]:
    """Return how many documents the version's run has read, and the corpus's digest: 0 and "" if no commit tells."""
    for run in store.runs([dataset.run_id]):
        for key in run.commits:
            if key.stage == "ingest" and (commit := store.recorded(key)) is not None:
                return sum(b.kept for b in commit.balances), commit.parts.get("inputs", "")
    return 0, ""


def _figures(run: Any, snapshot: Path, dataset: Dataset) -> None:
    """What only the current version has: yields, gains, costs and calls."""
    from tasks.tracking import histograms

    found = stats(snapshot)
    metrics = {f"examples_at_{y.tau_f:g}/{y.tool}": float(y.examples) for y in found.yields}
    metrics |= {f"calls_at_{y.tau_f:g}/{y.tool}": float(y.calls) for y in found.yields}
    metrics |= {f"kept/{b.stage}/{b.tool or 'all'}/{b.unit}": float(b.kept) for b in found.balances}
    for cost in rows_of(snapshot, _COSTS):
        metrics |= {
            f"{name}/{cost['stage']}": cost[name] for name in ("seconds", "lm_tokens") if cost[name] is not None
        }
    run.metrics(metrics)
    run.table([asdict(y) for y in found.yields], "tables/yields.json")
    run.table([asdict(one) for one in samples(snapshot, _CALLS_SHOWN)], "tables/best_calls.json")
    bins: dict[str, list[GainBin]] = defaultdict(list)
    for one in gain_histogram(snapshot):
        bins[one.tool].append(one)
    if bins:
        counts = {tool: [(one.label, one.calls) for one in own] for tool, own in bins.items()}
        marks = {
            tool: sum(1 for one in bins[tool] if one.low is None or one.low < tau_f)
            for tool, tau_f in dataset.thresholds.items()
            if tool in bins
        }
        title = "Scored calls by gain (blue: at or above tau_f)"
        run.figure(histograms(title, "L- minus L+ (nats)", counts, marks), "figures/gains.png")
