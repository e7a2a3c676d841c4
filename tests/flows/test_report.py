"""What ratings say of calls, precision and agreement; and what used a document."""

import math
from pathlib import Path

import pytest
from wh_fixtures import make_run, put, scored, snapshot_of

from cli.render.answers import print_document_trace
from flows.report.document_trace import DocumentTrace, trace_document
from flows.report.judging import Agreement, Precision, judge, judgements
from tests.support.finished_job import a_finished_job
from toolformer_core.evaluate.statistics import wilson
from warehouse.catalog import Catalog
from warehouse.commits import Dataset, dataset_version
from warehouse.ratings import CallIdentity, Verdict, add_ratings
from warehouse.snapshot.publish import publish
from warehouse.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two shards; qa calls in d0 to d3 gain 0, 1, 2 and 3 nats, a calculator's in d0 gains 0.6."""
    store = Store(tmp_path)
    commits = []
    for shard in range(2):
        ids = [f"d{2 * shard + n}" for n in range(2)]
        documents = put(store, "ingest", "", f"s{shard}", [{"doc_id": one, "text": "Two and two"} for one in ids])
        read = (documents.files[0].digest,)
        rows = [scored(one, "qa", 4, float(one[1:])) for one in ids]
        commits += [documents, put(store, "score", "qa", f"s{shard}", rows, inputs=read)]
        if shard == 0:
            commits.append(put(store, "score", "calculator", "s0", [scored("d0", "calculator", 0, 0.6)], inputs=read))
    store.write_run(make_run("r", [commit.key for commit in commits]))
    with Catalog(store.local_folder / "catalog.duckdb", store=store) as catalog:
        publish(store, catalog)
    return store


def call(doc_id: str, tool: str = "qa", position: int = 4) -> CallIdentity:
    return CallIdentity(doc_id, tool, position, "1 + 1", "2")


def test_precision_and_agreement(store: Store, tmp_path: Path) -> None:
    said: list[tuple[CallIdentity, Verdict]] = [
        (call("d0"), "reject"),
        (call("d1"), "accept"),
        (call("d2"), "reject"),
        (call("d3"), "accept"),
        (call("d0", "calculator", 0), "accept"),
        (call("d9"), "unsure"),  # the current scores do not hold it
    ]
    add_ratings(store, "a", said)
    add_ratings(store, "b", [(call("d1"), "accept"), (call("d2"), "accept"), (call("d3"), "accept")])
    found = judgements(store, tmp_path / "warehouse.duckdb", [2.0])
    assert found.users == {"a": 6, "b": 3}
    assert [(one.call.doc_id, one.judgement, one.gain) for one in found.calls] == [
        ("d0", "right", 0.6),
        ("d0", "wrong", 0.0),
        ("d1", "right", 1.0),
        ("d2", "open", 2.0),  # one against one
        ("d3", "right", 3.0),
        ("d9", "open", None),
    ]
    assert found.precisions == (
        Precision("calculator", 0.5, True, 1, 0, 0, 1.0, *wilson(1, 1)),
        found.precisions[1],
        Precision("qa", 1.0, True, 2, 0, 1, 1.0, *wilson(2, 2)),
        Precision("qa", 2.0, False, 1, 0, 1, 1.0, *wilson(1, 1)),
    )
    none = found.precisions[1]
    assert (none.tool, none.tau_f, none.right + none.wrong + none.open) == ("calculator", 2.0, 0)
    assert math.isnan(none.precision)
    # alike on d1 and d3 of three; a accepts 2 of 3, b all: by chance 2/3, as often as they do
    [agreement] = found.agreements
    assert agreement == Agreement("a", "b", 3, 2, agreement.kappa)
    assert agreement.kappa == pytest.approx(0)


def test_nobody_has_said_anything(store: Store, tmp_path: Path) -> None:
    found = judgements(store, tmp_path / "warehouse.duckdb")
    assert (found.calls, found.damaged, found.precisions, found.agreements, found.users) == ((), 0, (), (), {})


def test_most_verdicts_on_one_call_count() -> None:
    assert judge(["accept", "reject", "unsure", "reject"]) == "wrong"


TEXTS = {"d1": "Two and two makes 4.", "d2": "Three and three makes 6."}


