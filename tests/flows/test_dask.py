"""Dask gives the same C*, also where workers join and leave, die with their task, or lose their scheduler."""

import logging
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.context import SyncClientContext, hydrated_context, serialize_context
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED, temporary_settings

from benchmarks.chaos import _cstar
from flows.build_dataset.flow import run_build
from flows.runtime import runners
from flows.runtime.dask_losses import WorkerWatch, scheduler_lost, what_is_missing
from flows.runtime.runners import TASK
from flows.runtime.stage_tasks import _run_group
from flows.runtime.worker_failures import WorkerFailures
from ops.ports import free_port
from tests.support.dask_processes import DaskProcesses, dask_processes, number_of
from tests.support.small_builds import small_build


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")
def test_same_cstar(prefect_server: None, few_documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "_TASKS", 2)  # one to annotate, one to assemble: both shards are of one group
    monkeypatch.setattr(runners, "_PER_THREAD", 1)
    results, ask_for_version = [], []
    usual, asks = runners._collecting_less, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED.value
    monkeypatch.setattr(runners, "_collecting_less", lambda: ask_for_version.append(asks()) or usual())
    for runner in ("threads", "dask"):
        changes = {"tools": ["calendar"], "shard_documents": 8, "tau_f": {"calendar": -1.0}, "workers": 1}
        results.append(run_build(small_build(few_documents, tmp_path / runner, top_k=2, samples=1, **changes), runner))
    threads, dask = results
    assert threads.examples > 0
    assert ask_for_version == [True, False]  # see the test of an outage below
    assert dask.version == threads.version


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

    def lose(self, plugin: WorkerFailures, worker: str, *keys: str) -> dict[str, int]:
        for key in keys:
            self.tasks.setdefault(key, SimpleNamespace(suspicious=0)).suspicious += 1
        plugin.remove_worker(self, worker, stimulus_id="test")
        return {key: task.suspicious for key, task in self.tasks.items()}


def begin(plugin: WorkerFailures, key: str, worker: str) -> None:
    plugin.log_event("toolformer-began", {"key": key, "worker": worker})


def test_only_what_ran_on_a_dead_worker_is_blamed() -> None:
    """Worker a dies with 1 running and 2 waiting; b dies with 2 running, 1 waiting; others' tasks keep their counts."""
    plugin, scheduler = WorkerFailures("_ours"), FakeScheduler()
    begin(plugin, "_ours-1", "a")
    assert scheduler.lose(plugin, "a", "_ours-1", "_ours-2", "theirs-3") == {"_ours-1": 1, "_ours-2": 0, "theirs-3": 1}
    begin(plugin, "_ours-2", "b")
    assert scheduler.lose(plugin, "b", "_ours-1", "_ours-2", "theirs-3") == {"_ours-1": 1, "_ours-2": 1, "theirs-3": 2}


def test_what_has_finished_is_not_blamed_where_it_waits_to_be_done_again() -> None:
    plugin, scheduler = WorkerFailures("_ours"), FakeScheduler()
    begin(plugin, "_ours-1", "a")
    plugin.transition("_ours-1", "processing", "memory")
    assert scheduler.lose(plugin, "a", "_ours-1") == {"_ours-1": 0}


def test_three_deaths_are_counted_as_three() -> None:
    plugin, scheduler = WorkerFailures("_ours"), FakeScheduler()
    for number, worker in enumerate("abc", start=1):
        begin(plugin, "_ours-1", worker)
        assert scheduler.lose(plugin, worker, "_ours-1") == {"_ours-1": number}


def test_tasks_have_the_name_that_the_plugin_knows() -> None:
    assert _run_group.fn.__name__ == TASK


ADDRESS = "tcp://127.0.0.1:1"
PLAIN, WITH_GPU = {"resources": {}}, {"resources": {"GPU": 1.0}}
BOUND_S = 90.0  # within which a flow without its scheduler must have ended


