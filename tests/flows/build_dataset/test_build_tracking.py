"""A version of C* in MLflow: thresholds, digests, yields, calls; made once, by whoever needs it first."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows.build_dataset import flow
from flows.build_dataset.tracking import track_build, try_to_track_build
from flows.export.find import find_dataset
from tasks.tracking import Tracking
from tests.support.small_builds import Built, small_build
from warehouse.commits import Dataset
from warehouse.queries import rows_of, stats, yield_by_threshold
from warehouse.store import Store


@pytest.fixture
def store(as_built: Path) -> Store:
    return Store(str(as_built))


@pytest.fixture
def tracking(store: Store, empty_database: Path) -> Tracking:
    shutil.copy(empty_database, Path(store.root) / "mlflow.db")
    return Tracking(f"sqlite:///{store.root}/mlflow.db")


@pytest.fixture
def dataset(store: Store) -> Dataset:
    return find_dataset(store, "cstar")


def table(client: MlflowClient, run_id: str, path: str) -> list[dict[str, Any]]:
    told = json.loads(Path(client.download_artifacts(run_id, path)).read_text(encoding="utf-8"))
    return [dict(zip(told["columns"], row, strict=True)) for row in told["data"]]


def test_the_run_holds_thresholds_digests_yields_and_calls(
    tracking: Tracking, store: Store, dataset: Dataset, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = stats(Path(store.root) / "warehouse.duckdb")
    evaluated = replace(found, balances=[*found.balances, replace(found.balances[0], stage="evaluate")])
    monkeypatch.setattr("flows.build_dataset.tracking.stats", lambda snapshot: evaluated)
    run_id = track_build(tracking, store, store.root, dataset)
    client = tracking.client
    run = client.get_run(run_id)
    assert (run.info.run_name, run.info.status) == (f"build cstar@{dataset.version}", "FINISHED")
    assert client.get_experiment(run.info.experiment_id).name == "data"  # the folder's name
    params = run.data.params
    assert [params[f"tau_f.{tool}"] for tool in ("calculator", "calendar")] == ["0.5", "0.2"]  # the paper's, the given
    # tau_s is the paper's by tool, k and m are those of the test's builds
    for tool, resolved in (("calculator", ["0.0", "3", "2"]), ("calendar", ["0.05", "3", "2"])):
        assert [params[f"{name}.{tool}"] for name in ("tau_s", "top_k", "samples")] == resolved
    assert params["model"] == "embedded"
    assert (run.data.tags["kind"], run.data.tags["dataset_digest"]) == ("build", dataset.version)
    (given,) = run.inputs.dataset_inputs
    assert (given.dataset.name, json.loads(given.dataset.profile)) == ("few.jsonl", {"num_rows": 16})
    assert params["corpus_digest"].startswith(given.dataset.digest)

    metrics, snapshot = run.data.metrics, Path(store.root) / "warehouse.duckdb"
    expected = {"examples": built[0].examples, **{f"examples/{tool}": n for tool, n in dataset.counts.items()}}
    expected |= {f"examples_at_{one.tau_f:g}/{one.tool}": one.examples for one in yield_by_threshold(snapshot)}
    assert expected.items() <= metrics.items()
    assert metrics["kept/ingest/all/rows"] == 16
    assert metrics["seconds/score"] > 0
    stages = {name.split("/")[1] for name in metrics if name.startswith(("kept/", "seconds/", "lm_tokens/"))}
    assert stages == {"ingest", "prefilter", "sample", "execute", "score", "assemble"}
    assert len(table(client, run_id, "tables/yields.json")) == 6  # two tools, three thresholds
    best = rows_of(snapshot, "SELECT max(gain) AS gain FROM best_calls")[0]["gain"]
    assert table(client, run_id, "tables/best_calls.json")[0]["gain"] == pytest.approx(best)
    assert {f.path for f in client.list_artifacts(run_id, "figures")} == {"figures/gains.png"}
    card = Path(client.download_artifacts(run_id, "card.md")).read_text(encoding="utf-8")
    assert card.startswith(f"# cstar@{dataset.version}\n")


def test_a_version_has_one_run(tracking: Tracking, store: Store, dataset: Dataset) -> None:
    first = track_build(tracking, store, store.root, dataset)
    assert track_build(tracking, store, store.root, dataset) == first
    assert try_to_track_build(store, store.root, dataset).run_id == first
    (experiment,) = [e for e in tracking.client.search_experiments() if e.name == "data"]
    assert len(tracking.client.search_runs([experiment.experiment_id])) == 1


def test_a_past_version_has_no_figures_of_another(tracking: Tracking, store: Store, dataset: Dataset) -> None:
    other = Dataset(
        "cstar", "0" * 16, (), {"calculator": 3}, {"calculator": 2.0}, "gone", "embedded", "c.jsonl", "2024-01-01"
    )
    run = tracking.client.get_run(track_build(tracking, store, store.root, other))
    assert run.data.metrics == {"examples": 0, "examples/calculator": 3}
    assert [f.path for f in tracking.client.list_artifacts(run.info.run_id)] == ["card.md"]


def test_a_build_makes_mlflows_first_run(as_built: Path, few_documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "try_to_track_build", try_to_track_build)  # not only where a test asks
    result = flow.run_build(small_build(few_documents, as_built))
    database = f"sqlite:///{as_built}/mlflow.db"
    run = MlflowClient(database, database).get_run(result.mlflow_run)
    assert (run.data.tags["kind"], run.info.status) == ("build", "FINISHED")
    page = f"http://127.0.0.1:5000/#/experiments/{run.info.experiment_id}/runs?workflowType=machine_learning"
    assert result.runs_view == f"mlflow ui --backend-store-uri {database}, then {page}"


def test_a_build_ends_well_without_mlflow(
    store: Store, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert try_to_track_build(store, "s3://bucket/c4", dataset) is None  # no database can lie there
    (Path(store.root) / "mlflow.db").write_text("no database\n")
    with caplog.at_level(logging.WARNING):
        assert try_to_track_build(store, store.root, dataset) is None
    assert "the build is done, but not recorded in MLflow: MLflow, opening sqlite store" in caplog.text
