"""The flows as deployments: a real server, a real worker in a process of its own, real trainings."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args
from uuid import UUID, uuid4

import psutil
import pytest
from mlflow import MlflowClient
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling

from flows.build_dataset import BuildResult
from flows.deployments import DEPLOYMENTS, POOLS, DeployError, deploy, form, main
from flows.finetune import (
    FinetuneParameters,
    _tracked,
    end_cancelled,
    finetune,
    plan_finetune,
    prepare_job,
    run_finetune,
)
from flows.training_profiles import Profile, load_profile
from tasks.finetune import launch, running
from tasks.launch.base import LaunchRequest
from tasks.launch.processes import MARK
from toolformer_core import __version__
from toolformer_core.errors import UsageError
from toolformer_core.finetune.events import read_events

pytestmark = (
    pytest.mark.filterwarnings(  # MLflow and Prefect's server, which the session's server brings, in one process
        "ignore:Type object .* does not refer to an OperatorClass:sqlalchemy.exc.SADeprecationWarning"
    )
)
Built = tuple[BuildResult, Path, list[str]]
T = TypeVar("T")


def wait_for(what: Callable[[], T | None], seconds: float = 120.0) -> T:
    """Ask until there is an answer."""
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
    return answer


@pytest.fixture(scope="module")
def client(prefect_server: None, built: Built) -> Iterator[SyncPrefectClient]:
    """A client of the session's server, with both flows deployed there."""
    with get_client(sync_client=True) as client:
        deploy(str(built[1]))
        yield client


