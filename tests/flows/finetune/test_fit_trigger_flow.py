"""Thresholds fitted for a training: on the documents it held out, stored beside it, and used by an evaluation."""

import json
import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from flows.evaluate.parameters import EvaluateParameters
from flows.evaluate.resolve import resolve as resolve_evaluation
from flows.finetune.fit_trigger import fit_trigger
from flows.finetune.parameters import FinetuneParameters, FitTriggerParameters
from flows.finetune.resolve import resolve
from tasks.settings import tracking_uri
from tasks.tracking import Tracking
from tasks.training.job import write_job_folder
from tasks.training.registry import MLFLOW_NOTE, FinishedTraining, finished_finetune
from tasks.training.trigger import TRIGGER_FILE, held_out_examples, read_trigger
from tests.core.decode.writers import after, merging, writing_lm
from tests.support.commands import Run
from tests.support.small_builds import write_jsonl
from toolformer_core.decode.openings import names_of
from toolformer_core.errors import UsageError
from toolformer_core.records import Example
from warehouse.store import Store

Trained = tuple[FinishedTraining, list[Example], str]
EVENTS = (
    {"t": 1.0, "event": "started"},
    {"t": 2.0, "event": "finished", "step": 8, "best_step": 8, "best_perplexity": 2.0},
)


def finished(data: Path, seed: int, arm: str = "toolformer") -> FinishedTraining:
    """A training that ended with the embedded model as it was."""
    plan = resolve(FinetuneParameters(data=str(data), steps=8, seed=seed, arm=arm, profile="cpu"))  # type: ignore[arg-type]
    write_job_folder(plan.spec, Store(str(data)))
    shutil.copytree(plan.spec.model, plan.spec.folder / "model")
    write_jsonl(plan.spec.folder / "events.jsonl", EVENTS)
    found = finished_finetune(plan.spec.folder)
    assert found is not None
    return found


@pytest.fixture
def trained(as_built: Path) -> Trained:
    """A training with one document held out, that document, and the tool whose name its model writes after " ["."""
    for seed in range(40):
        training = finished(as_built, seed)
        if examples := held_out_examples(training, Store(str(as_built))):
            break
        shutil.rmtree(training.folder)
    ((key, name),) = list(names_of(examples).items())[:1]
    coded = merging(f"{name}(")
    lm = writing_lm("llama", coded, [(after(coded, " ["), after(coded, f"{name}("))])
    shutil.rmtree(training.model)
    lm.hf_model.model.save_pretrained(training.model)
    coded.save_pretrained(training.model)
    return training, examples, key


def test_thresholds_are_fitted_on_what_was_held_out_and_used(trained: Trained, as_built: Path, run: Run) -> None:
    training, examples, key = trained
    learnt = (training.folder / "train.jsonl").read_text(encoding="utf-8")
    assert all(json.dumps(e.text, ensure_ascii=False) not in learnt for e in examples)
    uri = tracking_uri(str(as_built))
    tracked = Tracking(uri).start(experiment="e", name="n", params={}, tags={}, datasets=[], system_metrics=False)
    (training.folder / MLFLOW_NOTE).write_text(tracked.run_id + "\n")

    everywhere = 10_000  # every place is an opening
    parameters = FitTriggerParameters(data=str(as_built), k=everywhere, min_calls=1)
    file = training.folder / TRIGGER_FILE
    result = fit_trigger(parameters)
    assert (result.model, result.run_id) == (str(training.model), tracked.run_id)
    written = file.stat().st_mtime_ns
    assert (fit_trigger(parameters), file.stat().st_mtime_ns) == (result, written)  # found done
    fitted = read_trigger(file)
    assert fitted == result.fitted
    own = next(fit for fit in fitted.fits if fit.tool == key)
    assert (fitted.documents, fitted.top_k) == (len(examples), everywhere)
    assert own.wanted == fitted.calls[key] == sum(call.tool == key for e in examples for call in e.calls)
    assert own.needless > own.wanted
    assert all(fit.bound == "too_few_calls" for fit in fitted.fits if fit.tool != key)
    client = MlflowClient(uri, uri)
    metrics = client.get_run(tracked.run_id).data.metrics
    assert metrics[f"trigger/theta_{key}"] == own.threshold
    assert "figures/trigger.png" in [f.path for f in client.list_artifacts(tracked.run_id, "figures")]

    asked = {"task": "small-world", "data": str(as_built), "toolformer": str(training.folder), "model": "embedded"}
    arms = ["toolformer", "toolformer-trigger"]
    plain, thresholds = resolve_evaluation(EvaluateParameters(**asked, arms=arms)).evaluations
    assert (plain.trigger, thresholds.trigger) == ((), ((key, own.threshold),))
    assert "trigger" not in plain.parts()["settings"]
    assert json.loads(thresholds.parts()["settings"])["trigger"] == {key: own.threshold}
    by_default = [e.arm for e in resolve_evaluation(EvaluateParameters(**asked)).evaluations]
    numbered = resolve_evaluation(EvaluateParameters(**asked, trigger="qa=0.25")).evaluations
    (more,) = (e for e in numbered if e.arm not in by_default)
    assert (more.arm, more.trigger) == ("toolformer-trigger", (("qa", 0.25),))
    with pytest.raises(UsageError, match="no effect without the arm toolformer-trigger"):
        resolve_evaluation(EvaluateParameters(**asked, arms=["toolformer"], trigger="fitted"))

    said = run("fit-trigger", "--model", training.folder, "--data", as_built, "--min-calls", "1000")
    assert said.code == 0
    assert "too few calls for a threshold" in said.out
    assert said.out.splitlines()[-1].endswith(f"{TRIGGER_FILE}; use it with --trigger fitted")
    assert read_trigger(training.folder / TRIGGER_FILE).thresholds == {}


def test_what_has_no_fit(trained: Trained, as_built: Path, tmp_path: Path) -> None:
    training, _, _ = trained
    with pytest.raises(UsageError, match="does not hold in that form"):
        held_out_examples(training, Store(str(tmp_path / "other")))
    card = json.loads((training.folder / "card.json").read_text())
    (training.folder / "card.json").write_text(json.dumps({**card, "dev_digest": "of other documents"}))
    for model, data, says in (
        (training.folder, as_built, "does not hold in that form"),
        (finished(as_built, 0, arm="cc").folder, as_built, "no finished training of C"),
        ("", tmp_path / "empty", "there is no finished training of C"),
    ):
        with pytest.raises(UsageError, match=says):
            fit_trigger(FitTriggerParameters(model=str(model), data=str(data)))
