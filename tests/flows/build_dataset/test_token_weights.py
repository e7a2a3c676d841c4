"""Other decays and windows from stored log-probabilities: gains by hand, what is refused, what is not known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wh_fixtures import make_run, put, scored

from flows.build_dataset.what_if import compare_by_shard, materialise
from flows.build_dataset.what_if_query import WhatIfQuery, ask
from toolformer_core.annotate.score import weights, window_weights
from toolformer_core.errors import UsageError
from warehouse.indexed_calls import IndexedCalls
from warehouse.queries import gain_histogram, rows_of
from warehouse.reweighting import reweigh
from warehouse.snapshot.publish import publish
from warehouse.store import Store
from warehouse.what_if import what_if

PLAIN = [-3.0, -1.0, -1.0, -1.0, -1.0]
# Gains with 5, 4, 3, 2, 1 fifteenths; with the first token alone; with five tokens alike:
CALLS: list[dict[str, Any]] = [
    # (13.5 + 10 - 12.5) / 15 = 11/15;  2.7 - 0.3 = 2.4;  (6.7 - 6.3) / 5 = 0.08
    {"position": 5, "input": "1 + 1", "gain": 11 / 15, "log_p_plain": PLAIN,
     "log_p_call": [-2.7, *PLAIN[1:]], "log_p_response": [-0.3, -1.0, -1.0, -1.0, -3.0]},
    # (25 - 5) / 15 = 20/15;  3 - 1 = 2;  (7 - 1) / 5 = 1.2
    {"position": 5, "input": "2 * 1", "gain": 20 / 15, "log_p_plain": PLAIN, "log_p_call": PLAIN,
     "log_p_response": [-1.0, 0.0, 0.0, 0.0, 0.0]},
    # The text ends after two tokens: 4/15 * 3 = 0.8;  0;  3 / 5 = 0.6
    {"position": 30, "input": "3", "gain": 0.8, "log_p_plain": [-1.0, -4.0], "log_p_call": [-1.0, -4.0],
     "log_p_response": [-1.0, -1.0]},
    # Not computed to the end: at most 5/15 - 4/15 * 2 = -0.2;  2 - 1 = 1;  (3 - 4) / 5 = -0.2
    {"position": 40, "input": "4", "gain": -0.2, "bound": -0.2, "loss_call": None, "log_p_plain": [-2.0, -1.0],
     "log_p_call": None, "log_p_response": [-1.0, -3.0]},
]  # fmt: skip


def built(folder: Path, calls: list[dict[str, Any]] = CALLS, **config: Any) -> Path:
    """Return the snapshot of a folder with one document and its calls of the calculator (tau_f 0.5)."""
    store = Store(folder)
    text = "Some text that is long enough to hold every one of the positions."
    documents = put(store, "ingest", "", "s0", [{"doc_id": "d", "text": text}])
    after = {"inputs": (documents.files[0].digest,)}
    rows = [scored("d", "calculator", **{"window_end": one["position"] + 4, **one}) for one in calls]
    drawn = [{"doc_id": "d", "tool": "calculator", "position": one["position"], "outcome": "ok"} for one in calls]
    commits = [
        documents,
        put(store, "sample", "calculator", "s0", drawn, config={"top_k": 5, "tau_s": 0.0}, **after),
        put(store, "score", "calculator", "s0", rows, config={"decay": 0.2, "floor": 0.0, **config}, **after),
        put(store, "assemble", "", "s0", [], config={"max_examples": 9}, **after),
    ]
    store.write_run(make_run("r1", [commit.key for commit in commits], parameters={"tools": ["calculator"]}))
    return publish(store, None)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("built"))


def query_of(snapshot: Path, tau: float = 0.5, **given: Any) -> WhatIfQuery:
    file = snapshot.parent / f"{given}.parquet"
    return ask(snapshot, {"calculator": tau}, gains_of=lambda w: reweigh(snapshot, w, file), **given)


def test_gains_by_hand(snapshot: Path) -> None:

    def gains(**given: Any) -> list[tuple[int, float]]:
        relation = query_of(snapshot, **given).gains.relation
        found = rows_of(snapshot, f'SELECT "position", gain FROM {relation} ORDER BY ALL')
        return [(row["position"], pytest.approx(row["gain"], abs=1e-6)) for row in found]

    assert gains() == [(5, 20 / 15), (30, 0.8)]
    assert gains(window=1) == [(5, 2.4), (30, 0.0)]  # another call is the best at 5
    assert gains(decay=1.0) == [(5, 2.4), (30, 0.0)]  # 1, 0, ...: the same weights
    assert gains(decay=0.0, window=5) == [(5, 1.2), (30, 0.6)]
    # 1 and 0.8 over 1.8: (2.7 - 0.3) * 5/9 = 12/9 against 2 * 5/9 + 1 * 4/9 = 14/9; 3 * 4/9 = 12/9
    assert gains(window=2) == [(5, 14 / 9), (30, 12 / 9)]


def test_what_comes_and_goes_with_its_gain(snapshot: Path) -> None:
    query = query_of(snapshot, window=1)
    assert [(one.examples, one.calls) for one in IndexedCalls(snapshot, query.gains).yields(query.after)] == [(1, 1)]
    answer = what_if(snapshot, query.before, query.after, gains=query.gains)
    assert [(one.input, one.gain) for one in answer.goes] == [("3", pytest.approx(0.8))]  # 0 < 0.5
    assert answer.comes == ()  # at 5 there is a call as before
    high = query_of(snapshot, 2.2, window=1)
    moved = what_if(snapshot, ask(snapshot, {"calculator": 2.2}).after, high.after, gains=high.gains)
    assert [(one.input, one.gain) for one in moved.comes] == [("1 + 1", pytest.approx(2.4))]
    bins = {one.low: one.calls for one in gain_histogram(snapshot, gain=query.gains.of_call) if one.calls}
    assert bins == {0.0: 1, 1.0: 1, 2.0: 2}  # 0; the bound of the fourth, 1; 2 and 2.4


def test_calls_that_were_not_computed_to_the_end_are_counted_and_not_kept(snapshot: Path) -> None:
    [weighed, unknown] = query_of(snapshot, 1.0, window=1).notes
    assert weighed == "what calls gain afterwards is counted with the weights 1.000 of the next tokens"
    assert unknown.startswith("1 call (calculator 1) may reach their threshold with these weights, but L(e(c, eps))")
    assert len(query_of(snapshot, 1.01, window=1).notes) == 1  # its bound is 1
    low = query_of(snapshot, -1.0, window=1)
    assert IndexedCalls(snapshot, low.gains).yields(low.after)[0].calls == 2  # also below the floor


def test_the_build_s_own_weights_change_nothing(snapshot: Path) -> None:
    for given in ({"decay": 0.2}, {"window": 5}, {"decay": 0.2, "window": 5}):
        assert query_of(snapshot, **given) == query_of(snapshot)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"window": 6}, "the log-probabilities of 5 tokens are stored, so give a number from 1 to 5"),
        ({"window": 0}, "give a number from 1 to 5"),
        ({"decay": 0.1}, "--decay 0.1 gives more than 5 tokens a weight, .* add --window 5"),
        ({"decay": 0.0}, "add --window 5"),
        ({"decay": 1.5}, "decreases by 0 to 1"),
        ({"decay": float("nan")}, "decreases by 0 to 1"),
    ],
)
def test_what_is_not_stored_is_refused(snapshot: Path, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        query_of(snapshot, **given)


def test_a_version_is_made_with_other_weights(as_built: Path, tmp_path: Path) -> None:
    """The index, all scores and a version say the same."""
    store = Store(as_built)
    snapshot = publish(store, None)
    file = tmp_path / "gains.parquet"
    query = ask(snapshot, {"calculator": 0.1}, gains_of=lambda w: reweigh(snapshot, w, file), window=1)
    found = what_if(snapshot, query.before, query.after, n=99, gains=query.gains)
    read = compare_by_shard(store, query, n=99)
    assert found.changes == read.changes
    for side in ("comes", "goes"):
        calls, others = (
            sorted((one.doc_id, one.position, one.input, one.gain) for one in getattr(answer, side))
            for answer in (found, read)
        )
        assert calls == [(*other[:3], pytest.approx(other[3], abs=1e-6)) for other in others]
    dataset = materialise(store, query, "other")
    kept = {change.after.tool: change.after.examples for change in found.changes if change.after.calls}
    assert dataset.counts == kept
    assert any(change.after.calls != change.before.calls for change in found.changes)
    assert "Calls gain by the weights" in dataset.notes
    [shard, *_] = [c for c in store.commits("assemble") if "weights" in c.config]
    assert shard.config["weights"] == list(query.weights or ())


@pytest.mark.parametrize("decay", [0.2, 0.3, 1.0])
def test_a_window_of_all_tokens_gives_the_usual_weights(decay: float) -> None:
    assert np.array_equal(window_weights(decay, 99), weights(decay))
    assert window_weights(decay, 1).tolist() == [1.0]


def test_a_real_build_gains_what_it_was_scored_with(as_built: Path, tmp_path: Path) -> None:
    snapshot = publish(Store(as_built), None)
    other = reweigh(snapshot, tuple(weights()), tmp_path / "gains.parquet").relation
    sql = """SELECT count(*) AS n, max(abs(a.gain - b.gain)) AS off, bool_and(a.alike IS NOT DISTINCT FROM b.alike
        AND a."rank" IS NOT DISTINCT FROM b."rank") AS same
        FROM facts.gains AS a FULL JOIN {} AS b USING (slot, doc, "position")"""
    [row] = rows_of(snapshot, sql.format(other))
    assert row["n"] == rows_of(snapshot, "SELECT count(*) AS n FROM facts.gains")[0]["n"] > 10
    assert row["same"]
    assert row["off"] < 1e-9
