"""What MLflow holds of runs of every kind, what it refuses, and the figures that are kept with them."""

import json
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.store.tracking.dbmodels.models import SqlDataset
from mlflow.version import VERSION
from sqlalchemy import event
from sqlalchemy.orm import Session

from tasks import settings
from tasks.tracking import TrackedRun, Tracking, TrackingError, flatten, project, store
from tasks.tracking.figures import bars, matrix
from tests.tasks.tracking.tracking_cases import start
from toolformer_core.errors import UsageError


@pytest.mark.slow
def test_two_processes_may_open_a_new_database_at_once(tmp_path):
    code = "import sys; from tasks.tracking import Tracking; Tracking(sys.argv[1])"
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    both = [subprocess.Popen([sys.executable, "-c", code, uri], stderr=subprocess.PIPE) for _ in range(2)]
    told = [(process.communicate(timeout=60)[1], process.returncode) for process in both]
    assert told == [(b"", 0), (b"", 0)]  # quiet, too


def test_telemetry_stays_off_and_no_time_goes_into_matplotlib(tmp_path):
    code = (
        "from tasks.environment import prepare_environment; prepare_environment()\n"
        "from tasks.tracking import Tracking\n"
        "from mlflow.telemetry.client import get_telemetry_client\n"
        "assert get_telemetry_client() is None\n"
        "import sys; assert 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PATH": ""}, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == 0


def test_two_runs_may_log_a_dataset_at_the_same_time(tracking, client):
    """Between MLflow's look for the dataset and its insert, another run inserts it."""
    begun = []

    def before_flush(session, *_):
        if any(isinstance(row, SqlDataset) for row in session.new) and not begun:
            begun.append("other")
            begun.append(start(Tracking(tracking.uri), name="other").run_id)

    event.listen(Session, "before_flush", before_flush)
    try:
        first = start(tracking).run_id
    finally:
        event.remove(Session, "before_flush", before_flush)
    names = [{one.dataset.name for one in client.get_run(run).inputs.dataset_inputs} for run in (first, begun[1])]
    assert names == [{"demo/train", "demo/dev"}] * 2


def test_what_mlflow_refuses_is_told_in_one_line(tracking, client, tmp_path):
    with pytest.raises(TrackingError, match=r"^MLflow, starting demo: .*nosuch.*$"):
        start(tracking, run_id="nosuch")
    run = start(tracking)
    assert client.get_experiment(run.experiment_id).tags["mlflow.experimentKind"] == "custom_model_development"
    (tmp_path / "mlartifacts").touch()
    with pytest.raises(TrackingError, match=r"^MLflow, keeping figures/loss.png: .*mlartifacts.*$"):
        run.figures()
    client.delete_experiment(run.experiment_id)
    with pytest.raises(TrackingError, match="experiment 'finetune' was deleted: restore it"):
        start(tracking)
    with pytest.raises(TrackingError, match="names no place for artifacts"):
        start(Tracking("sqlite://"))  # as any database that is no file
    (tmp_path / "file").touch()
    with pytest.raises(TrackingError, match="cannot make the lock file"):
        Tracking(f"sqlite:///{tmp_path}/file/mlflow.db")


def test_a_database_whose_making_was_cut_short_takes_no_name_and_is_made_again(tmp_path, monkeypatch):
    def killed(engine):
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE _alembic_tmp_experiments (a)")
        raise KeyboardInterrupt

    uri, path = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "mlflow.db"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # which has no template
    with monkeypatch.context() as patched:
        patched.setattr(store, "_initialize_tables", killed)
        with pytest.raises(KeyboardInterrupt):
            Tracking(uri)
    assert not path.exists()
    assert (tmp_path / "mlflow.db.new").exists()
    (tmp_path / "mlflow.db.new-journal").touch()
    template = tmp_path / "cache" / "toolformer" / f"mlflow-{VERSION}.db"
    template.parent.mkdir(parents=True)
    template.write_bytes(b"damaged")
    Tracking(uri).client.search_experiments()
    assert template.read_bytes()[:6] == b"SQLite"
    assert sorted(file.name for file in tmp_path.glob("mlflow.db*")) == ["mlflow.db", "mlflow.db.lock"]
    with sqlite3.connect(path) as connection:
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name LIKE '_alembic_tmp%'").fetchall()


def test_the_table_of_runs_is_opened_by_a_command_or_at_a_server_which_alone_has_an_address():
    def run_at(uri):
        run = TrackedRun(SimpleNamespace(tracking_uri=uri), "1a")
        run.experiment_id = "7"
        return run

    table = "#/experiments/7/runs?workflowType=machine_learning"
    served, alone = run_at("http://m.example/"), run_at("sqlite:////a b/mlflow.db")
    assert served.runs_view == f"http://m.example/{table}"
    command = "mlflow ui --backend-store-uri 'sqlite:////a b/mlflow.db'"
    assert alone.runs_view == f"{command}, then http://127.0.0.1:5000/{table}"
    assert (served.address, alone.address) == ("http://m.example/#/experiments/7/runs/1a", None)


