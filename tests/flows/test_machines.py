"""Two flow processes, as on two hosts: the same data, the same PostgreSQL, every shard done once."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from prefect.settings import PREFECT_API_URL

from flows.build_dataset.flow import BuildResult, run_build
from flows.build_dataset.parameters import BuildParameters
from tasks.stages.ingest import READ
from tests.support.postgres import asked, killed_at_work, schema
from tests.support.small_builds import ONE_TOOL, cstar, small_build
from tests.support.small_builds import SHARDS_OF_ONE_TOOL as SHARDS
from tests.support.waiting import soon
from warehouse.queries import rows_of
from warehouse.store import Store

pytestmark = [
    pytest.mark.slow,  # two processes load a model each; `tests/tasks/test_hosts.py` asks the same of shards
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
]

_PATIENCE_S = 500.0  # of a test that would otherwise hang

HOST = """
import dataclasses, json, sys
from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters
asked = BuildParameters.model_validate_json(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(dataclasses.asdict(run_build(asked))), flush=True)
"""


def build(documents: Path, data: str) -> BuildParameters:
    return small_build(documents, Path("x"), **ONE_TOOL).model_copy(update={"data": data})


@contextmanager
def hosts(
    asked: BuildParameters, postgres: str, tmp_path: Path, lease_s: float
) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that have loaded what they need and wait for a line."""
    own_variables = {"TOOLFORMER_CATALOG": postgres, "TOOLFORMER_LEASE_S": str(lease_s), "OMP_NUM_THREADS": "1"}
    places = {"PREFECT_API_URL": str(PREFECT_API_URL.value()), "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    environment = {**os.environ, **own_variables, **places}
    started = []
    for name in ("one", "other"):
        own = tmp_path / name
        own.mkdir()
        command = [sys.executable, "-W", "ignore", "-c", HOST, asked.model_dump_json()]
        with (own / "log").open("w") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            started.append(subprocess.Popen(command, cwd=own, env=environment, text=True, **pipes))
    try:
        for host in started:
            assert host.stdout is not None
            assert host.stdout.readline() == "ready\n"
        yield started
    finally:
        for host in started:
            host.kill()
            host.communicate()


def go(host: subprocess.Popen[str]) -> None:
    assert host.stdin is not None
    host.stdin.write("go\n")
    host.stdin.flush()


def result(host: subprocess.Popen[str]) -> BuildResult:
    assert host.stdout is not None
    watch = threading.Timer(_PATIENCE_S, host.kill)  # rather an answer that is missing than none at all
    watch.start()
    try:
        return BuildResult(**json.loads(host.stdout.readline()))
    finally:
        watch.cancel()


@pytest.fixture(scope="module")
def alone(prefect_server: None, few_documents: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """C* of one process that had the data for itself."""
    data = tmp_path_factory.mktemp("alone")
    made = run_build(build(few_documents, str(data)))
    assert (made.done, made.skipped) == (SHARDS, 0)
    assert made.examples > 0
    return cstar(Store(data))


def test_two_hosts(bucket: str, postgres: str, few_documents: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    with hosts(build(few_documents, bucket), postgres, tmp_path, lease_s=600.0) as both:
        for host in both:
            go(host)
        one, other = (result(host) for host in both)
    store = Store(bucket)
    by_run = Counter(commit.run_id for commit in store.commits() if commit.stage != READ.name)
    assert by_run == {one.run_id: one.done, other.run_id: other.done}  # so neither was idle
    assert one.done + other.done == SHARDS
    assert (one.skipped, other.skipped) == (other.done, one.done)
    assert one.version == other.version
    assert cstar(store) == alone
    assert asked(postgres, f"SELECT count(*) FROM {schema(bucket)}.commits WHERE stage <> 'read'") == [(SHARDS,)]
    assert asked(postgres, f"SELECT count(*) FROM {schema(bucket)}.leases") == [(0,)]
    # each has a snapshot of its own, of all that both did
    for told in (one, other):
        (row,) = rows_of(told.snapshot, 'SELECT count(*) AS n FROM shards WHERE "current" AND intact')
        assert row["n"] == SHARDS
    assert one.snapshot != other.snapshot


def test_one_host_is_killed(postgres: str, few_documents: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    data = tmp_path / "shared"
    store = Store(data)
    with hosts(build(few_documents, str(data)), postgres, tmp_path, lease_s=2.0) as (victim, other):
        go(victim)  # alone, so that it cannot be done before it is caught at work
        soon(lambda: len(store.names("commits")) > 5 or victim.poll() is not None, _PATIENCE_S, 0.02)
        soon(lambda: killed_at_work(psutil.Process(victim.pid), postgres, data), _PATIENCE_S, 0.02)
        go(other)  # within the lease: it waits for the shard that is held
        finished = result(other)
    by_run = Counter(commit.run_id for commit in store.commits() if commit.stage != READ.name)
    assert sum(by_run.values()) == SHARDS
    assert by_run[finished.run_id] == finished.done
    assert finished.done + finished.skipped == SHARDS
    assert cstar(store) == alone
    (row,) = rows_of(finished.snapshot, 'SELECT count(*) AS n FROM shards WHERE "current" AND intact')
    assert row["n"] == SHARDS
