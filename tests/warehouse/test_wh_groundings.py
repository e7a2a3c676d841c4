"""Groundings in the snapshot: scores in SQL against the core's, figures by hand, and which run counts."""

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wh_fixtures import make_run, put, snapshot_of

from tasks.shards import arrow
from toolformer_core.grounding.records import Grounding, Query, ToolScore, Weights
from warehouse.commits import Commit
from warehouse.queries import rows_of
from warehouse.schema import STAGES
from warehouse.snapshot.views import statements
from warehouse.store import Store

NAMES = ("number", "english")
WEIGHTS = (4.0, 0.5)  # log(1 / P)


def grounding(counts: tuple[int, int], scores: dict[str, tuple[float, tuple[int, int]]]) -> Grounding:
    tools = tuple(ToolScore(tool, s, "in", "out", "", c) for tool, (s, c) in scores.items())
    return Grounding(Query("how many?", "2024-05-02"), "12", counts, tools, WEIGHTS)


def grounded(store: Store, name: str, groundings: list[Grounding], right: list[tuple[str, ...]]) -> Commit:
    asked = [arrow.LabelledQuery(f"q{n}", g.query, r) for n, (g, r) in enumerate(zip(groundings, right, strict=True))]
    rows = arrow.groundings_table(name, "svamp", asked, groundings, NAMES).to_pylist()
    config = {"evaluation": f"ground/{name}", "grounding": name, "task": "svamp"}
    return put(store, "ground", "", f"{name}-0", rows, parts={"name": name}, config=config)


TWO_TOOLS = {"calculator": (0.2, (1, 0)), "qa": (0.4, (0, 3))}


def test_scores_and_accuracies_by_hand(store: Store) -> None:
    groundings = [grounding((1, 0), TWO_TOOLS), grounding((0, 2), TWO_TOOLS)]
    commit = grounded(store, "g1", groundings, [("calculator",), ("qa", "wikisearch")])
    store.write_run(make_run("r1", [commit.key], flow="ground"))
    path = snapshot_of(store)
    # lambda 1, |S| 2. q0: (1 + 1) 1 4 / ((1 + 2) 1) = 8/3 and (0 + 1) 3 0.5 / (3 3) = 1/6
    #                  q1: (0 + 1) 1 4 / ((2 + 2) 1) = 1   and (2 + 1) 3 0.5 / (4 3) = 3/8
    rows = rows_of(path, "FROM grounding_scores(0.75, 1) ORDER BY item_id, tool")
    assert [row["pattern"] for row in rows] == pytest.approx([8 / 3, 1 / 6, 1, 3 / 8])
    # totals: 0.15 + 2/3, 0.3 + 1/24, 0.15 + 1/4, 0.3 + 3/32
    assert [row["total"] for row in rows] == pytest.approx([0.15 + 2 / 3, 0.3 + 1 / 24, 0.4, 0.39375])
    assert [row["chosen"] for row in rows] == [True, False, True, False]
    assert [row["right"] for row in rows] == [True, False, False, True]
    (half,) = rows_of(path, "FROM grounding_accuracy(0.75, 1)")
    assert (half["grounding"], half["task"], half["queries"], half["right"]) == ("g1", "svamp", 2, 1)
    # the cosine alone always chooses qa; with more weight on it than 0.75 both are right
    (cosine,) = rows_of(path, "FROM grounding_accuracy(1, 1)")
    assert cosine["accuracy"] == 0.5
    (best,) = rows_of(path, "FROM grounding_accuracy(0.8, 1)")  # q1: 0.16 + 0.2 < 0.32 + 0.075
    assert best["accuracy"] == 1.0


counts = st.tuples(st.integers(0, 4), st.integers(0, 4))
score = st.tuples(st.floats(-1, 1), counts)
some = st.lists(st.builds(grounding, counts, st.fixed_dictionaries({"a": score, "b": score, "c": score})), max_size=4)


@pytest.fixture(scope="module")
def macros() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.register("groundings", STAGES["ground"].schema.empty_table())
        for name in ("grounding_scores", "grounding_accuracy"):
            macro = statements()[name]
            connection.execute(f"CREATE MACRO {name}({macro.parameters}) AS TABLE {macro.sql}")
        yield connection


