"""Dask runs the same flow and gives the same C*."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.context import SyncClientContext, hydrated_context, serialize_context
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED, temporary_settings

from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters
from flows.runtime import runners
from ops.ports import free_port
from tests.support.small_builds import small_build
from toolformer_core.errors import UsageError


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")
def test_dask_and_threads_give_the_same_dataset(
    prefect_server: None, few_documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "_TASKS", 2)  # one to annotate, one to assemble: both shards are of one group
    monkeypatch.setattr(runners, "_PER_THREAD", 1)
    results, ask_for_version = [], []
    usual, asks = runners._collecting_less, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED.value
    monkeypatch.setattr(runners, "_collecting_less", lambda: ask_for_version.append(asks()) or usual())
    for runner in ("threads", "dask"):
        changes = {"tools": ["calendar"], "shard_documents": 8, "tau_f": {"calendar": -1.0}, "workers": 1}
        results.append(run_build(small_build(few_documents, tmp_path / runner, top_k=2, draws=1, **changes), runner))
    threads, dask = results
    assert threads.examples > 0
    assert ask_for_version == [True, False]  # see the test of an outage below
    assert dask.version == threads.version


def test_an_unknown_runner_is_answered(few_documents: Path, tmp_path: Path) -> None:
    asked = BuildParameters(corpus=str(few_documents), data=str(tmp_path))
    with pytest.raises(UsageError, match="--runner: 'dsk' is not threads, dask, or a scheduler's address"):
        run_build(asked, "dsk")


@pytest.mark.parametrize("runner", ["dask", "tcp://scheduler:8786"])
def test_a_new_worker_begins_its_first_task_also_while_prefects_server_is_away(runner: str) -> None:
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}):
        with runners._dask_settings(runner):
            taken_along = serialize_context()
        with pytest.raises(RuntimeError, match="Failed to reach API"), SyncClientContext.get_or_create():
            pass
    with hydrated_context(taken_along), SyncClientContext.get_or_create():
        pass
