"""What marks say of calls: precision at thresholds, agreement, and calls that the current scores do not hold."""

import math
from pathlib import Path

import pytest
from wh_fixtures import make_run, put, scored

from flows.report.judging import Agreement, Precision, judge, judgements
from toolformer_core.evaluate.statistics import wilson
from warehouse.catalog import Catalog
from warehouse.marks import CallIdentity, Verdict, add_marks
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
        publish(store, catalog, store.local_folder)
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
        (call("d9"), "accept"),  # the current scores do not hold it
    ]
    add_marks(store, "a", said)
    add_marks(store, "b", [(call("d1"), "accept"), (call("d2"), "accept"), (call("d3"), "accept")])
    found = judgements(store, tmp_path / "warehouse.duckdb", [2.0])
    assert found.users == {"a": 6, "b": 3}
    assert [(one.call.doc_id, one.judgement, one.gain) for one in found.calls] == [
        ("d0", "right", 0.6),
        ("d0", "wrong", 0.0),
        ("d1", "right", 1.0),
        ("d2", "open", 2.0),  # one against one
        ("d3", "right", 3.0),
        ("d9", "right", None),
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


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        (["accept"], "right"),
        (["reject"], "wrong"),
        (["unsure"], "open"),
        (["accept", "reject"], "open"),
        (["accept", "reject", "unsure", "reject"], "wrong"),
    ],
)
def test_several_verdicts_on_one_call(verdicts: list[Verdict], together: str) -> None:
    assert judge(verdicts) == together
