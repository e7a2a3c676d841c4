"""Who used a document: the trainings on a version that holds it, and the evaluations of what they gave."""

import math
from pathlib import Path

import pytest
from wh_fixtures import make_run, put, scored

from cli.render.answers import print_document_trace
from flows.report.document_trace import DocumentTrace, trace_document
from tests.support.finished_job import a_finished_job
from warehouse.commits import Dataset, dataset_version
from warehouse.snapshot.publish import publish
from warehouse.store import Store

TEXTS = {"d1": "Two and two makes 4.", "d2": "Three and three makes 6."}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two documents, a call in each; the version `cstar` holds the first alone."""
    store = Store(tmp_path)
    ingested = put(store, "ingest", "", "corpus", [{"doc_id": d, "text": text} for d, text in TEXTS.items()])
    read = (ingested.files[0].digest,)
    calls = [scored("d1", "calculator", 4, 1.5), scored("d2", "calculator", 4, 0.4)]
    losses = put(store, "score", "calculator", "corpus", calls, inputs=read)
    call = {"tool": "calculator", "position": 4, "start": 4, "end": 9, "input": "2 + 2", "response": "4", "gain": 1.5}
    example = {"doc_id": "d1", "text": "Two  [..]and two makes 4.", "calls": [call]}
    part = put(store, "assemble", "", "corpus", [example], config={"tau_f": {"calculator": 0.5}}, inputs=read)
    store.write_run(make_run("r1", [one.key for one in (ingested, losses, part)]))
    about = ({}, {}, "r1", "m", "c", "2024-05-01")
    store.write_dataset(Dataset("cstar", dataset_version(part.files), part.files, *about))
    return store


def trained(store: Store, name: str, dataset: str, held_out: list[str]) -> Path:
    return a_finished_job(Path(store.root) / "finetunes" / name, dataset=dataset, held_out=held_out)


def evaluated(store: Store, evaluation: str, model: Path) -> None:
    about = {"evaluation": evaluation, "task": "svamp", "arm": "toolformer", "k": 10}
    row = {**about, "parameters": 7, "item_id": "i", "correct": True}
    config = {**about, "model": str(model)}
    done = put(store, "evaluate", "", f"{evaluation}-0", [row], parts={"evaluation": evaluation}, config=config)
    store.write_run(make_run(f"run-{evaluation}", [done.key], flow="evaluate"))


def path_of(store: Store, doc_id: str) -> DocumentTrace:
    return trace_document(store, publish(store, None), doc_id)


def test_checkpoints_and_evaluations_that_used_a_document(store: Store) -> None:
    (version,) = (f"{one.name}@{one.version}" for one in store.datasets())
    on_it = trained(store, "cstar-toolformer-01", version, ["Something else."])
    beside = trained(store, "cstar-cc-01", version, ["Before.", TEXTS["d1"], "After."])
    trained(store, "cstar-toolformer-02", "cstar@another", [])
    trained(store, "other-toolformer-03", "other@1", [])
    evaluated(store, "e1", on_it / "model")
    evaluated(store, "e2", Path("elsewhere"))

    found = path_of(store, "d1")
    assert {(one["folder"], one["used"]) for one in found.checkpoints} == {
        (str(on_it), "trained on"),
        (str(beside), "held out for development"),
    }
    assert [(one["evaluation"], one["arm"], one["k"]) for one in found.evaluations] == [("e1", "toolformer", 10)]
    assert [call["fate"] for call in found.calls] == ["kept"]

    # the other document's call gains 0.4 of 0.5 nats: no version holds it, so nothing was trained on it
    other = path_of(store, "d2")
    assert [call["fate"] for call in other.calls] == ["below_threshold"]
    assert (other.checkpoints, other.evaluations) == ((), ())


def test_a_text_that_only_begins_like_a_held_out_one_was_trained_on(store: Store) -> None:
    (version,) = (f"{one.name}@{one.version}" for one in store.datasets())
    trained(store, "cstar-toolformer-01", version, [TEXTS["d1"] + " And more.", "Before. " + TEXTS["d1"]])
    assert [one["used"] for one in path_of(store, "d1").checkpoints] == ["trained on"]


def test_a_forced_form_is_shown_with_its_probability(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    (texts,) = store.commits("ingest")
    draw = {"doc_id": "d1", "tool": "calculator", "position": 4, "log_p": -1.0, "count": 3}
    draw["log_p_form"] = math.log(0.25)
    made = put(store, "sample", "calculator", "corpus", [draw], inputs=(texts.files[0].digest,))
    store.write_run(make_run("r2", [*(one.key for one in store.commits()), made.key], started="2024-06-01"))
    trace = path_of(store, "d1")
    assert [(row["position"], row["p_form"]) for row in trace.positions] == [(4, pytest.approx(0.25))]
    print_document_trace(trace)
    assert "p_form" in capsys.readouterr().out
