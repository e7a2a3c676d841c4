"""MLflow's tables, made once: a copy is ready in milliseconds."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tasks.tracking import Tracking  # MLflow takes seconds to import

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    Tracking(f"sqlite:///{path}")
    return path
