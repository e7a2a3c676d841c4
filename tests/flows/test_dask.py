"""Dask runs the same flow and gives the same C*."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.context import SyncClientContext, hydrated_context, serialize_context
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED, temporary_settings

from flows.build_dataset.flow import run_build
from flows.build_dataset.parameters import BuildParameters
from flows.runtime import runners
from flows.runtime.runners import TASK
from flows.runtime.stage_tasks import _run_group
from flows.runtime.worker_failures import BlameRunning
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


@dataclass
class FakeScheduler:
    """What Dask's scheduler counts: all tasks that were at a worker are suspicious once more."""

    tasks: dict[str, Any] = field(default_factory=dict)

    def lose(self, plugin: BlameRunning, worker: str, *keys: str) -> dict[str, int]:
        for key in keys:
            self.tasks.setdefault(key, SimpleNamespace(suspicious=0)).suspicious += 1
        plugin.remove_worker(self, worker, stimulus_id="test")
        return {key: task.suspicious for key, task in self.tasks.items()}


def begin(plugin: BlameRunning, key: str, worker: str) -> None:
    plugin.log_event("toolformer-began", {"key": key, "worker": worker})


def test_only_what_ran_on_a_dead_worker_is_blamed() -> None:
    """Worker a dies with 1 running and 2 waiting; b dies with 2 running, 1 waiting; others' tasks keep their counts."""
    plugin, scheduler = BlameRunning("_ours"), FakeScheduler()
    begin(plugin, "_ours-1", "a")
    assert scheduler.lose(plugin, "a", "_ours-1", "_ours-2", "theirs-3") == {"_ours-1": 1, "_ours-2": 0, "theirs-3": 1}
    begin(plugin, "_ours-2", "b")
    assert scheduler.lose(plugin, "b", "_ours-1", "_ours-2", "theirs-3") == {"_ours-1": 1, "_ours-2": 1, "theirs-3": 2}


def test_what_has_finished_is_not_blamed_where_it_waits_to_be_done_again() -> None:
    plugin, scheduler = BlameRunning("_ours"), FakeScheduler()
    begin(plugin, "_ours-1", "a")
    plugin.transition("_ours-1", "processing", "memory")
    assert scheduler.lose(plugin, "a", "_ours-1") == {"_ours-1": 0}


def test_three_deaths_are_counted_as_three() -> None:
    plugin, scheduler = BlameRunning("_ours"), FakeScheduler()
    for number, worker in enumerate("abc", start=1):
        begin(plugin, "_ours-1", worker)
        assert scheduler.lose(plugin, worker, "_ours-1") == {"_ours-1": number}


def test_tasks_have_the_name_that_the_plugin_knows() -> None:
    assert _run_group.fn.__name__ == TASK
