"""The whole loop on real servers: build, database and node fail once, and C* is that of an undisturbed build."""

import gzip
import json
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.build_dataset.flow import run_build
from tests.machines.commands import events, started
from tests.machines.servers import Postgres, Slurm
from tests.machines.test_postgres import AWAY
from tests.support.postgres import asked, schema
from tests.support.small_builds import cstar, small_build
from toolformer_core.embedded import CORPUS
from warehouse.commits import CommitKey, RowCounts
from warehouse.store import Store

EXAMPLE = Path(__file__).parents[2] / "examples/clusters/slurm.py"
# two of six texts get a call
SMALL = {"tools": ["calendar"], "shard_documents": 1, "top_k": 2, "samples": 2, "tau_f": {}}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    file = tmp_path / "six.jsonl"
    with gzip.open(CORPUS, "rt", encoding="utf-8") as stream:
        file.write_text("".join(line for line, _ in zip(stream, range(6), strict=False)), encoding="utf-8")
    return file


@contextmanager
def dask_from_slurm(slurm: Slurm) -> Iterator[str]:
    """The address of a scheduler, whose two workers are a job of the cluster."""
    small = {"cores": 2, "processes": 2, "memory": "4GB", "walltime": "1:00:00", "interface": "lo"}
    scheduler = {"port": 0, "dashboard_address": None}
    with runpy.run_path(str(EXAMPLE))["cpu_group"](scheduler_options=scheduler, **small) as cluster:
        cluster.scale(jobs=1)
        cluster.wait_for_workers(2, timeout=600)
        assert len(slurm.jobs("RUNNING")) == 1
        yield cluster.scheduler_address


def rows(store: Store) -> dict[CommitKey, tuple[RowCounts, ...]]:
    return {commit.key: commit.balances for commit in store.commits()}


def test_the_loop_outlasts_a_kill_a_restart_and_a_lost_node(
    prefect_server: None,
    slurm: Slurm,
    postgres_machine: Postgres,
    database: str,
    mlflow_database: str,
    mlflow_server: str,
    prefect_api: str,
    url: str,
    documents: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_build(small_build(documents, tmp_path / "undisturbed", **SMALL))
    undisturbed, store, jobs = Store(tmp_path / "undisturbed"), Store(url), tmp_path / "jobs"
    variables = {"TOOLFORMER_CATALOG": database, "MLFLOW_TRACKING_URI": mlflow_server, "TOOLFORMER_REFRESH_S": "0.2"}
    variables["PREFECT_API_URL"] = prefect_api
    for name, value in variables.items():
        monkeypatch.setenv(name, value)  # Dask's workers have them too

    with dask_from_slurm(slurm) as address:
        words = ["build", "--corpus", str(documents), "--data", url, "--runner", address, "--tools", "calendar"]
        words += ["--shard-documents", "1", "--top-k", "2", "--samples", "2"]
        with started(tmp_path / "killed.txt", *words, **variables) as build:
            build.await_(lambda: any(store.names("commits/sample")))
            build.process.kill()
        runs = {commit.run_id for commit in store.commits()}
        with started(tmp_path / "build.txt", *words, **variables) as build:
            build.await_(lambda: {commit.run_id for commit in store.commits()} - runs)
            with postgres_machine.outage():
                build.await_(lambda: AWAY in build.text)
            assert build.ended() == 0, build.text
    assert cstar(store) == cstar(undisturbed)
    assert rows(store) == rows(undisturbed)
    assert asked(database, f'SELECT count(*) FROM "{schema(url)}".commits') == [(len(rows(undisturbed)),)]
    assert asked(database, f'SELECT count(*) FROM "{schema(url)}".leases') == [(0,)]

    profile = {"launcher": "slurm", "device": "cpu", "processes": 2, "jobs": str(jobs), "slurm": {"partition": "cpu"}}
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    words = ["finetune", "--data", url, "--profile", str(tmp_path / "profile.json"), "--steps", "60", "--batch", "2"]
    words += ["--sequence-length", "128", "--evaluate-every", "2", "--dev-documents", "0"]
    with started(tmp_path / "finetune.txt", *words, **variables) as finetune:
        finetune.await_(lambda: any(event["event"] == "saved" for event in events(jobs)))
        slurm.lose_node()
        slurm.node_up()
        assert finetune.ended() == 0, finetune.text
    first, second = (event for event in events(jobs) if event["event"] == "started")
    assert (first["world_size"], first["engine"], first["from_step"]) == (2, "deepspeed", 0)
    assert int(str(second["from_step"])) >= 2
    assert events(jobs)[-1] | {"event": "finished", "step": 60} == events(jobs)[-1]

    [model] = jobs.glob("*/model")
    words = ["evaluate", "--data", url, "--task", "small-world", "--limit", "2", "--max-new-tokens", "4", "--json"]
    with started(tmp_path / "evaluate.txt", *words, "--toolformer", str(model), **variables) as evaluate:
        assert evaluate.ended() == 0, evaluate.text
    assert '"items": 2' in evaluate.text
    kinds = "SELECT DISTINCT value FROM tags JOIN runs USING (run_uuid) WHERE key = 'kind' AND status = 'FINISHED'"
    assert {kind for (kind,) in asked(mlflow_database, kinds)} == {"build", "finetune", "evaluate"}
