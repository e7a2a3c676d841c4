"""SIGTERM ends a command as Ctrl-C does: at once, whatever its threads are doing, in one line, and nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import psutil
import pytest
from prefect import State, flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import StateType
from prefect.runtime import flow_run as this_run
from prefect.settings import PREFECT_API_URL

from benchmarks.chaos import run
from cli.commands.finetune import _Stopping
from flows.runtime import stopping
from flows.runtime.running import ending_as_cancelled, stopping_if_cancelled
from tests.support.servers_up import started, variables
from tests.support.waiting import soon
from toolformer_core.embedded import CORPUS
from toolformer_core.finetune.events import STOP_FILE, read_events
from warehouse.store import Store

# The command line, with a model that says that it was asked, in a file, and then computes for ever.
ENDLESS = """
import pathlib, sys, threading
import {module} as work
from cli.main import main
from tasks.shards.model_thread import in_model_thread

asked = pathlib.Path(sys.argv.pop(1))

def endless(*_, **__):
    asked.touch()
    in_model_thread(threading.Event().wait)

work.{name} = endless
main()
"""
_GONE_S = 60.0  # beside other work; by itself it is a second, and on the code before it was for ever


@contextmanager
def _computing(tmp_path: Path, module: str, name: str, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A command whose model computes for ever, and the file with what it prints."""
    asked, said = tmp_path / "asked", tmp_path / "said.txt"
    endless = [sys.executable, "-c", ENDLESS.format(module=module, name=name), str(asked)]
    variables = {**os.environ, "PREFECT_API_URL": str(PREFECT_API_URL.value())}
    with _begun([*endless, *words, "--data", str(tmp_path / "data")], said, variables) as process:
        soon(asked.exists)
        yield process, said


@contextmanager
def _begun(words: list[str], said: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with said.open("wb") as stream, subprocess.Popen(words, stdout=stream, stderr=stream, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def _terminated(process: subprocess.Popen[bytes], said: Path) -> str:
    """Send SIGTERM; return what is printed from then on."""
    before = said.stat().st_size
    process.send_signal(signal.SIGTERM)
    assert process.wait(_GONE_S) == stopping.TERMINATED
    return said.read_bytes()[before:].decode()


def test_a_build_ends_while_its_model_computes(prefect_server: None, few_documents: Path, tmp_path: Path) -> None:
    words = ["build", "--corpus", str(few_documents), "--tools", "calculator"]
    with _computing(tmp_path, "tasks.stages.sample", "sample", *words) as (process, said):
        assert _terminated(process, said) == f"{stopping.STOPPED}\n"
    stages = {name.partition("/")[0] for name in Store(tmp_path / "data").names("commits")}
    assert stages == {"read", "ingest", "prefilter"}


def test_a_flow_leaves_sigterm_to_the_command_that_runs_it(prefect_server: None) -> None:
    came: list[int] = []

    @flow(name="told")
    def told() -> str:
        stopping.restore_stop_handler()
        os.kill(os.getpid(), signal.SIGTERM)
        return "went on"

    before = signal.getsignal(signal.SIGTERM)
    with stopping.handle_stop(lambda number, frame: came.append(number)):
        assert told() == "went on"
    assert came == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("how", ["cancelled", "deleted"])
def test_a_run_that_is_ended_in_prefect_stops_its_command(prefect_server: None, how: str) -> None:
    came: list[tuple[int, str]] = []
    runs: list[UUID] = []

    @flow(name="ended in Prefect")
    def work() -> None:
        runs.append(UUID(str(this_run.id)))
        with stopping_if_cancelled(every_s=0.01), get_client(sync_client=True) as client:
            if how == "cancelled":
                client.set_flow_run_state(runs[0], State(type=StateType.CANCELLING), force=True)
            else:
                client.delete_flow_run(runs[0])
            soon(lambda: came)

    with stopping.handle_stop(lambda number, frame: came.append(stopping.how_stopped(number))):
        if how == "deleted":
            with pytest.raises(stopping.Stopped, match="the run was deleted in Prefect"), ending_as_cancelled():
                work()
        else:
            with ending_as_cancelled():
                work()
            with get_client(sync_client=True) as client:
                assert client.read_flow_run(runs[0]).state_type == StateType.CANCELLED
    assert came == [(stopping.UNFINISHED, f"the run was {how} in Prefect; run the same command again to continue")]
    assert stopping.how_stopped(signal.SIGINT) == (130, stopping.STOPPED)


def test_a_flow_that_no_command_runs_leaves_it_to_prefect(prefect_server: None) -> None:
    @flow(name="handled")
    def handled() -> Any:
        before = signal.getsignal(signal.SIGTERM)
        stopping.restore_stop_handler()
        assert signal.getsignal(signal.SIGTERM) is before
        return getattr(before, "__module__", "")

    assert handled().startswith("prefect.")


def test_a_command_without_a_handler_ends_in_a_line(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def deliver(*_: object) -> None:
        raise stopping.Stopped("stopped at step 3; run it again to go on")

    monkeypatch.setattr("cli.commands.export.built_store", lambda data: data)
    monkeypatch.setattr("flows.export.delivery.deliver", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert run("export", tmp_path / "out") == (stopping.TERMINATED, "", f"{stopping.STOPPED}\n")
    monkeypatch.setattr("flows.export.delivery.deliver", deliver)  # what something else has stopped is unfinished
    assert run("export", tmp_path / "out") == (75, "", "stopped at step 3; run it again to go on\n")


def test_a_training_is_asked_to_stop_and_waited_for_a_while(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan: Any = SimpleNamespace(spec=SimpleNamespace(folder=tmp_path))
    display: Any = SimpleNamespace(close=lambda: None)
    left: list[tuple[int, str]] = []
    later: list[Callable[[], None]] = []
    monkeypatch.setattr("cli.commands.finetune.exit_now", lambda code, line, close: left.append((code, line)))
    monkeypatch.setattr("cli.commands.finetune.exit_later", lambda seconds, leave: later.append(leave))

    asked = _Stopping(display, [plan])
    with stopping.handle_stop(asked.stop):
        os.kill(os.getpid(), signal.SIGTERM)
    assert (tmp_path / STOP_FILE).exists()
    assert asked.code == stopping.TERMINATED
    (tmp_path / STOP_FILE).unlink()  # as a launch does
    [leave] = later
    leave()
    assert (tmp_path / STOP_FILE).exists()  # whoever launched it meanwhile is asked as well
    [(code, line)] = left
    assert (code, line.count("\n")) == (stopping.TERMINATED, 0)
    assert "run the same command again" in line


def test_what_is_to_come_later_comes_unless_the_command_ended() -> None:
    came: list[str] = []
    with stopping.handle_stop(lambda number, frame: None):
        stopping.exit_later(0.01, lambda: came.append("first"))
        soon(lambda: came)
        stopping.exit_later(60, lambda: came.append("second"))
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert came == ["first"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "ready"),
    [([], "sample"), (["--runner", "dask", "--workers", "2"], "prefilter"), (["--workers", "1"], "prefilter")],
)
def test_a_build_with_a_server_of_its_own_leaves_no_process(options: list[str], ready: str, tmp_path: Path) -> None:
    said, data = tmp_path / "said.txt", tmp_path / "data"
    words = [sys.executable, "-m", "cli.main", "build", "--corpus", str(CORPUS), "--data", str(data)]
    with _begun([*words, "--shard-documents", "20", *options], said, variables()) as process:
        soon(lambda: ready in {name.partition("/")[0] for name in Store(data).names("commits")})
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        assert _terminated(process, said).endswith(f"{stopping.STOPPED}\n")
        assert psutil.wait_procs(children, timeout=_GONE_S)[1] == []


@pytest.mark.slow
def test_a_build_that_is_cancelled_in_prefect_ends(prefect_server: None, few_documents: Path, tmp_path: Path) -> None:
    words = ["build", "--corpus", str(few_documents), "--tools", "calculator", "--dataset", "cancelled"]
    with _computing(tmp_path, "tasks.stages.sample", "sample", *words) as (process, said):
        running = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])))
        with get_client(sync_client=True) as client:
            [run] = [one for one in client.read_flow_runs(flow_run_filter=running) if "cancelled" in one.name]
            client.set_flow_run_state(run.id, State(type=StateType.CANCELLING), force=True)
            assert process.wait(_GONE_S) == stopping.UNFINISHED
            assert client.read_flow_run(run.id).state_type == StateType.CANCELLED
    assert said.read_text().endswith("the run was cancelled in Prefect; run the same command again to continue\n")


