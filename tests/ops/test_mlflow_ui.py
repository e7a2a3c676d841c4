"""MLflow's own pages, in a browser, by the code that takes the documentation's pictures."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from types import ModuleType

import pytest
from mlflow import MlflowClient

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:sqlalchemy.exc.SADeprecationWarning")


@pytest.fixture(scope="module")
def served(screenshots: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """An empty database, and the address of a server in front of it."""
    folder = tmp_path_factory.mktemp("served")
    uri = f"sqlite:///{folder}/mlflow.db"
    with screenshots.mlflow_server(uri, folder / "server.log") as address:
        yield uri, address


@pytest.mark.slow
def test_two_runs_are_compared_by_threshold_and_perplexity(screenshots, served, tmp_path):
    pytest.importorskip("playwright", reason="the package playwright is not installed")
    if screenshots.chromium() is None:
        pytest.skip("there is no chromium on PATH (Debian's package `chromium`)")
    uri, address = served
    run_ids = screenshots.synthetic_runs(uri, tmp_path)
    assert sorted(screenshots.newest_runs(uri)) == sorted(run_ids)
    texts = screenshots.expected_texts(uri, run_ids)
    # perplexity ends at 12 - gain (1 - e^-4): 12 - 3.1 * .98168 = 8.957, 12 - 3.9 * .98168 = 8.171
    assert texts == [
        "tau_f.calculator\t0.25\t0.5",
        "tau_f.calendar\t0.5\t1.0",
        "tau_f.mt\t0.25\t0.5",
        "tau_f.qa\t0.5\t1.0",
        "dev_perplexity",
        "8.957",
        "8.171",
    ]
    experiment_id = MlflowClient(uri).get_run(run_ids[0]).info.experiment_id
    picture = tmp_path / "compare.png"
    text = screenshots.compare(address, experiment_id, run_ids, texts, picture)
    assert "Comparing 2 Runs" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 300_000
    figure = f"{address}/get-artifact?path=figures/dev_perplexity_of_arms.png&run_uuid={run_ids[1]}"
    with urllib.request.urlopen(figure, timeout=10) as answer:
        assert answer.read(4) == b"\x89PNG"


@pytest.mark.slow
def test_accuracy_is_plotted_against_the_threshold(screenshots, served, tmp_path):
    pytest.importorskip("playwright", reason="the package playwright is not installed")
    if screenshots.chromium() is None:
        pytest.skip("there is no chromium on PATH (Debian's package `chromium`)")
    uri, address = served
    run_ids = screenshots.synthetic_evaluations(uri)
    experiment_id = MlflowClient(uri).get_run(run_ids[0]).info.experiment_id
    picture = tmp_path / "thresholds.png"
    screenshots.coordinates(address, experiment_id, run_ids, ["tau_f.calculator", "accuracy/toolformer"], picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_runs_are_tracked_through_a_server(screenshots, served, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # as prepare_environment does
    uri, address = served
    _, run_id = screenshots.synthetic_runs(address, tmp_path)
    client = MlflowClient(uri)
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    # 40 steps; measured at 0, 10, 20, 30, 40, saved at the last four
    assert len(client.get_metric_history(run_id, "loss")) == 40
    assert len(client.get_metric_history(run_id, "dev_perplexity")) == 5
    models = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    assert [str(m.status) for m in models] == ["READY"] * 4
    version = client.get_model_version_by_alias("toolformer-synthetic", "candidate")
    assert version.run_id == run_id
    # a server refuses a folder it may not read as the source; the tag has it
    assert version.source.startswith("models:/m-")
    assert version.tags["folder"] == f"file://{tmp_path}/strict/checkpoints/step-000040/model"
    assert capfd.readouterr().out == ""