@pytest.fixture(scope="module")
def worker(client: SyncPrefectClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A worker as it would run on a GPU node, started in a folder of its own: it finds the flows as a package."""
    folder = tmp_path_factory.mktemp("worker")
    words = ["worker", "start", "--pool", "gpu", "--type", "process", "--limit", "1", "--name", "node"]
    variables = {
        **os.environ,
        "PREFECT_API_URL": PREFECT_API_URL.value(),
        "PREFECT_HOME": str(folder),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_LOGGING_LEVEL": "INFO",
    }
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", *words], cwd=folder, env=variables, stdout=log, stderr=log
        )
        yield
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)  # for the runs that go on, if a test failed half-way
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for left in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if left.environ().get("PREFECT_HOME") == str(folder):
                    left.kill()


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

    return wait_for(state)


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
            if variables.get("PREFECT__FLOW_RUN_ID") == str(run) and MARK not in variables:
                return process
    raise AssertionError(f"no process runs the flow run {run}")


def test_deploying_again_changes_nothing(client: SyncPrefectClient, built: Built) -> None:
    before = {d: client.read_deployment_by_name(d) for d in deploy(str(built[1]))}
    after = {d: client.read_deployment_by_name(d) for d in deploy(str(built[1]))}
    assert list(after) == ["build-dataset/build-dataset", "finetune/finetune"]
    assert {d: a.id for d, a in after.items()} == {d: b.id for d, b in before.items()}
    assert [client.read_work_pool(name).type for name in POOLS] == ["process", "process"]
    training = after["finetune/finetune"]
    assert (training.work_pool_name, training.version, training.tags) == (
        "gpu",
        __version__,
        ["toolformer", "training"],
    )
    assert training.entrypoint == "flows.finetune.finetune"
    assert training.description is not None
    assert training.description.startswith("Finetune a model on C*")
    assert training.parameters == {"parameters": {"data": str(built[1])}}
    assert training.pull_steps is not None  # without one a worker copies the folder in which it was started
    assert [list(step.values()) for step in training.pull_steps] == [[{"directory": "."}]]


def test_a_pool_of_the_users_own_is_left_as_it_is(client: SyncPrefectClient, built: Built) -> None:
    client.update_work_pool("default", WorkPoolUpdate(concurrency_limit=3))
    deploy(str(built[1]))
    assert client.read_work_pool("default").concurrency_limit == 3


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ({"data": "toolformer-data"}, "'toolformer-data' does not match"),
        ({"dataset": "cstar"}, "'data' is a required property"),
        ({"data": "/data", "steps": 0}, "0 is less than or equal to the minimum of 0"),
        ({"data": "/data", "step": 10}, "'step' was unexpected"),
    ],
)
def test_the_api_refuses_what_a_worker_could_not_run(
    client: SyncPrefectClient, told: dict[str, Any], refused: str
) -> None:
    deployment = client.read_deployment_by_name("finetune/finetune")
    with pytest.raises(PrefectHTTPStatusError) as failed:
        client.create_flow_run_from_deployment(deployment.id, parameters={"parameters": told})
    assert refused in failed.value.response.text


def test_workers_are_told_of_one_tracking_server(client: SyncPrefectClient, built: Built) -> None:
    [*_, name] = deploy(str(built[1]), tracking="http://127.0.0.1:5000")
    assert client.read_deployment_by_name(name).job_variables == {
        "env": {"MLFLOW_TRACKING_URI": "http://127.0.0.1:5000"}
    }
    deploy(str(built[1]))
    assert client.read_deployment_by_name(name).job_variables == {}


def test_data_at_a_url_stays_a_url_and_its_builds_run_where_deploy_was_called(
    client: SyncPrefectClient, built: Built
) -> None:
    [name, *_] = deploy("s3://bucket/data")
    found = client.read_deployment_by_name(name)
    assert found.parameters == {"parameters": {"data": "s3://bucket/data"}}
    assert found.pull_steps is not None
    assert [list(step.values()) for step in found.pull_steps] == [[{"directory": str(Path.cwd())}]]
    deploy(str(built[1]))


EXAMPLES = re.findall(r"```json\n(.*?)```", (Path(__file__).parents[2] / "docs/finetune.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=[json.loads(text).get("launcher", "local") for text in EXAMPLES])
def test_the_documents_profiles_can_be_launched(text: str, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(text, encoding="utf-8")
    profile = load_profile(str(file))
    folder = Path(profile.jobs or tmp_path) / "job"
    assert "toolformer_core.finetune" in profile.build_launcher().preview(
        LaunchRequest("job", folder, profile.processes)
    )


def test_the_document_has_an_example_for_every_launcher() -> None:
    told = [json.loads(text).get("launcher", "local") for text in EXAMPLES]
    assert told == list(get_args(Profile.model_fields["launcher"].annotation))


def test_forms_ask_for_absolute_paths_and_keep_what_may_be_left_out() -> None:
    fields = form(DEPLOYMENTS[0])["definitions"]["BuildParameters"]
    assert fields["required"] == ["corpus", "data"]
    assert [kind["type"] for kind in fields["properties"]["passages"]["anyOf"]] == ["string", "null"]
    assert "pattern" in fields["properties"]["passages"]["anyOf"][0]
    assert "pattern" not in fields["properties"]["model"]


def test_no_server_is_told_in_one_line(prefect_server: None, capsys: pytest.CaptureFixture[str]) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        with pytest.raises(UsageError, match="set PREFECT_API_URL"):
            deploy("data")
        with pytest.raises(SystemExit) as left:
            main(["--data", "data"])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_server_that_is_not_there_is_told_in_one_line(prefect_server: None) -> None:
    with pytest.raises(DeployError, match=re.escape("Prefect's server at http://127.0.0.1:9/api")):
        deploy("data", api="http://127.0.0.1:9/api")


@pytest.mark.slow
def test_a_killed_flow_run_leaves_its_training_which_the_next_run_follows(
    client: SyncPrefectClient, worker: None, built: Built, tmp_path: Path
) -> None:
    parameters = asked(built, tmp_path, steps=100)
    folder = plan_finetune(parameters).spec.folder
    run = start(client, parameters)
    wait_for(lambda: steps(folder))
    flow_process(run).kill()
    assert running(plan_finetune(parameters).launcher, folder)
    result = run_finetune(parameters)
    assert not result.skipped
    assert starts(folder) == [0]
    assert ended(client, run).is_crashed()


@pytest.mark.slow
def test_a_cancelled_run_leaves_a_checkpoint_and_the_next_goes_on_from_it(
    client: SyncPrefectClient, worker: None, built: Built, tmp_path: Path
) -> None:
    parameters = asked(built, tmp_path, steps=100)
    folder = plan_finetune(parameters).spec.folder
    run = start(client, parameters)
    wait_for(lambda: steps(folder))
    assert (folder / "flow_run").read_text(encoding="utf-8").strip() == str(run)  # by which the hook finds the job
    client.set_flow_run_state(run, Cancelling())
    assert ended(client, run).is_cancelled()
    assert running(plan_finetune(parameters).launcher, folder) is None
    last = read_events(folder)[0][-1]
    assert last["event"] == "stopped"
    assert 0 < last["step"] < 100
    assert mlflow_status(built, folder) == "KILLED"
    assert ended(client, start(client, parameters)).is_completed()
    assert starts(folder) == [0, last["step"]]
    assert steps(folder) == list(range(1, 101))
    assert mlflow_status(built, folder) == "FINISHED"


def test_where_the_flow_run_was_killed_while_it_waited_the_hook_waits_for_the_checkpoint(
    prefect_server: None, built: Built, tmp_path: Path
) -> None:
    parameters = asked(built, tmp_path, steps=1000)
    plan = plan_finetune(parameters)
    folder = plan.spec.folder
    card = prepare_job.fn(plan.spec, parameters.data)
    tracked = _tracked(plan, parameters, card)
    run = FlowRun(flow_id=uuid4(), name="cancelled", parameters={"parameters": parameters.model_dump()})
    (folder / "flow_run").write_text(f"{run.id}\n", encoding="utf-8")
    launch(plan.launcher, folder, 1)
    wait_for(lambda: steps(folder))
    [hook] = finetune.on_cancellation_hooks
    assert hook is end_cancelled
    hook(finetune, run, Cancelling())
    assert running(plan.launcher, folder) is None
    assert read_events(folder)[0][-1]["event"] == "stopped"
    assert (folder / "checkpoints").is_dir()
    assert mlflow_status(built, folder) == "KILLED"
    assert len(tracked.history("loss")) == len(steps(folder))
    end_cancelled(finetune, run.model_copy(update={"id": uuid4()}), Cancelling())  # of no job
