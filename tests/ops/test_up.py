"""`toolformer up` as a person has it: started once, used, asked for twice, stopped."""

import contextlib
import datetime as dt
import gzip
import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from ops.addresses import running_addresses
from ops.ports import LOOPBACK, PortTakenError
from ops.up import Up, UpError
from tests.support.servers_up import Running, started
from tests.support.waiting import soon
from toolformer_core.embedded import CORPUS
from toolformer_core.errors import UsageError
from toolformer_core.finetune.events import read_events
from warehouse.errors import LockHeldError
from warehouse.files.lock import FileLock
from warehouse.queries import rows_of
from warehouse.store import Store

SMALL = {"tools": ["calculator"], "top_k": 1, "samples": 1, "workers": 1}


@pytest.fixture(scope="module")
def documents() -> list[str]:
    """Rows of the embedded corpus."""
    with gzip.open(CORPUS, "rt", encoding="utf-8") as stream:
        return [next(stream) for _ in range(3)]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("up")
    (folder / "arriving").mkdir()
    (folder / "arriving" / "known.jsonl").write_text('{"text": "It was there before anybody looked."}\n')
    with started(folder / "data", "--watch", str(folder / "arriving")) as up:
        yield up


def test_everything_answers_on_loopback(up: Running) -> None:
    pages = {"ui": "<title>Prefect", "mlflow": "<title>MLflow", "viewer": "<title>Overview"}
    for name, holds in pages.items():
        address = up.told[name]
        assert address.startswith(f"http://{LOOPBACK}:")
        with urllib.request.urlopen(address, timeout=30) as page:
            assert holds in page.read().decode()
    found = up.ask("/deployments/filter", {})
    on_cpu, on_gpu = ("build-dataset", "build-in-short", "export"), ("evaluate", "finetune", "ground", "recipe")
    pools = dict.fromkeys(on_cpu, "cpu") | dict.fromkeys(on_gpu, "gpu")
    assert {one["name"]: one["work_pool_name"] for one in found} == pools
    assert len(found) == len(pools)
    assert {str(one["parameters"]["parameters"]["data"]) for one in found} == {str(Path(up.told["logs"]).parent)}
    for pool in ("cpu", "gpu"):
        [worker] = up.ask(f"/work_pools/{pool}/workers/filter", {})
        assert worker["status"] == "ONLINE"
    listening = {c.laddr.ip for p in up.processes() for c in p.net_connections("inet") if c.status == "LISTEN"}
    assert listening == {LOOPBACK}
    assert running_addresses(Store(Path(up.told["warehouse"]).parent)) is not None


