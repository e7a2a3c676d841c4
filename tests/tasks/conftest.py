"""A tracking database with nothing in it, and a client such as a user would look with."""

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.tracking import Tracking


@pytest.fixture
def tracking(empty_database: Path, tmp_path: Path) -> Tracking:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return Tracking(f"sqlite:///{tmp_path}/mlflow.db")


@pytest.fixture
def client(tracking: Tracking) -> MlflowClient:
    return MlflowClient(tracking.uri)
