"""The flows as deployments: a real server, a real worker in a process of its own, real trainings."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolUpdate
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker

from ops.deployments import POOLS, DeployError, DeploymentOptions, deploy, main
from ops.work_pools import pool_template
from tests.support.small_builds import Built
from toolformer_core import __version__
from toolformer_core.errors import UsageError


def test_deploying_again_changes_nothing(client: SyncPrefectClient, built: Built) -> None:
    before = {d: client.read_deployment_by_name(d) for d in deploy(DeploymentOptions(str(built[1])))}
    client.update_work_pool("cpu", WorkPoolUpdate(concurrency_limit=3))  # the user's own
    after = {d: client.read_deployment_by_name(d) for d in deploy(DeploymentOptions(str(built[1])))}
    assert list(after) == [
        *("build-dataset/build-dataset", "build-dataset/build-in-short", "export/export", "evaluate/evaluate"),
        *("finetune/finetune", "ground/ground", "recipe/recipe"),
    ]
    assert {d: a.id for d, a in after.items()} == {d: b.id for d, b in before.items()}
    assert [client.read_work_pool(name).type for name in POOLS] == ["process", "process"]
    assert client.read_work_pool("cpu").concurrency_limit == 3
    training = after["finetune/finetune"]
    assert (training.work_pool_name, training.version) == ("gpu", __version__)
    assert training.tags == ["toolformer", "training"]
    assert training.entrypoint == "flows.finetune.flow.finetune"
    assert str(training.description).startswith("Finetune a model on C*")
    assert training.parameters == {"parameters": {"data": str(built[1])}}
    assert training.pull_steps is not None  # without one a worker copies the folder in which it was started
    assert [list(step.values()) for step in training.pull_steps] == [[{"directory": "."}]]


BUILD, EVALUATE, FINETUNE = "build-dataset/build-dataset", "evaluate/evaluate", "finetune/finetune"
WHERE = {"data": "/data"}
CORPUS = {**WHERE, "corpus": "/corpus.jsonl"}


@pytest.mark.parametrize(
    ("name", "told", "refused"),
    [
        (FINETUNE, {"data": "toolformer-data"}, "'toolformer-data' does not match"),
        (FINETUNE, {"dataset": "cstar"}, "'data' is a required property"),
        (FINETUNE, {**WHERE, "step": 10}, "'step' was unexpected"),
        (FINETUNE, {**WHERE, "profile": "fast.json"}, "'fast.json' is not valid"),
        (FINETUNE, {**WHERE, "dataset": "../cstar"}, "does not match"),
        (BUILD, {**WHERE, "corpus": "c4.jsonl"}, "'c4.jsonl' does not match"),
        (BUILD, {**CORPUS, "tools": ["calculater"]}, "'calculater' is not one of"),
        (BUILD, {**CORPUS, "tool": ["miles.py:miles"]}, "'miles.py:miles' does not match"),  # not the whole path
        (BUILD, {**CORPUS, "tool": ["Km=miles.yaml"]}, "'Km=miles.yaml' does not match"),
        (BUILD, {**CORPUS, "model": "../model"}, "'../model' does not match"),
        (EVALUATE, {**WHERE, "task": "swamp"}, "'swamp' is not one of"),
    ],
)
def test_the_api_refuses_in_the_form(client: SyncPrefectClient, name: str, told: dict[str, Any], refused: str) -> None:
    deployment = client.read_deployment_by_name(name)
    with pytest.raises(PrefectHTTPStatusError) as failed:
        client.create_flow_run_from_deployment(deployment.id, parameters={"parameters": told})
    assert refused in failed.value.response.text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (BUILD, {**CORPUS, "tools": ["mt", "qa"], "tau_f": {"mt": 0.2}, "tau_s": 0.0, "passages": None}),
        (EVALUATE, {**WHERE, "task": "small-world", "k": [0, 10], "cc": "/data/finetunes/cc"}),
        (FINETUNE, {**WHERE, "profile": "/profiles/mine.json", "dataset": "cstar@0f3a", "model": "gpt2"}),
        (FINETUNE, {"data": "s3://bucket/data", "profile": "cpu"}),
    ],
)
def test_the_api_takes_what_the_flow_takes(client: SyncPrefectClient, name: str, told: dict[str, Any]) -> None:
    deployment = client.read_deployment_by_name(name)
    run = client.create_flow_run_from_deployment(deployment.id, parameters={"parameters": told})
    assert run.parameters == {"parameters": told}
    client.delete_flow_run(run.id)


def schedules(client: SyncPrefectClient) -> list[tuple[str | None, str, bool, Any]]:
    found = client.read_deployment_by_name(BUILD).schedules
    return [(one.slug, str(one.schedule.cron), one.active, one.parameters) for one in found]  # type: ignore[union-attr]


def test_what_was_switched_on_or_off_stays_so(client: SyncPrefectClient, built: Built) -> None:
    data = str(built[1])
    [name, *_] = deploy(DeploymentOptions(data))
    assert schedules(client) == []  # there is nothing to build
    filled = {"data": data, "corpus": "/corpora"}
    deploy(DeploymentOptions(data, corpus="/corpora"))
    assert schedules(client) == [("nightly", "0 2 * * *", False, {"parameters": filled})]
    assert client.read_deployment_by_name(name).parameters == {"parameters": filled}
    deploy(DeploymentOptions(data, corpus="/corpora", schedule="30 4 * * 1"))
    deploy(DeploymentOptions(data))  # as the next `toolformer up` does
    assert schedules(client) == [("nightly", "30 4 * * 1", True, {"parameters": filled})]

    [trigger] = client.read_automations_by_name("build-dataset when a corpus arrives")
    assert not trigger.enabled
    client.resume_automation(trigger.id)
    deploy(DeploymentOptions(data))
    [trigger] = client.read_automations_by_name("build-dataset when a corpus arrives")
    assert trigger.enabled
    [action] = trigger.actions
    assert action.parameters == {"parameters": {"data": data, "corpus": "{{ event.payload.corpus }}"}}  # type: ignore[union-attr]
    client.pause_automation(trigger.id)
    deploy(DeploymentOptions(data, on_arrival=True))
    [trigger] = client.read_automations_by_name("build-dataset when a corpus arrives")
    assert trigger.enabled


def test_a_wrong_schedule_is_told_in_one_line(client: SyncPrefectClient) -> None:
    with pytest.raises(UsageError, match="--schedule needs --corpus"):
        DeploymentOptions("data", schedule="0 2 * * *")
    with pytest.raises(UsageError, match="'at night' is not a cron line"):
        deploy(DeploymentOptions("data", corpus="/corpora", schedule="at night"))


TRACKING = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:5000"}


def configured(client: SyncPrefectClient, pool: str, **posted: Any) -> ProcessJobConfiguration:
    """What a worker of the pool makes of a run's job variables, though the API had let them through."""
    template = client.read_work_pool(pool).base_job_template
    return asyncio.run(ProcessJobConfiguration.from_template_and_values(template, posted))


