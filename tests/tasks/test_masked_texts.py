"""`--mask-pii`: what stages and trainings read, what C* holds, and what `explain` shows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from wh_fixtures import make_run, put, scored, snapshot_of

from flows.build_dataset.pipeline import assembly_spec_of
from tasks.shards import arrow
from tasks.shards.run_shard import result_of
from tasks.shards.stage import Inputs, run_stage
from tasks.specs.example_limit import with_limits
from tasks.stages import build_stages
from tasks.stages.assemble import ASSEMBLE
from tasks.training.job import held_out_documents
from tests.support.commands import Run
from tests.support.stage_runs import calculator_spec, ingest
from toolformer_core.records import document_id
from warehouse.commits import Dataset, dataset_version

TEXT = "Ask jo@ex.org: of 587 books 58 are lent."
MASKED = "Ask *********: of 587 books 58 are lent."  # nine characters


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "c.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [TEXT, *map(str, range(10))]), "utf-8")
    return path


def test_stages_read_masked_texts_and_explain_shows_the_whole(tmp_path: Path, corpus: Path, run: Run) -> None:
    plain = calculator_spec(tmp_path / "data", corpus)
    spec = replace(plain, mask_pii=True)
    off, read = ingest(plain), ingest(spec)
    assert read.key != off.key
    assert read.files == off.files  # the stored text is whole
    files = {"ingest": read.files}
    for stage in build_stages(spec, "tool"):
        one, other = (stage.shard_spec(Inputs(s, "part-00000", "calculator", files)) for s in (spec, plain))
        assert (one.key != other.key) == ("ingest" in stage.reads)
    assert Inputs(spec, "s", files=files).records("ingest", arrow.documents_of)[0].text == MASKED
    assert Inputs(plain, "s", files=files).records("ingest", arrow.documents_of)[0].text == TEXT
    store, doc = spec.store(), document_id(TEXT, None)
    losses = put(store, "score", "calculator", "part-00000", [scored(doc, "calculator", 25, 1.0)])
    assembly = with_limits(assembly_spec_of(spec), {"part-00000": [result_of(losses, skipped=True)]})
    done = run_stage(ASSEMBLE, Inputs(assembly, "part-00000", files={**files, "score": losses.files}))
    (example,) = store.read(done.files[0]).to_pylist()
    (call,) = example["calls"]
    assert example["text"][: call["start"]] + example["text"][call["end"] :] == MASKED
    assert call["position"] == 25  # as in the whole text
    store.write_run(make_run("r", [read.key, losses.key, done.key]))
    snapshot_of(store)
    assert "jo@ex.org" in run("explain", doc, "--data", tmp_path / "data").out


def test_a_training_holds_masked_texts_out(tmp_path: Path, corpus: Path) -> None:
    for mask, text in ((True, MASKED), (False, TEXT)):
        spec = calculator_spec(tmp_path / str(mask), corpus, mask_pii=mask)
        store, read = spec.store(), ingest(spec)
        store.write_run(make_run("r", [read.key]))
        version = dataset_version(read.files)
        dataset = Dataset("c", version, read.files, {}, {}, "r", "m", str(corpus), "2026-01-01T00:00:00+00:00")
        held = [held_out_documents(dataset, store, 1, seed) for seed in range(40)]  # one of eleven, by the seed
        assert {one[doc] for one in held if (doc := document_id(TEXT, None)) in one} == {text}
