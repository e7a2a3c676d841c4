"""Every test of this folder is marked `machines`: it needs root and servers of Debian's packages."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.machines import servers
from tests.support import objects, postgres
from tests.support.waiting import soon


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.machines)


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[servers.Slurm]:
    with servers.slurm() as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_cluster: servers.Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[servers.Slurm]:
    """The cluster, with its node ready; what a test leaves in the queue is cancelled."""
    monkeypatch.setenv("SLURM_CONF", str(slurm_cluster.conf))
    yield slurm_cluster
    if jobs := slurm_cluster.jobs():
        slurm_cluster.ask("scancel", *jobs)
    if "drain" in slurm_cluster.ask("sinfo", "--noheader", "--format=%T"):
        slurm_cluster.node("RESUME")
    soon(lambda: not slurm_cluster.jobs())


@pytest.fixture(scope="session")
def postgres_machine() -> Iterator[servers.Postgres]:
    with servers.postgres() as server:
        yield server


@pytest.fixture(scope="session")
def swift_server() -> Iterator[str]:
    with servers.swift() as address:
        yield address


@pytest.fixture
def new_database(postgres_machine: servers.Postgres) -> Callable[[], str]:
    """Makes an empty database and returns its URL."""
    return partial(postgres.new_database, postgres_machine.url)


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    """The URL of a new, empty database."""
    return new_database()


@pytest.fixture
def prefect_api(new_database: Callable[[], str]) -> Iterator[str]:
    """The API of a Prefect server whose database is PostgreSQL's."""
    with servers.prefect(new_database()) as address:
        yield address


@pytest.fixture
def mlflow_server(mlflow_database: str, tmp_path: Path) -> Iterator[str]:
    """The address of an MLflow server whose database is PostgreSQL's."""
    with servers.mlflow(mlflow_database, tmp_path / "mlartifacts") as address:
        yield address


@pytest.fixture
def mlflow_database(new_database: Callable[[], str]) -> str:
    """The URL of MLflow's database."""
    return new_database()


@pytest.fixture
def url(swift_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a folder in a new, empty bucket; what is kept on the local disk is below the test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION", raising=False)
    for name, value in {**servers.SWIFT_KEYS, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    return objects.new_bucket(swift_server)