def test_workers_are_told_of_one_tracking_server(client: SyncPrefectClient, built: Built) -> None:
    [*_, name] = deploy(DeploymentOptions(str(built[1]), tracking="http://127.0.0.1:5000"))
    assert client.read_deployment_by_name(name).job_variables == {}
    assert configured(client, "gpu").env == TRACKING
    deploy(DeploymentOptions(str(built[1])))
    assert configured(client, "gpu").env == {}


CHOSEN = {"command": "touch /tmp/here", "env": {"PYTHONPATH": "/tmp"}, "working_dir": "/tmp", "env.PYTHONPATH": "/tmp"}


def test_a_run_does_not_choose_what_a_worker_executes(client: SyncPrefectClient) -> None:
    one = client.read_deployment_by_name(FINETUNE)
    before = len(client.read_flow_runs())
    for name, value in CHOSEN.items():
        told = {"parameters": {"parameters": WHERE}, "job_variables": {name: value}}
        with pytest.raises(PrefectHTTPStatusError, match="422") as failed:
            client.request("POST", "/deployments/{id}/create_flow_run", path_params={"id": one.id}, json=told)
        assert f"'{name}' was unexpected" in failed.value.response.text
        assert configured(client, "gpu", **{name: value}) == configured(client, "gpu")
    assert len(client.read_flow_runs()) == before


