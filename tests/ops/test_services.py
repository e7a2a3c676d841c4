"""The programs of `toolformer up`, as they are described: nothing is started."""

import math
from itertools import pairwise
from pathlib import Path

import pytest

from ops.addresses import Addresses
from ops.services import Services
from warehouse.files.paths import sqlite_file


def test_flows_know_the_viewer_that_up_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLFORMER_VIEWER", raising=False)
    own = "http://127.0.0.1:8001"
    addresses = Addresses(*("http://p", "http://p/api", "http://m", "w", "l"), pid=1, seconds=math.nan, viewer=own)
    services = Services(addresses, tmp_path, tmp_path, str(tmp_path), 1.0)
    assert services.worker("cpu").variables["TOOLFORMER_VIEWER"] == own
    monkeypatch.setenv("TOOLFORMER_VIEWER", "https://view.example")  # behind a proxy
    assert services.worker("cpu").variables["TOOLFORMER_VIEWER"] == "https://view.example"


def test_mlflows_database_and_files_lie_with_the_data_whatever_it_is_called(tmp_path: Path) -> None:
    addresses = Addresses(
        "http://p", "http://p/api", "http://m:1", "w", "l", pid=1, seconds=math.nan, viewer="http://v"
    )
    home = tmp_path / "a%20b"
    home.mkdir()
    words = Services(addresses, tmp_path, home, str(home), 1.0).mlflow_server().argv
    options = dict(pairwise(words))
    assert sqlite_file(options["--backend-store-uri"]) == home / "mlflow.db"
    assert options["--default-artifact-root"] == f"file://{tmp_path}/a%2520b/mlartifacts"