@pytest.fixture(scope="module")
def undisturbed(prefect_server: None, few_documents: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the same build in threads."""
    data = tmp_path_factory.mktemp("undisturbed")
    changes = {"shard_documents": 4, "tau_f": {"calculator": -1.0, "calendar": -1.0}}
    assert run_build(small_build(few_documents, data, **changes), "threads").examples > 0
    return data


@pytest.fixture
def dask(prefect_server: None, tmp_path: Path) -> Iterator[DaskProcesses]:
    api = PREFECT_API_URL.value()
    assert api is not None
    with dask_processes(tmp_path / "dask", api) as processes:
        yield processes


@pytest.mark.slow
def test_workers_come_go_and_die(dask: DaskProcesses, few_documents: Path, undisturbed: Path, tmp_path: Path) -> None:
    """The model waits for a GPU; then the plain worker leaves, the one with the GPU is killed, and another joins."""
    data = tmp_path / "data"
    plain = dask.worker("plain")
    build = dask.build(few_documents, data, "--gpus", "1")
    build.until(lambda: number_of(data, "prefilter") == 8)  # 16 documents in shards of 4, two tools
    build.until(lambda: "tasks that ask the model wait for a Dask worker with a GPU" in build.said())
    assert number_of(data, "sample") == 0
    first = dask.worker_with_gpu("first")
    build.until(lambda: number_of(data, "sample") > 0)
    plain.send_signal(signal.SIGTERM)
    dask.worker_with_gpu("second")
    first.send_signal(signal.SIGKILL)
    assert build.ended(120) == 0, build.said()
    assert "tasks wait no longer" in build.said()
    assert _cstar(data) == _cstar(undisturbed)


@pytest.mark.slow
def test_a_scheduler_that_ends(dask: DaskProcesses, few_documents: Path, undisturbed: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    scheduler = dask.started[0]
    dask.worker("before")
    build = dask.build(few_documents, data)
    build.until(lambda: number_of(data, "sample") > 0)
    scheduler.send_signal(signal.SIGKILL)
    scheduler.wait()
    dask.scheduler()
    begin = time.monotonic()
    assert build.ended(BOUND_S) == 1, build.said()
    assert time.monotonic() - begin < BOUND_S
    assert build.said().splitlines()[-1] == f"error: {scheduler_lost(dask.address)}"
    assert "Traceback" not in build.said()
    done = number_of(data, "sample")
    dask.worker("after")
    again = dask.build(few_documents, data)
    assert again.ended() == 0, again.said()
    assert number_of(data, "sample") == 8
    assert 0 < done <= 8
    assert _cstar(data) == _cstar(undisturbed)


_DEADLY = """
import os, signal
from pathlib import Path

def dask_setup(worker):
    from tasks.stages import execute
    usual = execute.tool_of

    def deadly(spec, key):
        if key == "calculator" and Path({mark!r}).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return usual(spec, key)

    execute.tool_of = deadly
"""


@pytest.mark.slow
def test_a_task_that_kills_workers(dask: DaskProcesses, few_documents: Path, undisturbed: Path, tmp_path: Path) -> None:
    data, mark, preload = tmp_path / "data", tmp_path / "deadly", tmp_path / "deadly.py"
    mark.touch()
    preload.write_text(_DEADLY.format(mark=str(mark)), encoding="utf-8")
    dask.worker("mortal", "--preload", str(preload), nanny=True)
    build = dask.build(few_documents, data)
    assert build.ended() == 1, build.said()
    last = build.said().splitlines()[-1]
    assert last.startswith("error: 3 Dask workers died one after another with 'execute calculator ")
    assert last.endswith("so run the same command again to continue")
    assert "Traceback" not in build.said()
    mark.unlink()
    again = dask.build(few_documents, data)
    assert again.ended() == 0, again.said()
    assert _cstar(data) == _cstar(undisturbed)


def test_what_tasks_wait_for() -> None:
    assert what_is_missing(ADDRESS, {}, needs_gpus=False).startswith("tasks wait for a Dask worker, none is there")
    assert what_is_missing(ADDRESS, {"a": PLAIN}, needs_gpus=False) == ""
    assert "a GPU, none of 2 has one" in what_is_missing(ADDRESS, {"a": PLAIN, "b": PLAIN}, needs_gpus=True)
    assert what_is_missing(ADDRESS, {"a": PLAIN, "b": WITH_GPU}, needs_gpus=True) == ""


def test_a_wait_is_told_at_once_each_minute_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """None at 0 s and 59 s, then at 60 s; a plain worker at 61 s, which is another wait; with a GPU at 62 s."""
    workers: dict[str, dict[str, dict[str, float]]] = {}
    clock = iter((0.0, 59.0, 60.0, 61.0, 62.0, 99.0))
    watch = WorkerWatch(ADDRESS, lambda: workers, lambda: True, logging.getLogger("watch"), lambda: next(clock))
    told = []
    for joined in ({}, {}, {}, {"a": PLAIN}, {"b": WITH_GPU}, {}):
        workers |= joined
        caplog.clear()
        watch.look()
        told.append(" / ".join(record.getMessage().split(":")[0] for record in caplog.records))
    nobody = "tasks wait for a Dask worker, none is there"
    no_gpu = "tasks that ask the model wait for a Dask worker with a GPU, none of 1 has one"
    assert told == [nobody, "", nobody, no_gpu, "tasks wait no longer", ""]


def test_a_scheduler_that_does_not_answer_is_left_to_the_flow(caplog: pytest.LogCaptureFixture) -> None:
    def nobody() -> dict[str, dict[str, float]]:
        raise OSError("refused")

    WorkerWatch(ADDRESS, nobody, lambda: True, logging.getLogger("watch")).look()
    assert not caplog.records
