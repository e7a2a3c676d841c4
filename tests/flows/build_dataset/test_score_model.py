"""The option `--score-model`: one model samples, another scores, and a third can be finetuned."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import plain_log_probs, tiny_lm, tokenizer

from flows.build_dataset.flow import run_build
from flows.build_dataset.notes import notes_on_training
from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.plan import plan_build
from flows.build_dataset.resolve import resolve
from flows.build_dataset.tracking import track_build
from flows.export.find import find_dataset
from flows.finetune.parameters import FinetuneParameters
from flows.finetune.resolve import resolve as resolve_finetune
from flows.report.document_trace import trace_document
from tasks.tracking import Tracking
from tests.support.commands import Run
from tests.support.small_builds import small_build
from toolformer_core.embedded import MODEL
from toolformer_core.errors import ModelError, UsageError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.load import load_model
from toolformer_core.records import Call
from toolformer_core.syntax import linearize
from warehouse.queries import rows_of
from warehouse.store import Store

WEIGHTS = np.array([5, 4, 3, 2, 1]) / 15  # of the five tokens from the position on


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model with a tokenizer of its own, in which " [" is two tokens and a space is one."""
    folder = tmp_path_factory.mktemp("judge")
    hf_model = tiny_lm("llama", context=2048, coded=tokenizer(merged_trigger=False)).hf_model
    hf_model.model.save_pretrained(folder)
    hf_model.tokenizer.save_pretrained(folder)
    return str(folder)


def asked(documents: Path, data: Path, **changes: Any) -> BuildParameters:
    """One tool, of which every answered call is kept, whatever a random model thinks of it."""
    few = {"tools": ["calendar"], "tau_f": {"calendar": -100.0}, "draws": 1, "top_k": 2, "limit": 6}
    return small_build(documents, data, **{**few, **changes})


def loss_by_hand(lm: TransformersLM, text: str, position: int, prefix: str) -> float:
    """L_i(z): the text in the scorer's tokens, whole, behind z; the five tokens from the position on, weighted."""
    coded = lm.hf_model.tokenizer
    encoding = coded(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, ends = encoding["input_ids"], [end for _, end in encoding["offset_mapping"]]
    first = next(j for j in range(len(ids)) if (ends[j - 1] if j else 0) >= position)
    before = [lm.hf_model.bos, *(coded(prefix, add_special_tokens=False)["input_ids"] if prefix else [])]
    log_p = plain_log_probs(lm, [*before, *ids])
    at = len(before) + first
    scored = [float(log_p[at + t - 1, token]) for t, token in enumerate(ids[first : first + 5])]
    return -float(WEIGHTS[: len(scored)] @ np.array(scored))


def test_one_model_samples_and_another_scores(
    prefect_server: None, few_documents: Path, judge: str, empty_database: Path, tmp_path: Path, run: Run
) -> None:
    data = tmp_path / "data"
    parameters = asked(few_documents, data, score_model=judge)
    plan = plan_build(parameters)
    assert (plan.model, plan.score_model) == ("embedded", judge)
    result = run_build(parameters)
    assert result.examples
    store = Store(data)
    assert plan_build(parameters).nothing_to_do

    # the losses are those of the scorer, in its tokens
    lm = load_model(judge, device="cpu")
    texts = {row["doc_id"]: row["text"] for row in rows_of(result.snapshot, "SELECT doc_id, text FROM documents")}
    scored = rows_of(result.snapshot, "SELECT * FROM scored")
    assert scored
    for row in scored:
        call = Call("Calendar", row["input"])
        prefixes = {
            "loss_plain": "",
            "loss_call": linearize(call, ""),
            "loss_response": linearize(call, row["response"]),
        }
        for name, prefix in prefixes.items():
            wanted = loss_by_hand(lm, texts[row["doc_id"]], row["position"], prefix)
            assert row[name] == pytest.approx(wanted, abs=1e-3)

    # both are named: by the commits, a document's path, the card, MLflow
    (sample,), (score,) = (list(store.commits(stage)) for stage in ("sample", "score"))
    assert (score.config["sampled_by"], score.config["scored_by"]) == ("embedded", judge)
    assert score.parts["model"] != sample.parts["model"]
    assert score.parts["tokenizer"] != sample.parts["tokenizer"]
    said = run("explain", scored[0]["doc_id"], "--data", data)
    assert f"Calls are sampled by embedded and scored by {judge}." in said.out
    trace = trace_document(store, Path(result.snapshot), scored[0]["doc_id"])
    assert (trace.explanation.sampled_by, trace.explanation.scored_by) == ("embedded", judge)
    dataset = find_dataset(store, "cstar")
    assert (dataset.model, dataset.score_model) == ("embedded", judge)
    card = (data / "datasets/cstar" / f"{dataset.version}.md").read_text(encoding="utf-8")
    assert f"| sampled by | embedded |\n| scored by | {judge} |" in card
    shutil.copy(empty_database, data / "mlflow.db")
    tracking = Tracking(f"sqlite:///{data}/mlflow.db")
    params = tracking.client.get_run(track_build(tracking, store, store.root, dataset)).data.params
    assert (params["model"], params["score_model"], params["build.score_model"]) == ("embedded", judge, judge)

    # a third model can be finetuned on what the two have made
    third = tmp_path / "third"
    shutil.copytree(judge, third)
    (third / "generation_config.json").unlink(missing_ok=True)
    spec = resolve_finetune(FinetuneParameters(data=str(data), model=str(third), profile="cpu")).spec
    assert (spec.model, spec.dataset.score_model) == (str(third), judge)

    # with one model, sampling is done already, and scoring is to do: nothing else of the model reached it
    one = plan_build(asked(few_documents, data))
    assert (one.model, one.score_model) == ("embedded", "")
    states = {shard.stage: (shard.state, shard.because) for shard in one.shards}
    assert states["sample"] == states["execute"] == ("cached", ())
    assert states["score"] == ("to do", ("model", "tokenizer"))


def test_the_model_itself_is_no_other_model(few_documents: Path, judge: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert resolve(asked(few_documents, data, score_model="embedded")).other_model is None
    assert resolve(asked(few_documents, data, score_model=str(MODEL))).other_model is None  # its files
    served = f"vllm+http://host/v1#{judge}"  # the server draws, and the model here has scored all along
    assert resolve(asked(few_documents, data, model=served, score_model=judge)).other_model is None
    other = resolve(asked(few_documents, data, score_model=judge))
    assert other.other_model is not None
    assert other.other_model.name == judge
    assert other.for_scoring().model_digests() != other.model_digests()
    assert other.for_scoring().for_scoring() == other


def test_a_score_model_that_cannot_score_is_refused(few_documents: Path, tmp_path: Path) -> None:
    for name, error in (
        ("vllm+http://host/v1#m", UsageError),
        ("no/such/model/here", ModelError),
        ("embeded", ModelError),
    ):
        with pytest.raises(error):
            resolve(asked(few_documents, tmp_path / "data", score_model=name))


def test_what_is_said_of_a_training_on_scores_of_another_model(judge: str) -> None:
    assert notes_on_training(judge, "embedded", judge) == []  # it is finetuned on what helped itself
    (note,) = notes_on_training("third", "embedded", judge)
    assert note.startswith(f"the calls of this dataset were sampled by embedded and scored by {judge}, and third is")
