"""Trainings that a real worker runs for a deployment, in a process of its own: killed, cancelled, and continued."""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil
import pytest
from mlflow import MlflowClient
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelling

from flows.finetune.flow import end_cancelled, finetune, prepare_job, run_finetune
from flows.finetune.parameters import FinetuneParameters
from flows.finetune.resolve import resolve
from flows.finetune.tracking import start_run
from ops.processes import ProcessGroup, Service
from tasks.launch.processes import LAUNCH_VARIABLE
from tasks.training.starting import launch, running_handle
from tests.support.small_builds import Built
from tests.support.waiting import soon
from toolformer_core.finetune.events import read_events


@pytest.fixture(scope="module")
def worker(client: SyncPrefectClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A worker as it would run on a GPU node, started in a folder of its own: it finds the flows as a package."""
    folder = tmp_path_factory.mktemp("worker")
    words = ["worker", "start", "--pool", "gpu", "--type", "process", "--limit", "1", "--name", "node"]
    variables = {"PREFECT_API_URL": PREFECT_API_URL.value(), "PREFECT_HOME": str(folder)}
    variables |= {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_LOGGING_LEVEL": "INFO"}
    argv = (sys.executable, "-m", "prefect", *words)
    service, group = Service("worker", argv, folder / "log.txt", variables, lambda: True), ProcessGroup()
    group.start(service)
    yield
    group.send_signal([service], signal.SIGINT)
    group.wait_until_ended([service], 60)  # for the runs that go on, if a test failed half-way
    group.close()


def asked(built: Built, folder: Path, **changes: Any) -> FinetuneParameters:
    """A few small steps on this machine; `folder` takes the jobs, so that every test trains for itself."""
    file = folder / "profile.json"
    told = {"device": "cpu", "precision": "fp32", "micro_batch": 2, "jobs": str(folder / "jobs")}
    file.write_text(json.dumps(told), encoding="utf-8")
    figures = {"steps": 4, "batch": 2, "evaluate_every": 1000, "dev_documents": 0, "sequence_length": 128}
    return FinetuneParameters(data=str(built[1]), profile=str(file), **{**figures, **changes})


def start(client: SyncPrefectClient, parameters: FinetuneParameters) -> UUID:
    deployment = client.read_deployment_by_name("finetune/finetune")
    told = {"parameters": parameters.model_dump(mode="json")}
    return client.create_flow_run_from_deployment(deployment.id, parameters=told).id


def ended(client: SyncPrefectClient, run: UUID) -> State[Any]:
    def state() -> State[Any] | None:
        found = client.read_flow_run(run).state
        return found if found is not None and found.is_final() else None

    return soon(state)


def steps(folder: Path) -> list[int]:
    return [e["step"] for e in read_events(folder)[0] if e["event"] == "step"]


def starts(folder: Path) -> list[int]:
    """The step from which each attempt went on."""
    return [e["from_step"] for e in read_events(folder)[0] if e["event"] == "started"]


def mlflow_status(built: Built, folder: Path) -> str:
    run_id = (folder / "mlflow_run").read_text(encoding="utf-8").strip()
    return str(MlflowClient(f"sqlite:///{built[1] / 'mlflow.db'}").get_run(run_id).info.status)


def flow_process(run: UUID) -> psutil.Process:
    """The process in which the worker runs the flow: not the training, which has inherited its environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            variables = process.environ()
            if variables.get("PREFECT__FLOW_RUN_ID") == str(run) and LAUNCH_VARIABLE not in variables:
                return process
    raise AssertionError(f"no process runs the flow run {run}")


@pytest.mark.slow
def test_a_killed_flow_run_is_followed(client: SyncPrefectClient, worker: None, built: Built, tmp_path: Path) -> None:
    parameters = asked(built, tmp_path, steps=100)
    folder = resolve(parameters).spec.folder
    run = start(client, parameters)
    soon(lambda: steps(folder))
    flow_process(run).kill()
    assert running_handle(resolve(parameters).launcher, folder)
    result = run_finetune(parameters)
    assert not result.skipped
    assert starts(folder) == [0]
    assert ended(client, run).is_crashed()


@pytest.mark.slow
def test_a_cancelled_run_goes_on(client: SyncPrefectClient, worker: None, built: Built, tmp_path: Path) -> None:
    parameters = asked(built, tmp_path, steps=100)
    folder = resolve(parameters).spec.folder
    run = start(client, parameters)
    soon(lambda: steps(folder))
    assert (folder / "flow_run").read_text(encoding="utf-8").strip() == str(run)  # by which the hook finds the job
    client.set_flow_run_state(run, Cancelling())
    assert ended(client, run).is_cancelled()
    assert running_handle(resolve(parameters).launcher, folder) is None
    last = read_events(folder)[0][-1]
    assert last["event"] == "stopped"
    assert 0 < last["step"] < 100
    assert mlflow_status(built, folder) == "KILLED"
    assert ended(client, start(client, parameters)).is_completed()
    assert starts(folder) == [0, last["step"]]
    assert steps(folder) == list(range(1, 101))
    assert mlflow_status(built, folder) == "FINISHED"


@pytest.mark.slow
def test_the_hook_waits_for_the_checkpoint(prefect_server: None, built: Built, tmp_path: Path) -> None:
    parameters = asked(built, tmp_path, steps=1000)
    plan = resolve(parameters)
    folder = plan.spec.folder
    card = prepare_job.fn(plan.spec, parameters.data)
    tracked = start_run(plan, parameters, card)
    run = FlowRun(flow_id=uuid4(), name="cancelled", parameters={"parameters": parameters.model_dump()})
    (folder / "flow_run").write_text(f"{run.id}\n", encoding="utf-8")
    launch(plan.launcher, folder, 1)
    soon(lambda: steps(folder))
    [hook] = finetune.on_cancellation_hooks
    assert hook is end_cancelled
    hook(finetune, run, Cancelling())
    assert running_handle(plan.launcher, folder) is None
    assert read_events(folder)[0][-1]["event"] == "stopped"
    assert (folder / "checkpoints").is_dir()
    assert mlflow_status(built, folder) == "KILLED"
    assert len(tracked.history("loss")) == len(steps(folder))
    end_cancelled(finetune, run.model_copy(update={"id": uuid4()}), Cancelling())  # of no job
