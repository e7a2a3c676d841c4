"""The flow `finetune` on a real C*: one process, two of ZeRO-3, a rank killed, a stop, a failure, and both arms."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from mlflow import MlflowClient

from flows.finetune.flow import FinetuneResult, reporting_events_to, run_finetune
from flows.finetune.parameters import FinetuneParameters
from flows.finetune.resolve import check_machine, resolve
from tasks.launch.base import LaunchError, LostError
from tasks.tracking import CANDIDATE
from tasks.training.job import write_job_folder
from tasks.training.outcome import TrainingError, TrainingOutcome, outcome_of
from tests.support.commands import Run
from tests.support.servers_up import toolformer, variables
from tests.support.small_builds import Built, write_jsonl
from tests.tasks.launch.launch_cases import slurm_commands
from toolformer_core.errors import UsageError
from toolformer_core.finetune.events import read_events
from toolformer_core.finetune.recipe import read_job
from toolformer_core.lm.load import load_model
from toolformer_core.syntax import find_calls, strip
from warehouse.queries import rows_of
from warehouse.store import Store

NAMES = ["Calculator", "Calendar"]
FINISHED = {"event": "finished", "step": 8, "best_step": 4, "best_perplexity": 2.0}
ROOT = Path(__file__).parents[3]


def asked(built: Built, folder: Path, *, profile: dict[str, Any] | None = None, **changes: Any) -> FinetuneParameters:
    """Eight small steps, gradients added up over passes; `folder` takes the jobs: every test trains for itself."""
    told = {"device": "cpu", "precision": "fp32", "micro_batch": 1, "jobs": str(folder / "jobs"), **(profile or {})}
    file = folder / "profile.json"
    file.write_text(json.dumps(told), encoding="utf-8")
    figures = {"steps": 8, "batch": 4, "learning_rate": 1e-3, "evaluate_every": 4, "sequence_length": 256}
    return FinetuneParameters(data=str(built[1]), dataset="cstar", profile=str(file), **{**figures, **changes})


def losses(result: FinetuneResult) -> dict[int, float]:
    """The last word on every step's loss."""
    return {e["step"]: e["loss"] for e in read_events(Path(result.folder))[0] if e["event"] == "step"}


def perplexity(model: str, texts: list[str]) -> float:
    """Plainly: one text at a time behind the start token, calls disabled."""
    lm = load_model(model, device="cpu").hf_model
    nll, tokens = 0.0, 0
    for text in texts:
        ids = torch.tensor([[lm.bos, *lm.encode(text)]])
        with torch.no_grad():
            logits = lm.model(input_ids=ids).logits[0, :-1]
        logits[ids[0, 1:] != lm.trigger[0], lm.trigger[0]] = -torch.inf
        nll += float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
        tokens += ids.shape[1] - 1
    return math.exp(nll / tokens)


@pytest.fixture(scope="module")
def undisturbed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> FinetuneResult:
    return run_finetune(asked(built, tmp_path_factory.mktemp("undisturbed")))


def assert_reloads(result: FinetuneResult) -> None:
    dev = [json.loads(line)["text"] for line in (Path(result.folder) / "dev.jsonl").read_text().splitlines()]
    assert result.best_perplexity is not None
    assert perplexity(result.model, dev) == pytest.approx(result.best_perplexity, rel=1e-3)


def test_a_training_ends_in_a_checkpoint_that_reloads_with_the_same_loss(undisturbed: FinetuneResult) -> None:
    assert read_events(Path(undisturbed.folder))[0][0]["engine"] == "plain"
    assert_reloads(undisturbed)