def test_params_are_flat_texts_of_bounded_length():
    flat = flatten({"a": {"b": {"c": 1}, "d": None}, "e": "x" * 7000, "f": [1, 2], "g": {}})
    assert flat == {"a.b.c": "1", "a.d": "None", "e": "x" * 6000, "f": "[1, 2]"}


def test_where_runs_are_tracked(monkeypatch, tmp_path):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(UsageError, match="set MLFLOW_TRACKING_URI"):
        settings.tracking_uri("s3://bucket/data")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert settings.tracking_uri("s3://bucket/data") == "http://127.0.0.1:5000"


def test_a_table_is_kept_where_mlflows_page_looks_for_it_and_numbers_that_are_none_are_null(
    tracking: Tracking, client: MlflowClient
) -> None:
    run = start(tracking, experiment="evaluate")
    rows = [{"arm": "base", "k": 0, "rate": math.nan}, {"arm": "toolformer", "k": 10, "rate": 0.5, "calls": 3}]
    run.table(rows, "tables/arms.json")
    run.table(rows[:1], "tables/arms.json")  # told again, it is replaced
    run.table(rows, "tables/again.json")

    def kept(path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(client.download_artifacts(run.run_id, path)).read_text("utf-8"))
        return found

    assert kept("tables/arms.json") == {"columns": ["arm", "k", "rate"], "data": [["base", 0, None]]}
    assert kept("tables/again.json")["data"] == [["base", 0, None, None], ["toolformer", 10, 0.5, 3]]
    logged = json.loads(client.get_run(run.run_id).data.tags["mlflow.loggedArtifacts"])
    assert logged == [{"path": f"tables/{name}.json", "type": "table"} for name in ("arms", "again")]


def test_a_matrix_shades_shares_of_rows_and_shows_counts() -> None:
    figure = matrix("t", "chosen", {"nq": {"qa": 3, "mt": 1}, "mlqa": {"mt": 2, "none": 0}, "empty": {}})
    (axes,) = figure.axes
    (image,) = axes.images
    assert image.get_array().tolist() == [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 0]]  # of 4, of 2, of none
    assert [label.get_text() for label in axes.get_xticklabels()] == ["qa", "mt", "none"]
    shown = {(text.get_position(), text.get_text()) for text in axes.texts}
    assert shown == {((0, 0), "3"), ((1, 0), "1"), ((1, 1), "2")}
    assert not matrix("t", "chosen", {}).axes[0].images


def test_bars_stand_on_their_values_and_what_is_no_number_has_none() -> None:
    figure = bars("t", "accuracy", {"base": (0.25, 0.125, 0.5), "off": (math.nan, 0.0, 0.0), "on": (0.75, 0.75, 0.75)})
    (axes,) = figure.axes
    assert [patch.get_width() for patch in axes.patches] == [0.25, 0.75]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["base", "on"]
    assert axes.yaxis_inverted()  # the first on top


def test_a_run_is_found_by_its_tags_once_it_has_finished(tracking: Tracking) -> None:
    wanted = {"kind": "build", "dataset": "cstar@1"}
    assert tracking.find("finetune", wanted) is None  # no such experiment yet
    run = start(tracking, tags=wanted)
    assert tracking.find("finetune", wanted) is None
    run.finish("FINISHED")
    assert tracking.find("finetune", wanted) == run.run_id
    assert tracking.find("finetune", {**wanted, "dataset": "cstar@2"}) is None
    start(tracking, tags=wanted).finish("FAILED")
    assert tracking.find("finetune", wanted) == run.run_id


def test_a_run_takes_over_the_thresholds_of_the_runs_that_it_rests_on(tracking: Tracking) -> None:
    both = {"tau_f": {"calculator": 0.5}, "top_k": {"calculator": 20}, "learning_rate": 1e-5}
    cc = start(tracking, params=both).run_id
    taught = start(tracking, params=both | {"tau_f": {"calculator": 0.7, "qa": 1.0}}).run_id
    rests_on = {"cc": cc, "gone": "0" * 32, "toolformer": taught}
    taken = {"tau_f.calculator": "0.7", "tau_f.qa": "1.0", "top_k.calculator": "20"}  # of the last, where they differ
    assert tracking.params(rests_on, ("tau_f", "top_k")) == taken


def test_all_runs_of_a_data_folder_are_one_experiment(tmp_path: Path) -> None:
    assert project(str(tmp_path / "runs" / "c4")) == "c4"
    assert project("s3://bucket/corpora/c4/?endpoint_override=10.0.0.5") == "c4"
    assert project("s3://bucket") == "bucket"
    assert project("/") == "toolformer"


def test_everything_lies_in_the_data_folder_whatever_it_is_called(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    data = tmp_path / "a%20b #*"
    tracking = Tracking(settings.tracking_uri(str(data)))
    TrackedRun(tracking.client, start(tracking).run_id).text("kept", "notes/x.txt")
    assert os.listdir(tmp_path) == [data.name]
    assert (data / "mlflow.db").stat().st_size
    (kept,) = (data / "mlartifacts").rglob("x.txt")
    assert kept.read_text() == "kept"
