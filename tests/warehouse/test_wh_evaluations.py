"""Evaluations in the snapshot: figures by hand, which run counts, and builds and evaluations beside each other."""

import datetime as dt
import math
from typing import Any

import pytest
from wh_fixtures import make_run, put, scored, snapshot_of

from warehouse.commits import Commit
from warehouse.queries import rows_of
from warehouse.queries.calls import nearest_call
from warehouse.queries.evaluations import accuracies, perplexities
from warehouse.store import Store

EVENING, MORNING = "2024-05-02T20:00:00+00:00", "2024-05-02T08:00:00+00:00"


def told(evaluation: str, **more: Any) -> dict[str, Any]:
    plain = {"evaluation": evaluation, "task": "svamp", "arm": "toolformer", "k": 10, "model": "m", "base": "b"}
    return {**plain, "model_digest": "d1", "base_digest": "d0", "source": "svamp.json", "path": "/x", **more}


def predicted(item: str, evaluation: str, *, right: bool, tool: str | None = None, **more: Any) -> dict[str, Any]:
    row = {"evaluation": evaluation, "task": "svamp", "arm": "toolformer", "k": 10, "parameters": 7, "item_id": item}
    asked = {"correct": right, "called": tool is not None, "tool": tool, "failure": None, "input": None}
    return {**row, **asked, "response": None, **more}


def answered(store: Store, evaluation: str, number: int, rows: list[dict[str, Any]], **more: Any) -> Commit:
    """One shard of an evaluation; its items are its fingerprint."""
    parts = {"items": ",".join(row["item_id"] for row in rows), "evaluation": evaluation}
    return put(store, "evaluate", "", f"{evaluation}-{number}", rows, parts=parts, config=told(evaluation), **more)


def test_accuracy_by_hand(store: Store) -> None:
    rows = [
        predicted("a", "e1", right=True, tool="calculator"),
        predicted("b", "e1", right=False, tool="calculator", failure="empty"),
        predicted("c", "e1", right=True, tool="calendar"),
        predicted("d", "e1", right=False),
        predicted("e", "e1", right=False, problem="prompt_too_long"),
    ]
    first, second = answered(store, "e1", 0, rows[:2]), answered(store, "e1", 1, rows[2:])
    store.write_run(make_run("r1", [first.key, second.key], flow="evaluate"))
    path = snapshot_of(store)
    (one,) = accuracies(path)
    # 2 of 5 right; 3 with a call, of them 2 right; 2 without, of them none
    counts = {"items": 5, "right": 2, "called": 3, "failed": 1, "parameters": 7, "seconds": 3.0}
    assert one.items() >= counts.items()
    shares = [one[k] for k in ("accuracy", "call_rate", "accuracy_called", "accuracy_uncalled")]
    assert shares == pytest.approx([0.4, 0.6, 2 / 3, 0.0])
    about = {"task": "svamp", "arm": "toolformer", "k": 10, "base": "b", "source": "svamp.json", "completed": True}
    assert one.items() >= about.items()
    rates = {r["tool"]: r for r in rows_of(path, "FROM call_rates")}
    assert {tool: (r["items"], r["rate"], r["accuracy"], r["failure_rate"]) for tool, r in rates.items()} == {
        "calculator": (2, 0.4, 0.5, 0.5),
        "calendar": (1, 0.2, 1.0, 0.0),
    }


def test_several_calls_of_an_item_are_counted_and_stand_beside_evaluations_of_one(store: Store) -> None:
    def call(tool: str, *, requested: bool = True, failure: str | None = None) -> dict[str, Any]:
        return {"tool": tool, "position": 3, "input": "i", "response": "r", "failure": failure, "requested": requested}

    one = answered(store, "e1", 0, [predicted("a", "e1", right=True, tool="qa"), predicted("b", "e1", right=False)])
    chain = [call("qa"), call("calculator", failure="empty"), call("calculator")]
    rows = [
        predicted("a", "e8", right=True, tool="qa", calls=chain),
        predicted("b", "e8", right=False, calls=[call("mt", requested=False, failure="not_enabled")]),
        predicted("c", "e8", right=True, tool="calculator", calls=[call("calculator")]),
        predicted("d", "e8", right=False, calls=[]),
    ]
    several = put(store, "evaluate", "", "e8-0", rows, parts={"evaluation": "e8"}, config=told("e8", max_calls=8))
    store.write_run(make_run("r1", [one.key, several.key], flow="evaluate"))
    path = snapshot_of(store)
    figures = ("max_calls", "called", "call_rate", "calls_per_item")
    found = {row["evaluation"]: tuple(row[name] for name in figures) for row in accuracies(path)}
    # e1: one call in two items. e8: three calls, none, one, none in four
    assert found == {"e1": (1, 1, 0.5, 0.5), "e8": (8, 2, 0.5, 4 / 4)}
    rates = {(r["evaluation"], r["tool"]): r for r in rows_of(path, "FROM call_rates")}
    assert {key: (r["items"], r["rate"], r["accuracy"], r["failure_rate"]) for key, r in rates.items()} == {
        ("e1", "qa"): (1, 0.5, 1.0, 0.0),
        ("e8", "qa"): (1, 0.25, 1.0, 0.0),
        ("e8", "calculator"): (2, 0.5, 1.0, 0.5),  # a's first one failed
    }
    assert rows_of(path, "SELECT calls FROM predictions WHERE evaluation = 'e1'") == [{"calls": None}] * 2