def test_mlflow_holds_thresholds_digests_curves_and_the_candidate(built: Built, undisturbed: FinetuneResult) -> None:
    client = MlflowClient(undisturbed.tracking, undisturbed.tracking)
    run = client.get_run(undisturbed.run_id)
    assert run.info.status == "FINISHED"
    settings = ("tau_f", "tau_s", "top_k", "samples")
    assert [run.data.params[f"{name}.calendar"] for name in settings] == ["0.2", "0.05", "3", "2"]
    assert run.data.params["recipe.learning_rate"] == "0.001"
    assert run.data.params["dataset_digest"] == built[0].version
    assert [m.step for m in client.get_metric_history(run.info.run_id, "loss")] == list(range(1, 9))
    assert [m.step for m in client.get_metric_history(run.info.run_id, "dev_perplexity")] == [0, 4, 8]
    used = {i.tags[0].value: i.dataset.name for i in run.inputs.dataset_inputs}
    assert used == {"train": f"cstar@{built[0].version}", "dev": "cstar-dev"}
    chosen = client.get_model_version_by_alias("toolformer-embedded", CANDIDATE)
    assert chosen.run_id == undisturbed.run_id
    made_of = client.get_run(run.data.tags["run.build"])  # made by the first training on this version
    assert made_of.info.experiment_id == run.info.experiment_id
    assert made_of.data.tags["dataset"] == run.data.tags["dataset"] == f"cstar@{built[0].version}"
    assert made_of.data.params["tau_f.calendar"] == "0.2"
    assert f"/runs/{made_of.info.run_id})" in chosen.description
    assert [f.path for f in client.list_artifacts(run.info.run_id, "figures")]


def test_the_warehouse_tells_of_the_training(built: Built, undisturbed: FinetuneResult) -> None:
    sql = "SELECT *, (recipe->>'batch')::INT AS batch FROM trainings WHERE run_id = $run_id"
    (row,) = rows_of(built[1] / "warehouse.duckdb", sql, {"run_id": undisturbed.run_id})
    expected = {"arm": "toolformer", "dataset": "cstar", "version": built[0].version, "model": "embedded"}
    expected |= {"best_perplexity": undisturbed.best_perplexity, "base_perplexity": undisturbed.base_perplexity}
    assert {name: row[name] for name in expected} == expected
    assert (row["checkpoint"], row["steps"], row["batch"]) == (undisturbed.model, 8, 4)
    assert row["train_loss"] == losses(undisturbed)[8]
    assert 0 < row["seconds"] < 600


def test_the_same_call_again_finds_it_finished(built: Built, undisturbed: FinetuneResult) -> None:
    again = run_finetune(asked(built, Path(undisturbed.folder).parent.parent))
    assert again.skipped
    assert (again.run_id, again.best_perplexity) == (undisturbed.run_id, undisturbed.best_perplexity)
    assert MlflowClient(again.tracking).get_run(again.run_id).info.status == "FINISHED"


