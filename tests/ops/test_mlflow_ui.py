"""Runs that are tracked through a server, by the code that takes the documentation's pictures."""

from collections.abc import Iterator
from types import ModuleType

import pytest
from mlflow import MlflowClient


@pytest.fixture(scope="module")
def served(screenshots: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """An empty database, and the address of a server in front of it."""
    folder = tmp_path_factory.mktemp("served")
    uri = f"sqlite:///{folder}/mlflow.db"
    with screenshots.mlflow_server(uri, folder / "server.log") as address:
        yield uri, address


@pytest.mark.slow  # starts a server; test_tracking_training.py tracks the same events in a database
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
