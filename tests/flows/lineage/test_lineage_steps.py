"""What came of what, from records made by hand: which step reads what, by which name, and that the chain is whole."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from flows.lineage.names import model_at, place
from flows.lineage.select import steps_of
from flows.lineage.steps import Data, Step
from tests.support.small_chain import BUILD, EVALUATION, JOB, chain, documents
from tests.wh_fixtures import make_run, put
from toolformer_core.errors import UnknownNameError
from warehouse.records import exports
from warehouse.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return chain(tmp_path / "data")


def by_job(steps: Iterable[Step]) -> dict[str, Step]:
    return {step.job: step for step in steps}


def named(store: Store, datasets: Iterable[Data]) -> dict[str, int | None]:
    """Datasets with their rows; those in the store by their path there."""
    return {one.name.removeprefix(f"{store.root}/"): one.rows for one in datasets}


def test_each_stage_reads_what_its_commits_name(store: Store) -> None:
    steps = by_job(steps_of(store, run=BUILD))
    named_stages = [f"{stage}.calculator" for stage in ("prefilter", "sample", "execute", "score")]
    of_run = ["ingest", *named_stages, "assemble", "version"]
    assert list(steps) == ["build-dataset", *(f"build-dataset.{name}" for name in of_run)]
    tables = {stage: f"shards/{stage}/calculator" for stage in ("prefilter", "sample", "execute", "score")}
    documents, assembled = "shards/ingest/_", "shards/assemble/_"
    assert {job.removeprefix("build-dataset."): named(store, step.inputs) for job, step in steps.items()} == {
        "build-dataset": {},
        "ingest": {"/corpora/five.jsonl": 6},  # five documents, and a row that is none
        "prefilter.calculator": {documents: 5},
        "sample.calculator": {documents: 5, tables["prefilter"]: 5, "gpt2": None},
        "execute.calculator": {tables["prefilter"]: 5, tables["sample"]: 2},
        "score.calculator": {
            **{documents: 5, tables["prefilter"]: 5, tables["sample"]: 2, tables["execute"]: 2},
            "gpt2": None,
        },
        "assemble": {documents: 5, tables["score"]: 2},
        "version": {assembled: 1},
    }
    assert named(store, steps["build-dataset.ingest"].outputs) == {documents: 5, "rejects/ingest/_": 1}
    assert named(store, steps["build-dataset.version"].outputs) == {"datasets/cstar": 1}


def test_versions_are_the_same_where_it_is_the_same(store: Store) -> None:
    steps = steps_of(store)
    made = {data.key: data.version for step in steps for data in step.outputs}
    for step in steps:
        for data in step.inputs:
            assert made.get(data.key, data.version) == data.version, (step.job, data.name)


def test_what_a_training_an_evaluation_and_an_export_read_and_write(store: Store) -> None:
    steps = by_job(steps_of(store))
    training, evaluation, export = steps["finetune.toolformer"], steps["evaluate.evaluate"], steps["export.jsonl"]
    assert named(store, training.inputs) == {"datasets/cstar": 1, "gpt2": None}
    (checkpoint,) = training.outputs
    assert (checkpoint.kind, checkpoint.version) == ("MODEL", "0123456789abcdef")
    assert (training.started, training.ended) == (  # seven seconds
        "2024-05-01T13:00:00.000000+00:00",
        "2024-05-01T13:00:07.000000+00:00",
    )
    assert named(store, evaluation.inputs) == {"shards/benchmark/_": 1, f"finetunes/{JOB}/model": None}
    assert [data.name for data in steps["evaluate.benchmark"].inputs] == ["/benchmarks/svamp.json"]
    assert named(store, export.inputs) == {"datasets/cstar": 1}
    assert named(store, export.outputs) == {"/exports/cstar.jsonl": 1}


def test_times_and_counts_are_those_of_the_commits(store: Store) -> None:
    steps = by_job(steps_of(store, run=BUILD))
    prefilter = steps["build-dataset.prefilter.calculator"]
    # Both commits were written at 12:00:00 and took 1.5 s.
    assert (prefilter.started, prefilter.ended) == (
        "2024-05-01T11:59:58.500000+00:00",
        "2024-05-01T12:00:00.000000+00:00",
    )
    assert prefilter.facts["rows"] == [
        {"unit": "documents", "in": 5, "kept": 2, "dropped": {"few_numbers": 3}, "failed": {}}
    ]
    assert (prefilter.facts["commits"], prefilter.facts["reused"], prefilter.facts["seconds"]) == (2, 0, 3.0)
    assert prefilter.facts["parts"] == {"code": "prefilter/1"}  # their inputs differ
    assert steps["build-dataset.sample.calculator"].facts["parts"]["model"] == "m" * 32


def test_a_run_that_found_everything_done_has_the_whole_chain_too(store: Store) -> None:
    (first,) = store.runs([BUILD])
    store.write_run(replace(first, run_id="again", started="2024-06-01T00:00:00.000000+00:00"))
    before, after = by_job(steps_of(store, run=BUILD)), by_job(steps_of(store, run="again"))
    assert before.keys() == after.keys()
    for job in before:
        assert (before[job].inputs, before[job].outputs) == (after[job].inputs, after[job].outputs)
    score = after["build-dataset.score.calculator"]
    assert (score.facts["commits"], score.facts["reused"], score.facts["seconds"]) == (2, 2, 0)
    version = after["build-dataset.version"]
    for step in (score, version):
        assert step.started == step.ended == "2024-06-01T00:00:00.000000+00:00"
    assert before["build-dataset.version"].started == "2024-05-01T12:00:01+00:00"  # when it was recorded


def test_tables_with_the_same_bytes_are_told_apart(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    source = documents(store)
    read = source.files[0].digest
    verdicts = [put(store, "prefilter", tool, "part-00000", [], inputs=(read,)) for tool in ("calculator", "calendar")]
    assert verdicts[0].files[0].digest == verdicts[1].files[0].digest
    samples = put(store, "sample", "calendar", "part-00000", [], inputs=(read, verdicts[1].files[0].digest))
    store.write_run(make_run("r", [source.key, samples.key, *(one.key for one in verdicts)], flow="build-dataset"))
    step = by_job(steps_of(store, run="r"))["build-dataset.sample.calendar"]
    assert named(store, step.inputs) == {"shards/ingest/_": 3, "shards/prefilter/calendar": 0}


def test_a_dataset_has_its_run_and_what_was_made_of_it(store: Store) -> None:
    steps = steps_of(store, dataset="cstar")
    assert {step.run for step in steps} == {BUILD, JOB, *exports(store)}
    assert EVALUATION in {step.run for step in steps_of(store)}
    (training,) = steps_of(store, run=JOB)
    assert training.kind == "TRAINING"
    (export_id,) = exports(store)
    assert [step.kind for step in steps_of(store, run=export_id)] == ["EXPORT"]


def test_what_is_not_there(store: Store) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown run '{BUILD[:-1]}'. Did you mean '{BUILD}'"):
        steps_of(store, run=BUILD[:-1])
    with pytest.raises(UnknownNameError, match="unknown dataset 'cstra'"):
        steps_of(store, dataset="cstra")


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("/corpora/c4.jsonl", ("file", "/corpora/c4.jsonl")),
        ("s3://bucket/runs/c4", ("s3://bucket", "runs/c4")),
        ("s3://bucket", ("s3://bucket", "/")),
        ("https://user:word@host:8443/a/b?token=x", ("https://host:8443", "a/b")),
    ],
)
def test_places(given: str, means: tuple[str, str]) -> None:
    assert place(given) == means


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("embedded", ("toolformer", "models/embedded")),
        ("gpt2", ("https://huggingface.co", "gpt2")),
        ("EleutherAI/gpt-j-6b", ("https://huggingface.co", "EleutherAI/gpt-j-6b")),
        ("/models/mine", ("file", "/models/mine")),
        ("vllm+http://gpu:8000#big", ("http://gpu:8000", "big")),
        (f"runs/finetunes/{JOB}", ("file", "/data/model")),  # wherever the folder was when it was named
        (f"/elsewhere/{JOB}/model", ("file", "/data/model")),
    ],
)
def test_models(given: str, means: tuple[str, str]) -> None:
    assert model_at(given, {JOB: "/data/model"}) == means
