"""Dask workers that join and leave, die with their task, and a scheduler that ends: with real processes on loopback."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from benchmarks.chaos import _cstar
from flows.build_dataset.flow import run_build
from flows.runtime.dask_losses import WorkerWatch, scheduler_lost, what_is_missing
from tests.support.dask_processes import DaskProcesses, dask_processes, number_of
from tests.support.small_builds import small_build

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
def test_workers_join_late_leave_and_die(
    dask: DaskProcesses, few_documents: Path, undisturbed: Path, tmp_path: Path
) -> None:
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
def test_a_scheduler_that_ends_ends_the_build_in_a_line_and_the_same_command_goes_on(
    dask: DaskProcesses, few_documents: Path, undisturbed: Path, tmp_path: Path
) -> None:
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
def test_a_task_that_kills_three_workers_ends_the_build_in_a_line_that_names_its_shards(
    dask: DaskProcesses, few_documents: Path, undisturbed: Path, tmp_path: Path
) -> None:
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
    assert "a GPU, the one worker has none" in what_is_missing(ADDRESS, {"a": PLAIN}, needs_gpus=True)
    assert "none of the 2 workers" in what_is_missing(ADDRESS, {"a": PLAIN, "b": PLAIN}, needs_gpus=True)
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
    no_gpu = "tasks that ask the model wait for a Dask worker with a GPU, the one worker has none"
    assert told == [nobody, "", nobody, no_gpu, "tasks wait no longer", ""]


def test_a_scheduler_that_does_not_answer_is_left_to_the_flow(caplog: pytest.LogCaptureFixture) -> None:
    def nobody() -> dict[str, dict[str, float]]:
        raise OSError("refused")

    WorkerWatch(ADDRESS, nobody, lambda: True, logging.getLogger("watch")).look()
    assert not caplog.records
