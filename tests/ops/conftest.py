"""A client of the session's Prefect server with every flow deployed there, for the tests of this folder."""

from collections.abc import Iterator

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client

from ops.deployments import DeploymentOptions, deploy
from tests.support.small_builds import Built


@pytest.fixture(scope="module")
def client(prefect_server: None, built: Built) -> Iterator[SyncPrefectClient]:
    """A client of the session's server, with all flows deployed there."""
    with get_client(sync_client=True) as client:
        deploy(DeploymentOptions(str(built[1])))
        yield client
