"""The programs of `toolformer up`, as they are described: nothing is started."""

import math
from itertools import pairwise
from pathlib import Path

import pytest

from ops.addresses import Addresses
from ops.services import Services
from warehouse.files.paths import sqlite_file

VIEWER = "http://127.0.0.1:8001"
ADDRESSES = Addresses("http://p", "http://p/api", "http://m:1", "w", "l", pid=1, seconds=math.nan, viewer=VIEWER)


def test_flows_know_the_viewer_that_up_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLFORMER_VIEWER", raising=False)
    services = Services(ADDRESSES, tmp_path, tmp_path, str(tmp_path), 1.0)
    assert services.worker("cpu").variables["TOOLFORMER_VIEWER"] == VIEWER
    monkeypatch.setenv("TOOLFORMER_VIEWER", "https://view.example")  # behind a proxy
    assert services.worker("cpu").variables["TOOLFORMER_VIEWER"] == "https://view.example"


def test_mlflows_database_and_files_lie_with_the_data_whatever_it_is_called(tmp_path: Path) -> None:
    home = tmp_path / "a%20b"
    home.mkdir()
    options = dict(pairwise(Services(ADDRESSES, tmp_path, home, str(home), 1.0).mlflow_server().argv))
    assert sqlite_file(options["--backend-store-uri"]) == home / "mlflow.db"
    assert options["--default-artifact-root"] == f"file://{tmp_path}/a%2520b/mlartifacts"
