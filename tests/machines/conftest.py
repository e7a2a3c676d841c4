"""Every test of this folder is marked `machines`: it needs root and servers of Debian's packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines import servers


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
    servers.wait_until(lambda: not slurm_cluster.jobs())


@pytest.fixture(scope="session")
def postgres_machine() -> Iterator[servers.Postgres]:
    with servers.postgres() as server:
        yield server


@pytest.fixture(scope="session")
def swift_server() -> Iterator[str]:
    with servers.swift() as address:
        yield address