@given(some, st.sampled_from([0.0, 0.3, 0.75, 1.0]), st.sampled_from([0.0, 0.5, 1.0, 10.0]))
def test_sql_scores_as_the_core_does(
    macros: duckdb.DuckDBPyConnection, groundings: list[Grounding], gamma: float, smoothing: float
) -> None:
    asked = [arrow.LabelledQuery(f"q{n}", g.query, ()) for n, g in enumerate(groundings)]
    macros.register("groundings", arrow.groundings_table("g", "svamp", asked, groundings, NAMES))
    found = macros.execute(
        f"SELECT item_id, tool, total, chosen FROM grounding_scores({gamma}, {smoothing}) ORDER BY item_id, tool"
    ).fetchall()
    weights = Weights(gamma, smoothing)
    expected = [
        (one.item_id, tool, pytest.approx(total, abs=1e-12))
        for one, g in zip(asked, groundings, strict=True)
        for tool, total in sorted(g.totals(weights))
    ]
    assert [row[:3] for row in found] == expected
    assert sum(row[3] for row in found) == len(groundings)


def test_equal_scores_are_decided_by_the_order_of_the_library(store: Store) -> None:
    same = dict.fromkeys(("qa", "calculator", "mt"), (0.5, (1, 1)))
    grounded(store, "g", [grounding((1, 1), same)], [("qa",)])
    rows = rows_of(snapshot_of(store), "FROM grounding_scores(0.75, 1) WHERE chosen")
    assert [row["tool"] for row in rows] == ["qa"]


def test_choices_answers_and_costs_by_hand(store: Store) -> None:
    def chosen(item: str, tool: str | None, right: list[str]) -> dict[str, Any]:
        about = {"grounding": "g1", "method": "lm", "task": "svamp", "item_id": item, "query": "?"}
        return {**about, "right_tools": right, "tool": tool}

    def answered(item: str, correct: bool, failure: str = "") -> dict[str, Any]:
        about = {"grounding": "g1", "answering": "a1", "method": "gear", "task": "svamp", "item_id": item, "query": "?"}
        asked = {"answers": ["4"], "right_tools": ["calculator"], "tool": "calculator", "call": "2 + 2"}
        told = {"answer": "4" if correct else "", "correct": correct, "failure": failure}
        return {**about, **asked, **told, **({"answers": []} if item == "c" else {})}

    # where no tool is right, none chosen is right; where one is, none chosen is wrong
    rows = [chosen("a", "qa", ["qa"]), chosen("b", None, ["qa"]), chosen("c", None, []), chosen("d", "qa", [])]
    told = {"evaluation": "choose/c1", "grounding": "g1", "task": "svamp", "method": "lm"}
    put(store, "choose", "", "c1-0", rows, config=told, counters={"small_calls": 4, "lm_tokens": 40})
    # the third has no answers to compare with: it is no part of the accuracy
    rows = [answered("a", True), answered("b", False, "no_call"), answered("c", False)]
    told = {"evaluation": "answers/a1", "answering": "a1", "grounding": "g1", "task": "svamp", "method": "gear"}
    for shard, row in enumerate(rows):
        counters = {"small_calls": 0, "large_calls": 1, "lm_tokens": 30 + shard, "tool_calls": shard}
        put(store, "answer_grounded", "", f"a1-{shard}", [row], config=told, counters=counters)
    path = snapshot_of(store)
    (choice,) = rows_of(path, "FROM choice_accuracy")
    assert (choice["method"], choice["queries"], choice["right"], choice["accuracy"]) == ("lm", 4, 2, 0.5)
    (answer,) = rows_of(path, "FROM grounded_accuracy")
    assert (answer["answering"], answer["queries"], answer["accuracy"], answer["failure_rate"]) == ("a1", 3, 0.5, 1 / 3)
    cost = {row["stage"]: row for row in rows_of(path, "FROM grounding_costs")}
    assert (cost["choose"]["small_calls"], cost["choose"]["lm_tokens"]) == (4, 40)
    assert [cost["answer_grounded"][f] for f in ("large_calls", "lm_tokens", "tool_calls")] == [3, 93, 3]
