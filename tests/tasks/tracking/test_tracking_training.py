"""A training run in MLflow: params, curves, checkpoints, the candidate, arms side by side."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from mlflow import MlflowClient

from tasks.tracking import CANDIDATE, CHECKPOINT, Tracking, TrainingRun
from tasks.tracking.figures import curves
from tests.support.waiting import soon
from tests.tasks.tracking.tracking_cases import DEV, DIGEST, EVENTS, PARAMS, STARTED, evaluated, saved, start, step


def everything(client: MlflowClient, run_id: str) -> dict[str, Any]:
    """All a user can see of a run, in plain values."""
    run = client.get_run(run_id)
    models = client.search_logged_models([run.info.experiment_id])
    return {
        "params": run.data.params,
        "tags": run.data.tags,
        "histories": {
            key: sorted((m.step, m.value, m.timestamp) for m in client.get_metric_history(run_id, key))
            for key in run.data.metrics
        },
        "inputs": [i.to_dictionary() for i in run.inputs.dataset_inputs],
        "outputs": sorted(o.model_id for o in run.outputs.model_outputs),
        "models": sorted((m.model_id, str(m.status), len(m.metrics or [])) for m in models),
        "versions": sorted((v.name, v.version, v.source) for v in client.search_model_versions()),
        "aliases": [dict(m.aliases) for m in client.search_registered_models()],
    }


def test_a_run_shows_what_it_was_made_of(tracking, client):
    run_id = start(tracking).run_id
    (run,) = client.search_runs([client.get_experiment_by_name("finetune").experiment_id], "params.`tau_f.qa` = '1.0'")
    assert run.info.run_id == run_id
    assert (run.info.run_name, run.info.status) == ("demo", "RUNNING")
    taus = {"tau_f.calculator": "0.5", "tau_f.qa": "1.0"}
    assert run.data.params == {**taus, "learning_rate": "1e-05", "code_version": "1", "arm": "toolformer"}
    assert run.data.tags["dataset_digest"] == DIGEST
    inputs = {i.tags[0].value: i.dataset for i in run.inputs.dataset_inputs}
    assert (inputs["train"].name, inputs["train"].digest) == ("demo/train", DIGEST[:36])  # MLflow's longest
    assert inputs["train"].source == '{"uri": "/data/datasets/demo/1.json"}'
    assert (inputs["dev"].digest, inputs["dev"].profile) == ("fedcba9876543210", '{"num_rows": 24}')


def test_events_become_curves_checkpoints_and_a_candidate(tracking, client):
    run = start(tracking)
    run.record(EVENTS)
    run.finish("FINISHED")
    found = everything(client, run.run_id)
    assert client.get_run(run.run_id).info.status == "FINISHED"
    assert found["histories"]["loss"] == [(n, 2.75 - n / 4, 1_001_000 + 1000 * (n - 1)) for n in (1, 2, 3, 4)]
    assert found["histories"]["dev_perplexity"] == [(0, 8.0, 1_000_200), (2, 7.0, 1_002_200), (4, 6.5, 1_004_200)]
    assert found["histories"]["best_dev_perplexity"] == [(4, 6.5, 1_005_000)]
    assert "grad_norm" not in found["histories"]  # it was null
    assert (found["tags"]["engine"], found["tags"]["world_size"]) == ("plain", "2")

    models = sorted(client.search_logged_models([run.experiment_id]), key=lambda m: m.tags["checkpoint"])
    assert [m.name for m in models] == [CHECKPOINT, CHECKPOINT]
    folders = [f"file:///data/job/checkpoints/step-00000{step}/model" for step in (2, 4)]
    assert [m.tags["folder"] for m in models] == folders
    (measured,) = models[1].metrics
    assert (measured.key, measured.value, measured.step) == ("dev_perplexity", 6.5, 4)
    assert (measured.dataset_name, measured.dataset_digest) == (DEV.name, DEV.digest)
    assert (models[1].params["tau_f.calculator"], models[1].params["step"]) == ("0.5", "4")
    assert sorted(found["outputs"]) == sorted(m.model_id for m in models)

    candidate = client.get_model_version_by_alias("toolformer-embedded", CANDIDATE)
    assert (candidate.version, candidate.run_id, candidate.source) == (2, run.run_id, folders[1])


def test_no_weights_are_copied(tracking, tmp_path):
    weights = tmp_path / "job/checkpoints/step-000002/model/model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"w" * 100_000)
    start(tracking, folder=str(tmp_path / "job")).record(EVENTS[:6])
    [kept] = (p for p in (tmp_path / "mlartifacts").rglob("*") if p.is_file())
    assert (kept.name, kept.stat().st_size < 2000) == ("MLmodel", True)


def test_events_told_again_change_nothing(tracking, client):
    run = start(tracking)
    run.record(EVENTS)
    before = everything(client, run.run_id)
    run.record(EVENTS)
    assert everything(client, run.run_id) == before
    again = start(tracking, run_id=run.run_id)  # as another process would
    again.record(EVENTS)
    assert everything(client, run.run_id) == before
    again.record(EVENTS[:4])  # as one that was cut off would; the last word on the run stands
    assert everything(client, run.run_id)["histories"] == before["histories"]


def test_a_failed_run_says_why_and_goes_on_later(tracking, client):
    first = start(tracking)
    failed = {"t": 1003.5, "event": "failed", "step": 3, "reason": "nan_loss", "message": "the loss is NaN at step 3"}
    told = [*EVENTS[:7], failed]
    first.record(told)
    first.finish("FAILED")
    run = client.get_run(first.run_id)
    assert run.info.status == "FAILED"
    assert run.data.tags.items() >= {"reason": "nan_loss", "failed_step": "3", "message": failed["message"]}.items()

    second = start(tracking, run_id=first.run_id, params=PARAMS | {"code_version": "2", "processes": 2})
    assert client.get_run(first.run_id).info.status == "RUNNING"
    resumed = [{**STARTED, "t": 1100.0, "attempt": 2, "from_step": 2}, step(3, 2.01, t=101.0), step(4, 1.75, t=102.0)]
    second.record(told)  # from the file's start
    second.record(resumed)
    second.finish("FINISHED")
    run = client.get_run(first.run_id)
    assert run.info.status == "FINISHED"
    assert "reason" not in run.data.tags
    assert run.data.tags.items() >= {"attempt": "2", "changed.code_version": "2"}.items()
    assert second.history("loss") == [(1, 2.5), (2, 2.25), (3, 2.0), (4, 1.75)]  # of step 3, the first value
    assert run.data.params.items() >= {"code_version": "1", "processes": "2"}.items()
    assert len(client.search_runs([run.info.experiment_id])) == 1


def test_a_checkpoint_only_begun_is_finished_by_the_next_process(tracking, client, monkeypatch):
    run = start(tracking)
    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "finalize_logged_model", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.record(EVENTS)
    assert client.search_model_versions() == []
    start(tracking, run_id=run.run_id).record(EVENTS)
    found = everything(client, run.run_id)
    assert [rest for _, *rest in found["models"]] == [["READY", 1], ["READY", 1]]
    assert len(found["outputs"]) == 2
    assert found["histories"]["dev_perplexity"] == [(0, 8.0, 1_000_200), (2, 7.0, 1_002_200), (4, 6.5, 1_004_200)]
    assert found["aliases"] == [{CANDIDATE: 2}]


def test_the_alias_stays_at_a_newer_run(tracking, client):
    old, new = start(tracking), start(tracking)
    old.record(EVENTS)
    new.record(EVENTS)
    start(tracking, run_id=old.run_id).record(EVENTS)
    assert client.get_model_version_by_alias("toolformer-embedded", CANDIDATE).run_id == new.run_id


def test_without_a_name_nothing_is_registered_and_without_a_measure_there_is_a_model(tracking, client):
    run = start(tracking, tags={"arm": "cc"})
    run.record([STARTED, step(1, 2.0), saved(1, None, True)])
    assert client.search_registered_models() == []
    (model,) = client.search_logged_models([run.experiment_id])
    assert not model.metrics


def test_a_diverged_loss_is_logged_and_drawn(tracking, client):
    run = start(tracking)
    run.record([STARTED, step(1, 2.0), step(2, math.nan)])
    [_, (_, diverged)] = run.history("loss")
    assert math.isnan(diverged)
    run.figures()


def test_two_thousand_steps_in_batches(tracking, client, monkeypatch):
    run = start(tracking)
    sizes = []
    log_batch = run.client.log_batch

    def counted(run_id, metrics=(), **more):
        sizes.append(len(metrics))
        return log_batch(run_id, metrics, **more)

    monkeypatch.setattr(run.client, "log_batch", counted)
    steps = [{**step(n, 1.0), "grad_norm": 1.0} for n in range(1, 2001)]
    run.record(steps)
    # 6 figures a step: 166 whole steps (996 figures) fit into MLflow's 1,000; 2,000 = 12 * 166 + 8
    assert sizes == [996] * 12 + [48]
    assert len(run.history("loss")) == len(run.history("memory_bytes")) == 2000


def test_the_arms_of_one_dataset_share_a_figure(tracking, client, monkeypatch):
    shown: list[dict[str, Any]] = []

    def drawn(title, y_label, series):
        shown.append({"title": title, **series})
        return curves(title, y_label, series)

    monkeypatch.setattr("tasks.tracking.figures.curves", drawn)
    for name, digest, status in (("plain", "d1", "FINISHED"), ("broken", "d1", "FAILED"), ("other", "d2", "FINISHED")):
        cc = start(tracking, name=name, tags={"arm": "cc", "dataset_digest": digest})
        cc.record([evaluated(0, 8.0), evaluated(2, 7.5)])
        cc.finish(status)
    run = start(tracking, name="calls", tags={"arm": "toolformer", "dataset_digest": "d1"})
    run.record([evaluated(0, 8.0), evaluated(2, 7.0)])
    run.figures()
    arms = {"toolformer · calls": [(0, 8.0), (2, 7.0)], "cc · plain": [(0, 8.0), (2, 7.5)]}
    assert shown[-1] == {"title": "Dev perplexity of arms", **arms}
    paths = [f.path for f in client.list_artifacts(run.run_id, "figures")]
    assert paths == [f"figures/{name}.png" for name in ("dev_perplexity", "dev_perplexity_of_arms", "loss")]


def test_runs_in_two_threads_do_not_mix(tracking, client):
    runs = [start(tracking, name=f"r{i}", tags={"arm": str(i)}) for i in (1, 2)]

    def feed(run: TrainingRun, factor: float) -> None:
        for n in range(1, 16):
            run.record([step(n, factor * n)])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(feed, runs, (1, 2)))
    for i, run in enumerate(runs, 1):
        assert run.history("loss") == [(n, i * n) for n in range(1, 16)]


def test_the_machine_is_sampled_until_the_end(tracking, client, monkeypatch):
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    before = set(threading.enumerate())
    run = start(tracking, system_metrics=True)
    soon(lambda: "system/cpu_utilization_percentage" in client.get_run(run.run_id).data.metrics, 20)
    run.finish("KILLED")
    assert set(threading.enumerate()) <= before
    assert client.get_run(run.run_id).info.status == "KILLED"


def test_a_checkpoint_leads_to_what_its_training_rests_on(tracking: Tracking, client: MlflowClient) -> None:
    made_of = start(tracking, name="build cstar@1", tags={"kind": "build", "dataset": "cstar@1"})
    made_of.finish("FINISHED")
    assert "mlflow.note.content" not in client.get_run(start(tracking, links={"None": None}).run_id).data.tags
    links = {"Its page": "http://127.0.0.1:8001/documents", "None": None}
    run = start(tracking, sources={"build": made_of.run_id, "lost": "0" * 32}, links=links)
    run.record(EVENTS)
    tags = client.get_run(run.run_id).data.tags
    assert (tags["run.build"], tags["run.lost"]) == (made_of.run_id, "0" * 32)  # of what is not there, the id alone
    where = f"#/experiments/{run.experiment_id}/runs"
    rests_on = f"Rests on\n\n- build: [build cstar@1]({where}/{made_of.run_id})\n\n[Its page]({links['Its page']})"
    assert tags["mlflow.note.content"] == rests_on
    models = client.search_logged_models([run.experiment_id])
    both = f"Trained by [demo]({where}/{run.run_id})\n\n{rests_on}"
    assert [m.tags["mlflow.note.content"] for m in models] == [both, both]
    assert client.get_model_version_by_alias("toolformer-embedded", CANDIDATE).description == both


def test_runs_without_an_arm_take_no_arms_place(tracking: Tracking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.tracking.training._ARMS_SHOWN", 1)
    other = start(tracking, name="other", tags={"arm": "cc", "dataset_digest": "d1"})
    other.record(EVENTS)
    other.finish("FINISHED")
    start(tracking, tags={"kind": "build", "dataset_digest": "d1"}).finish("FINISHED")  # newer
    run = start(tracking, tags={"arm": "toolformer", "dataset_digest": "d1"})
    run.record(EVENTS)
    assert list(run._arms()) == ["toolformer · demo", "cc · other"]