def test_the_newest_completed_run_of_an_evaluation_counts_and_others_stay(store: Store) -> None:
    morning = answered(store, "e1", 0, [predicted("a", "e1", right=True), predicted("b", "e1", right=True)])
    other = answered(store, "e2", 0, [predicted("a", "e2", right=False)])
    store.write_run(make_run("r1", [morning.key, other.key], MORNING, flow="evaluate"))
    evening = answered(store, "e1", 1, [predicted("c", "e1", right=False)])
    store.write_run(make_run("r2", [evening.key], EVENING, flow="evaluate"))
    late = answered(store, "e1", 2, [predicted("d", "e1", right=True)])
    store.write_run(make_run("r3", [late.key], "2024-05-02T22:00:00+00:00", flow="evaluate", state="running"))
    half = answered(store, "e3", 0, [predicted("a", "e3", right=True)])
    store.write_run(make_run("r4", [half.key], flow="evaluate", state="failed"))
    path = snapshot_of(store)
    assert rows_of(path, "SELECT evaluation FROM accuracy WHERE NOT completed") == [{"evaluation": "e3"}]
    found = {r["evaluation"]: (r["items"], r["right"], r["evaluated"]) for r in accuracies(path)}
    # times are TIMESTAMP in UTC
    assert found == {"e1": (1, 0, dt.datetime(2024, 5, 2, 20)), "e2": (1, 0, dt.datetime(2024, 5, 2, 8))}


def test_a_build_and_an_evaluation_do_not_hide_each_other(store: Store) -> None:
    build = put(store, "ingest", "", "s0", [{"doc_id": "d1", "text": "1 + 1 is 2"}])
    calls = [scored("d1", "calculator", 3, 0.7), scored("d1", "calculator", 5, -1.0)]
    scores = put(store, "score", "calculator", "s0", calls)
    store.write_run(make_run("r1", [build.key, scores.key], MORNING))
    answers = answered(store, "e1", 0, [predicted("a", "e1", right=True)])
    store.write_run(make_run("r2", [answers.key], EVENING, flow="evaluate"))
    path = snapshot_of(store)
    assert [r["doc_id"] for r in rows_of(path, "FROM documents")] == ["d1"]
    assert len(rows_of(path, "FROM predictions")) == 1
    near = nearest_call(path, "calculator", -0.2)  # 0.7 is 0.9 away, -1.0 is 0.8
    assert (near.gain, near.before, near.after) == (-1.0, "1 + 1", " is 2")
    assert nearest_call(path, "mt", 0.0) is None


def test_perplexity_is_over_all_tokens(store: Store) -> None:
    about = {"evaluation": "p1", "task": "perplexity", "arm": "base", "k": 0, "parameters": 7, "source": "wiki"}
    rows = [
        {**about, "item_id": "a", "nll": 3.0, "tokens": 3, "characters": 9},
        {**about, "item_id": "b", "nll": 6.0, "tokens": 1, "characters": 4},
        {**about, "item_id": "c", "nll": 0.0, "tokens": 0, "characters": 0, "problem": "no_tokens"},
    ]
    config = told("p1", task="perplexity", arm="base", k=0, source="wiki")
    commit = put(store, "perplexity", "", "p1-0", rows, config=config)
    store.write_run(make_run("r1", [commit.key], flow="evaluate"))
    (one,) = perplexities(snapshot_of(store))
    assert (one["texts"], one["tokens"], one["failed"]) == (3, 4, 1)
    assert one["perplexity"] == pytest.approx(math.exp(9 / 4))