@pytest.fixture
def traced(tmp_path: Path) -> Store:
    """Two documents, a call in each; the version `cstar` holds the first alone."""
    traced = Store(tmp_path)
    ingested = put(traced, "ingest", "", "corpus", [{"doc_id": d, "text": text} for d, text in TEXTS.items()])
    read = (ingested.files[0].digest,)
    calls = [scored("d1", "calculator", 4, 1.5), scored("d2", "calculator", 4, 0.4)]
    losses = put(traced, "score", "calculator", "corpus", calls, inputs=read)
    call = {"tool": "calculator", "position": 4, "start": 4, "end": 9, "input": "2 + 2", "response": "4", "gain": 1.5}
    example = {"doc_id": "d1", "text": "Two  [..]and two makes 4.", "calls": [call]}
    part = put(traced, "assemble", "", "corpus", [example], config={"tau_f": {"calculator": 0.5}}, inputs=read)
    traced.write_run(make_run("r1", [one.key for one in (ingested, losses, part)]))
    about = ({}, {}, "r1", "m", "c", "2024-05-01")
    traced.write_dataset(Dataset("cstar", dataset_version(part.files), part.files, *about))
    return traced


def trained(traced: Store, name: str, dataset: str, held_out: list[str]) -> Path:
    return a_finished_job(Path(traced.root) / "finetunes" / name, dataset=dataset, held_out=held_out)


def evaluated(traced: Store, evaluation: str, model: Path) -> None:
    about = {"evaluation": evaluation, "task": "svamp", "arm": "toolformer", "k": 10}
    row = {**about, "parameters": 7, "item_id": "i", "correct": True}
    config = {**about, "model": str(model)}
    done = put(traced, "evaluate", "", f"{evaluation}-0", [row], parts={"evaluation": evaluation}, config=config)
    traced.write_run(make_run(f"run-{evaluation}", [done.key], flow="evaluate"))


def path_of(traced: Store, doc_id: str) -> DocumentTrace:
    return trace_document(traced, snapshot_of(traced), doc_id)


def test_checkpoints_and_evaluations_that_used_a_document(traced: Store) -> None:
    (version,) = (f"{one.name}@{one.version}" for one in traced.datasets())
    on_it = trained(traced, "cstar-toolformer-01", version, ["Something else."])
    beside = trained(traced, "cstar-cc-01", version, ["Before.", TEXTS["d1"], "After."])
    trained(traced, "cstar-toolformer-02", "cstar@another", [])
    trained(traced, "other-toolformer-03", "other@1", [])
    evaluated(traced, "e1", on_it / "model")
    evaluated(traced, "e2", Path("elsewhere"))

    found = path_of(traced, "d1")
    used = {one["folder"]: one["used"] for one in found.checkpoints}
    assert used == {str(on_it): "trained on", str(beside): "held out for development"}
    assert [(one["evaluation"], one["arm"], one["k"]) for one in found.evaluations] == [("e1", "toolformer", 10)]
    assert [call["outcome"] for call in found.calls] == ["kept"]

    # the other document's call gains 0.4 of 0.5 nats: no version holds it, so nothing was trained on it
    other = path_of(traced, "d2")
    assert [call["outcome"] for call in other.calls] == ["below_threshold"]
    assert (other.checkpoints, other.evaluations) == ((), ())


def test_a_text_that_only_begins_like_a_held_out_one_was_trained_on(traced: Store) -> None:
    (version,) = (f"{one.name}@{one.version}" for one in traced.datasets())
    trained(traced, "cstar-toolformer-01", version, [TEXTS["d1"] + " And more.", "Before. " + TEXTS["d1"]])
    assert [one["used"] for one in path_of(traced, "d1").checkpoints] == ["trained on"]


def test_a_forced_form_is_shown_with_its_probability(traced: Store, capsys: pytest.CaptureFixture[str]) -> None:
    (texts,) = traced.commits("ingest")
    draw = {"doc_id": "d1", "tool": "calculator", "position": 4, "log_p": -1.0, "count": 3}
    draw["log_p_form"] = math.log(0.25)
    made = put(traced, "sample", "calculator", "corpus", [draw], inputs=(texts.files[0].digest,))
    traced.write_run(make_run("r2", [*(one.key for one in traced.commits()), made.key], started="2024-06-01"))
    trace = path_of(traced, "d1")
    assert [(row["position"], row["p_form"]) for row in trace.positions] == [(4, pytest.approx(0.25))]
    print_document_trace(trace)
    assert "p_form" in capsys.readouterr().out