def test_the_pools_of_an_older_installation_are_closed(client: SyncPrefectClient, built: Built) -> None:
    """A pool as Prefect makes it, with an owner's own defaults; a deployment with job variables of its own."""
    old = ProcessWorker.get_default_base_job_template()
    old["variables"]["properties"]["env"]["default"] = {"HTTPS_PROXY": "http://10.0.0.1:3128"}
    old["variables"]["properties"]["stream_output"]["default"] = False
    client.update_work_pool("gpu", WorkPoolUpdate(base_job_template=old))
    name = deploy(DeploymentOptions(str(built[1])))[-1]  # closes it
    client.update_work_pool("gpu", WorkPoolUpdate(base_job_template=old))
    one = client.read_deployment_by_name(name)
    client.update_deployment(one.id, DeploymentUpdate(job_variables={"env": TRACKING}))
    deploy(DeploymentOptions(str(built[1])))  # as the next `toolformer up` does
    found = configured(client, "gpu", **CHOSEN)
    assert found.command is None
    assert found.working_dir is None
    assert found.stream_output is False
    assert configured(client, "gpu").env == {"HTTPS_PROXY": "http://10.0.0.1:3128"}
    # no old variable is refused
    run = client.create_flow_run_from_deployment(one.id, parameters={"parameters": {**WHERE, "recipe": "demo"}})
    client.delete_flow_run(run.id)
    closed_once = client.read_work_pool("gpu").base_job_template
    deploy(DeploymentOptions(str(built[1])))
    assert client.read_work_pool("gpu").base_job_template == closed_once
    client.update_work_pool("gpu", WorkPoolUpdate(base_job_template=pool_template()))


def test_the_template_for_prefects_own_command_is_that_of_the_pools(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--template", "--tracking", "http://127.0.0.1:5000"])
    assert json.loads(capsys.readouterr().out) == pool_template("http://127.0.0.1:5000")


def test_data_at_a_url_is_built_where_deploy_was_called(client: SyncPrefectClient, built: Built) -> None:
    [name, *_] = deploy(DeploymentOptions("s3://bucket/data"))
    found = client.read_deployment_by_name(name)
    assert found.parameters == {"parameters": {"data": "s3://bucket/data"}}
    assert found.pull_steps is not None
    assert [list(step.values()) for step in found.pull_steps] == [[{"directory": str(Path.cwd())}]]
    deploy(DeploymentOptions(str(built[1])))


def test_no_server_is_told_in_one_line(prefect_server: None, capsys: pytest.CaptureFixture[str]) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        with pytest.raises(UsageError, match="set PREFECT_API_URL"):
            deploy(DeploymentOptions("data"))
        with pytest.raises(SystemExit) as left:
            main(["--data", "data"])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_server_that_is_not_there_is_told_in_one_line(prefect_server: None) -> None:
    nobody = "http://127.0.0.1:9/api"
    with temporary_settings({PREFECT_API_URL: nobody}), pytest.raises(DeployError, match=re.escape(nobody)):
        deploy(DeploymentOptions("data"))


@pytest.mark.slow
def test_prefects_own_deploy_does_what_deploy_does(client: SyncPrefectClient, built: Built, tmp_path: Path) -> None:
    def found() -> list[dict[str, Any]]:
        kept = {"name", "description", "version", "tags", "parameters", "entrypoint", "pull_steps", "work_pool_name"}
        kept |= {"parameter_openapi_schema", "enforce_parameter_schema", "job_variables"}
        names = (BUILD, EVALUATE, FINETUNE)
        return [client.read_deployment_by_name(name).model_dump(include=kept) for name in names]

    options = DeploymentOptions(str(built[1]), corpus="/corpora", tracking="http://127.0.0.1:5000")
    deploy(options)
    ours, ours_at = found(), schedules(client)
    for name in (BUILD, EVALUATE, FINETUNE):
        client.delete_deployment(client.read_deployment_by_name(name).id)
    for one in client.read_automations_by_name("build-dataset when a corpus arrives"):
        client.delete_automation(one.id)
    variables = {
        **os.environ,
        "PREFECT_API_URL": PREFECT_API_URL.value() or "",
        "PREFECT_HOME": str(tmp_path),
        "TOOLFORMER_DATA": options.data,
        "TOOLFORMER_CORPUS": options.corpus,
        "MLFLOW_TRACKING_URI": options.tracking,
    }
    words = ["--no-prompt", "deploy", "--all", "--prefect-file", str(Path(__file__).parents[2] / "prefect.yaml")]
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *words], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert found() == ours
    assert schedules(client) == ours_at
    [trigger] = client.read_automations_by_name("build-dataset when a corpus arrives")
    assert not trigger.enabled
    [action] = trigger.actions
    assert action.parameters == {"parameters": {"data": options.data, "corpus": "{{ event.payload.corpus }}"}}  # type: ignore[union-attr]
    deploy(DeploymentOptions(str(built[1])))