@pytest.mark.slow
def test_a_killed_rank_goes_on_from_the_checkpoint(built: Built, undisturbed: FinetuneResult, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_a_rank(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] >= 5 and not killed:
            for process in psutil.process_iter(["cmdline"]):
                words = process.info["cmdline"] or []
                is_rank = "toolformer_core.finetune" in words and "torch.distributed.run" not in words
                if is_rank and any(str(tmp_path) in word for word in words) and not killed:
                    killed.append(process.pid)
                    process.kill()

    parameters = asked(built, tmp_path, profile={"processes": 2}, steps=8)
    with reporting_events_to(kill_a_rank):
        result = run_finetune(parameters)
    starts = [e["from_step"] for e in read_events(Path(result.folder))[0] if e["event"] == "started"]
    assert killed
    assert starts == [0, 4]  # the second attempt goes on from the checkpoint at step 4
    assert losses(result)[8] == pytest.approx(losses(undisturbed)[8], abs=1e-3)
    assert result.best_perplexity == pytest.approx(undisturbed.best_perplexity, rel=1e-3)


@pytest.mark.slow
def test_two_processes_of_zero_3_end_where_one_does(built: Built, undisturbed: FinetuneResult, tmp_path: Path) -> None:
    two = run_finetune(asked(built, tmp_path, profile={"processes": 2}))
    started = read_events(Path(two.folder))[0][0]
    assert (started["world_size"], started["engine"], started["zero_stage"]) == (2, "deepspeed", 3)
    assert losses(two) == pytest.approx(losses(undisturbed), abs=1e-3)
    assert_reloads(two)


@pytest.mark.slow
def test_a_loss_that_is_no_number_fails_with_its_reason(built: Built, tmp_path: Path) -> None:
    attempts: list[str] = []
    parameters = asked(built, tmp_path, learning_rate=1e30, retries=2)
    with reporting_events_to(lambda e: attempts.append(e["event"])), pytest.raises(TrainingError) as failed:
        run_finetune(parameters)
    assert failed.value.reason == "nan_loss"
    assert "LossError" in failed.value.tail  # the log's last lines
    assert attempts.count("started") == 1  # trying again would give the same
    folder = resolve(parameters).spec.folder
    run = MlflowClient(f"sqlite:///{built[1] / 'mlflow.db'}").get_run((folder / "mlflow_run").read_text().strip())
    assert run.info.status == "FAILED"
    assert run.data.tags["reason"] == "nan_loss"


def test_a_queue_refuses_or_is_silent(built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, commands = slurm_commands(tmp_path)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    slurm = {"launcher": "slurm", "slurm": {"partition": "nosuch", "gpus_per_node": 0}}
    parameters = asked(built, tmp_path, profile=slurm)
    folder = resolve(parameters).spec.folder

    def status() -> str:
        client = MlflowClient(f"sqlite:///{built[1] / 'mlflow.db'}")
        return str(client.get_run((folder / "mlflow_run").read_text().strip()).info.status)

    with pytest.raises(LaunchError, match="Invalid partition name"):
        run_finetune(parameters)
    assert status() == "FAILED"
    (table / "down").touch()
    with pytest.raises(LostError, match="Unable to contact slurm controller"):
        run_finetune(parameters)
    assert status() == "RUNNING"  # for all that anybody knows
    assert not list(table.glob("*.json"))


def test_arms_learn_from_the_same_documents(built: Built, tmp_path: Path) -> None:
    texts = {}
    for arm in ("toolformer", "cc"):
        spec = resolve(asked(built, tmp_path, arm=arm)).spec
        card = write_job_folder(spec, Store(built[1]))
        lines = (spec.folder / "train.jsonl").read_text(encoding="utf-8").splitlines()
        texts[arm] = [json.loads(line)["text"] for line in lines]
        assert card.train == len(lines)
        assert card.dev == 1  # a tenth of 16 documents
        assert card.base_digest == spec.model_digest  # by which its base is known wherever it lies
    for with_calls, plain in zip(texts["toolformer"], texts["cc"], strict=True):
        spans = [(call.start, call.end) for call in find_calls(with_calls, NAMES)]
        assert spans
        assert strip(with_calls, spans) == plain
        assert not list(find_calls(plain, NAMES))


def test_a_job_is_named_by_all_its_result_depends_on(built: Built, tmp_path: Path) -> None:
    one = resolve(asked(built, tmp_path)).spec
    assert resolve(asked(built, tmp_path, retries=5)).spec.folder == one.folder  # how often to try is no part of it
    for change in ({"arm": "cc"}, {"seed": 1}, {"steps": 9}, {"dev_documents": 0}):
        assert resolve(asked(built, tmp_path, **change)).spec.folder != one.folder


def test_a_relative_folder_is_found_from_jobs(built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = Path(resolve(asked(built, tmp_path)).spec.model)
    (tmp_path / "models").symlink_to(embedded.parent)
    monkeypatch.chdir(tmp_path)
    spec = resolve(asked(built, tmp_path, model=f"models/{embedded.name}")).spec
    assert spec.model == str(tmp_path / "models" / embedded.name)
    other = resolve(asked(built, tmp_path, steps=9)).spec
    assert [write_job_folder(one, Store(built[1])).number for one in (spec, other)] == [1, 2]  # in the order of writing
    assert read_job(spec.folder).model == spec.model
    elsewhere = replace(spec, model=str(embedded), device="cuda")  # the same training
    assert write_job_folder(elsewhere, Store(built[1])).number == 1
    assert (read_job(spec.folder).model, read_job(spec.folder).device) == (str(embedded), "cuda")


@pytest.mark.parametrize(
    ("changes", "profile", "says"),
    [
        ({"dataset": "cstarr"}, {}, "Did you mean 'cstar'"),
        ({"profile": "gpus"}, {}, "unknown profile 'gpus'"),
        ({}, {"micro_batch": 0}, "micro_batch"),
        ({}, {"processes": 2, "engine": "plain"}, "deepspeed"),
        ({}, {"launcher": "ssh", "ssh": {"hostss": ["a"]}}, "hostss"),
        ({}, {"launcher": "ssh", "ssh": {"hosts": "node1"}}, "ssh: hosts: Input should be a valid tuple"),
    ],
)
def test_mistakes_are_answered_before_anything_starts(
    built: Built, tmp_path: Path, changes: dict[str, str], profile: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        resolve(asked(built, tmp_path, profile=profile).model_copy(update=changes))


@pytest.mark.parametrize(
    ("options", "package", "told"),
    [
        (["--profile", "gpu"], "", "no GPU here, and the profile trains on one: give --profile cpu"),
        (["--profile", "lora"], "", "no GPU here"),
        (["--profile", "cpu", "--processes", "2"], "deepspeed", "this training needs DeepSpeed, "),
    ],
)
def test_what_this_machine_cannot_do_is_refused_before_anything_starts(
    run: Run, as_built: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], package: str, told: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("flows.runtime.server.start_server", lambda: pytest.fail("a server was started"))
    if package:
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    before = {path.name for path in as_built.iterdir()}
    said = run("finetune", "--data", as_built, *options)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith(f"error: {told}")
    if package:
        assert said.err.endswith(f"--editable '{ROOT}[deepspeed]'\n")  # a command that works from this clone
    assert {path.name for path in as_built.iterdir()} - before <= {"prefect"}  # no job, and no MLflow run


def test_other_machines_are_not_measured_by_this_one(built: Built, tmp_path: Path) -> None:
    told = {"launcher": "ssh", "device": "cuda", "ssh": {"hosts": ["somewhere"]}, "processes": 8}
    check_machine(resolve(asked(built, tmp_path, profile=told)))


def test_what_is_finished_needs_no_gpu_any_more(built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    plan = resolve(asked(built, tmp_path, profile={"device": "cuda", "processes": 1}))
    with pytest.raises(UsageError, match="no GPU here"):
        check_machine(plan)
    plan.spec.folder.mkdir(parents=True)
    write_jsonl(plan.spec.folder / "events.jsonl", [{"event": "started"}, FINISHED])
    check_machine(plan)


@pytest.mark.slow
def test_a_failure_is_told_once_and_nothing_of_prefect_s_behind_it(as_built: Path) -> None:
    words = ["finetune", "--data", str(as_built), "--profile", "core", "--steps", "4", "--batch", "2", "--retries", "0"]
    ended = subprocess.run(
        toolformer(*words, "--learning-rate", "1e30"), env=variables(), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: training failed (nan_loss): ")
    assert not any(told in ended.stderr for told in ("Traceback", "Logging error", "Error logging", "attempts failed"))


def test_the_last_attempt_s_word_counts() -> None:
    started, stopped = {"event": "started"}, {"event": "stopped", "step": 3}
    assert outcome_of([]) is None
    assert outcome_of([started, stopped, started]) is None  # the second attempt has not said how it ended
    assert outcome_of([started, stopped, started, FINISHED]) == TrainingOutcome(True, 8, 4, 2.0)
