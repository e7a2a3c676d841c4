"""A team's platform without containers: every service by its own command, through a build, and a Dask worker killed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import psutil
import pytest
from mlflow import MlflowClient
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.build_dataset.flow import run_build
from tests.support.compose import Service, services
from tests.support.natively import Native, with_trigrams
from tests.support.postgres import asked, killed_at_work, schema
from tests.support.small_builds import ONE_TOOL, SHARDS_OF_ONE_TOOL, cstar, small_build
from tests.support.waiting import soon
from warehouse.queries import rows_of
from warehouse.store import Store

pytestmark = [
    pytest.mark.slow,  # nine processes, three of which load torch; tests/test_compose.py asks less, at once
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
]

_PATIENCE_S = 500.0
SECRETS = {f"{name}_PASSWORD": f"{name}-secret" for name in ("POSTGRES", "PREFECT", "MLFLOW", "CATALOG")}


def told() -> dict[str, Service]:
    """The services, for a machine of few cores; Prefect on SQLite where no PostgreSQL has the extension it needs."""
    quick = {"TOOLFORMER_LEASE_S": "3", "TORCH_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    found = services({**SECRETS, **quick})
    if with_trigrams() is None:
        prefect = found["prefect"]
        kept = {k: v for k, v in prefect.environment.items() if k != "PREFECT_SERVER_DATABASE_CONNECTION_URL"}
        found["prefect"] = replace(prefect, environment=kept)
    return found


def eventually(holds: Callable[[], bool], native: Native) -> None:
    soon(holds, _PATIENCE_S, 0.05, lambda: native.copies("worker-cpu")[0].log[-3000:])


def test_a_build_survives_the_end_of_a_dask_worker(prefect_server: None, few_documents: Path, tmp_path: Path) -> None:
    undisturbed = run_build(small_build(few_documents, tmp_path / "alone", **ONE_TOOL), "threads")
    assert undisturbed.done == SHARDS_OF_ONE_TOOL
    postgres = with_trigrams()
    with Native(told(), **({"postgres": postgres} if postgres else {})) as native:
        native.up("worker-cpu", "dask-worker")
        [flow_worker] = native.copies("worker-cpu")
        data = native.place("/data/main", flow_worker)
        assert native.environment(flow_worker)["TOOLFORMER_DATA"] == str(data)
        catalog = native.native("postgresql+psycopg://catalog@database:5432/catalog", flow_worker)
        catalog = catalog.replace("catalog@", f"catalog:{SECRETS['CATALOG_PASSWORD']}@")
        address = f"http://127.0.0.1:{native.port('prefect', 4200)}/api"
        with temporary_settings({PREFECT_API_URL: address}), get_client(sync_client=True) as client:
            run = begin(client, few_documents, data)
            eventually(lambda: len(Store(data).names("commits")) > 5, native)
            victim = native.copies("dask-worker")[0].process
            assert victim is not None
            eventually(lambda: killed_at_work(psutil.Process(victim.pid), catalog, data), native)
            victim.wait()
            eventually(lambda: bool((s := client.read_flow_run(run).state) and s.is_final()), native)
            state = client.read_flow_run(run).state
            assert state is not None
            assert state.is_completed(), flow_worker.log[-5000:]
        store = Store(data)
        assert cstar(store) == cstar(Store(tmp_path / "alone"))
        own = "stage <> 'read'"  # the corpus is read ahead in parts
        assert sum(commit.stage != "read" for commit in store.commits()) == SHARDS_OF_ONE_TOOL
        assert asked(catalog, f"SELECT count(*) FROM {schema(data)}.commits WHERE {own}") == [(SHARDS_OF_ONE_TOOL,)]
        counted = f'SELECT count(*) AS n FROM shards WHERE "current" AND intact AND {own}'
        assert rows_of(data / "warehouse.duckdb", counted) == [{"n": SHARDS_OF_ONE_TOOL}]
        shown = [word for process in native.running() for word in process.cmdline()]
        assert shown
        assert not [word for word in shown for secret in SECRETS.values() if secret in word]
        tracked(native, tmp_path)


def begin(client: SyncPrefectClient, documents: Path, data: Path) -> UUID:
    """Ask for the build as the form does."""
    deployment = client.read_deployment_by_name("build-dataset/build-dataset")
    assert deployment.parameters == {"parameters": {"data": str(data)}}
    parameters = small_build(documents, data, **ONE_TOOL).model_dump(mode="json")
    return client.create_flow_run_from_deployment(deployment.id, parameters={"parameters": parameters}).id


def tracked(native: Native, folder: Path) -> None:
    """MLflow knows of the build, and takes an artifact: rows in its database, the file in its volume."""
    client = MlflowClient(f"http://127.0.0.1:{native.port('mlflow', 5000)}")
    known = [experiment.experiment_id for experiment in client.search_experiments()]
    [of_build] = client.search_runs(known)
    assert of_build.info.status == "FINISHED"
    (folder / "told.txt").write_text("told")
    client.log_artifact(of_build.info.run_id, str(folder / "told.txt"))
    [mlflow] = native.copies("mlflow")
    assert [path.read_text() for path in native.place("/artifacts", mlflow).rglob("told.txt")] == ["told"]