@pytest.mark.slow
def test_a_training_ends_with_a_checkpoint(as_built: Path, tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    words = [sys.executable, "-m", "cli.main", "finetune", "--data", str(as_built), "--profile", "core"]
    words += ["--steps", "5000", "--batch", "2", "--dev-documents", "0", "--sequence-length", "128"]

    def job() -> Path | None:
        folders = [path.parent for path in (as_built / "finetunes").glob("*/events.jsonl")]
        return next((f for f in folders if any(e["event"] == "step" for e in read_events(f)[0])), None)

    with _begun(words, said, variables()) as process:
        folder = soon(job)
        told = _terminated(process, said)
    *progress, line = told.splitlines()  # what the training said of itself meanwhile may come before
    assert all("weights" in one for one in progress)
    assert "with a checkpoint" in line
    soon(lambda: read_events(folder)[0][-1]["event"] == "stopped")
    assert list((folder / "checkpoints").iterdir())


@pytest.mark.slow
def test_everything_ends_while_a_build_computes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data) as up:
        up.submit("build-dataset", {"corpus": str(CORPUS), "data": str(data), "shard_documents": 100})
        soon(lambda: any(name.startswith("prefilter") for name in Store(data).names("commits")))
        begin = time.monotonic()
        assert up.stop(signal.SIGTERM) == 0
        assert time.monotonic() - begin < _GONE_S
        assert up.processes() == []


@pytest.mark.parametrize(
    ("runner", "victims", "clean"),
    [
        ("threads", ["flow"], ""),
        pytest.param("threads", ["all", "flow"], "documents", marks=pytest.mark.slow),
        pytest.param("dask", ["all", "flow", "worker"], "calls", marks=pytest.mark.slow),
    ],
)
def test_kills_do_no_harm(prefect_server: None, tmp_path: Path, runner: str, victims: list[str], clean: str) -> None:
    server = PREFECT_API_URL.value()
    options = {"kills": len(victims), "documents": 8, "seed": 1, "runner": runner, "victims": victims, "clean": clean}
    report = run(tmp_path, server=server, **options)
    assert report.kills == len(victims)
    assert (report.of_all, report.of_flow, report.of_worker) == tuple(map(victims.count, ("all", "flow", "worker")))
    assert report.examples > 0
    assert (report.identical, report.conserved) == (True, True)
    assert (report.shards_counted_twice, report.damaged) == (0, 0)