def status(address: str, path: str, **headers: str) -> int:
    """POST nothing in particular as a browser page may, without asking first; return the status."""
    told = {"Content-Type": "text/plain", **headers}
    try:
        with urllib.request.urlopen(urllib.request.Request(address + path, b"{}", told), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        return exc.code


def test_no_page_of_another_origin_and_no_other_name_is_let_in(up: Running) -> None:
    deployment = up.ask("/deployments/name/build-dataset/build-dataset")["id"]
    before = up.ask("/flow_runs/count", {})
    for path in (f"/api/deployments/{deployment}/create_flow_run", "/api/flow_runs/filter"):
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
            assert status(up.told["ui"], path, **headers) == 403
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Host": "10.evil.example"}):
        assert status(up.told["mlflow"], "/api/2.0/mlflow/experiments/search", **headers) == 403
    assert up.ask("/flow_runs/count", {}) == before


def test_a_second_start_explains_itself(up: Running) -> None:
    with pytest.raises(UpError) as refused:
        Up(str(Path(up.told["warehouse"]).parent), prefect_port=0, mlflow_port=0, view_port=0)
    assert "\n" not in str(refused.value)
    for told in (f"process {up.process.pid}", up.told["ui"], up.told["mlflow"], f"kill {up.process.pid}"):
        assert told in str(refused.value)


def test_a_submitted_form_runs(up: Running, documents: list[str], tmp_path: Path) -> None:
    corpus = tmp_path / "two.jsonl"
    corpus.write_text("".join(documents[:2]), encoding="utf-8")
    data = str(Path(up.told["warehouse"]).parent)
    run = up.submit("build-dataset", {"corpus": str(corpus), "data": data, **SMALL})
    assert up.ended(run)["type"] == "COMPLETED"
    assert up.ask("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})
    assert [row["n"] for row in rows_of(up.told["warehouse"], "SELECT count(*) AS n FROM documents")] == [2]


@pytest.mark.parametrize("forms", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_forms_that_are_submitted_at_once_are_all_taken(up: Running, forms: int) -> None:
    """The pages do not try again where the server's SQLite was locked; runs of next year are not begun."""
    deployment = up.ask("/deployments/name/export/export")["id"]
    state = {"type": "SCHEDULED", "state_details": {"scheduled_time": f"{dt.date.today().year + 1}-12-31T00:00:00Z"}}
    body = {"parameters": {}, "enforce_parameter_schema": False, "state": state}
    with ThreadPoolExecutor(16) as threads:
        made = list(
            threads.map(lambda _: up.ask(f"/deployments/{deployment}/create_flow_run", body)["id"], range(forms))
        )
    assert len(set(made)) == forms


def test_a_schedule_makes_runs(up: Running) -> None:
    """With some versions of SQLAlchemy Prefect's scheduler fails, which only its log tells."""
    deployment = up.ask("/deployments/name/export/export")["id"]
    daily = {"schedule": {"interval": 86_400}, "active": True}
    up.ask(f"/deployments/{deployment}/schedules", [daily])
    made = {"deployments": {"id": {"any_": [deployment]}}, "flow_runs": {"tags": {"all_": ["auto-scheduled"]}}}
    soon(lambda: up.ask("/flow_runs/count", made), 120)
    logs = [log.read_text() for log in Path(up.told["logs"]).glob("*.log")]
    assert logs
    assert [line for log in logs for line in log.splitlines() if "Traceback" in line or "| ERROR" in line] == []


@pytest.mark.slow
def test_an_mlflow_that_is_killed_comes_up_again(up: Running) -> None:
    """Its process starts another one, which holds the port and does not end with it."""
    port = int(up.told["mlflow"].rpartition(":")[2])

    def listening() -> int | None:
        for process in up.processes():
            with contextlib.suppress(psutil.Error):
                if any(c.laddr.port == port and c.status == "LISTEN" for c in process.net_connections("inet")):
                    return process.pid
        return None

    before = listening()
    assert before is not None
    [server] = [p for p in up.processes() if "mlflow" in p.cmdline() and p.ppid() == up.process.pid]
    assert server.pid != before
    server.kill()

    def answers() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{up.told['mlflow']}/health", timeout=5) as answer:
            return listening() not in (None, before) and answer.status == 200
        return False

    soon(answers)
    assert up.process.poll() is None
    assert up.errors.read_text().count("the MLflow server ended (exit -9) and is restarted") == 1


def test_what_arrives_is_built_and_what_runs_is_stopped(up: Running, documents: list[str]) -> None:
    data = Path(up.told["warehouse"]).parent
    arrived = data.parent / "arriving" / "new.jsonl"
    arrived.write_text(documents[2], encoding="utf-8")

    def built() -> bool:
        wanted = {"parameters": {"corpus": str(arrived), "data": str(data)}}
        return any(run["parameters"] == wanted for run in up.ask("/flow_runs/filter", {}))

    soon(built)
    soon(up.working)
    assert up.stop() == 0
    assert up.processes() == []
    assert running_addresses(Store(data)) is None
    assert "has arrived and is built" in up.errors.read_text()
    for address in (up.told["ui"], up.told["mlflow"]):
        with socket.socket() as probe:
            assert probe.connect_ex((LOOPBACK, int(address.rpartition(":")[2])))


def test_a_taken_port_is_told_with_its_holder(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            PortTakenError, match=rf"port {port} is taken by process {os.getpid()} .* with --mlflow-port"
        ):
            Up(str(tmp_path), prefect_port=0, mlflow_port=port, view_port=0)
    FileLock(tmp_path / "up" / "lock").close()  # the folder is free again


def test_options_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--prefect-port and --mlflow-port are both 4200"):
        Up(str(tmp_path), prefect_port=4200, mlflow_port=4200)
    with pytest.raises(UsageError, match="--watch: there is no folder"):
        Up(str(tmp_path), watch=str(tmp_path / "none"))


def test_what_an_earlier_one_left_behind_is_in_nobodys_way(tmp_path: Path) -> None:
    lock = tmp_path / "up" / "lock"
    with FileLock(lock):
        held = lock.read_bytes()
        with pytest.raises(
            UpError, match=r"is already running .* it is starting; wait for it, or stop it first \(kill"
        ):
            Up(str(tmp_path), prefect_port=0, mlflow_port=0, view_port=0)
    lock.write_bytes(held)  # as it is when its holder was killed: the words of a process that holds it no longer
    (tmp_path / "up" / "addresses.json").write_text(json.dumps({"pid": 1}))
    assert running_addresses(Store(tmp_path)) is None
    own = Up(str(tmp_path), prefect_port=0, mlflow_port=0, view_port=0)
    with pytest.raises(LockHeldError):
        FileLock(lock)
    own.stop()  # it was never started
    FileLock(lock).close()


@pytest.mark.slow
def test_the_next_says_what_became_of_a_killed_ones_runs(documents: list[str], tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(documents), encoding="utf-8")
    data = tmp_path / "data"
    with started(data) as first:
        run = first.submit("build-dataset", {"corpus": str(corpus), "data": str(data)})
        soon(first.working)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        soon(lambda: not first.processes())
    with started(data) as second:
        assert second.ask(f"/flow_runs/{run}")["state"]["type"] == "CRASHED"
        second.submit("build-dataset", {"corpus": str(corpus), "data": str(data), "seed": 1})
        soon(second.working)
        second.process.send_signal(signal.SIGTERM)
        assert second.stop(signal.SIGINT) == 0  # the second time it waits for nothing
        assert second.processes() == []


@pytest.mark.slow
def test_an_evaluation_runs_and_a_training_that_goes_on_leaves_a_checkpoint(as_built: Path) -> None:
    figures = {"steps": 1000, "batch": 2, "evaluate_every": 1000, "dev_documents": 0, "sequence_length": 128}
    with started(as_built) as up:
        run = up.submit("evaluate", {"data": str(as_built), "task": "small-world", "limit": 2, "arms": ["base"]})
        assert up.ended(run)["type"] == "COMPLETED"
        up.submit("finetune", {"data": str(as_built), "profile": "core", **figures})

        def trains() -> Path | None:
            jobs = list((as_built / "finetunes").glob("*/events.jsonl"))
            return next((j.parent for j in jobs if any(e["event"] == "step" for e in read_events(j.parent)[0])), None)

        job = soon(trains)
        assert up.stop() == 0
        assert up.processes() == []
    last = read_events(job)[0][-1]
    assert (last["event"], last["step"] > 0) == ("stopped", True)
    assert list((job / "checkpoints").iterdir())
