"""The stages of a grounding one by one: their rows, their costs, and what makes them work again."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.shards import arrow
from tasks.shards.run_shard import ShardResult
from tasks.shards.stage import Inputs, Stage, run_stage
from tasks.specs import grounding_spec
from tasks.specs.evaluation_spec import Benchmark, source_digest
from tasks.specs.grounding_spec import AnswerRun, ChoiceRun, GroundingRun, NamedModel, ToolLibrary, tools_of
from tasks.stages.answer_grounded import ANSWER_GROUNDED
from tasks.stages.benchmark import BENCHMARK, benchmark_shards
from tasks.stages.ground import CHOOSE, GROUND
from toolformer_core.errors import ToolError
from toolformer_core.evaluate.tasks import task_named
from toolformer_core.grounding.ground import GroundingSettings
from toolformer_core.grounding.patterns import AUTHORS_PATTERNS, STANDARD_PATTERNS
from toolformer_core.grounding.records import Grounding, Query, ToolScore, Weights
from toolformer_core.lm.load import model_digest
from toolformer_core.tools.build import ToolSettings
from warehouse.commits import DataFile

ROWS: list[dict[str, Any]] = [
    {"item_id": "a", "query": "What is 12 * 7?", "tools": ["calculator"], "answers": ["84"]},
    {"item_id": "b", "query": "What day is it today?", "tools": ["calendar"], "answers": ["Thursday"]},
    {"item_id": "c", "query": "Who are you?", "tools": [], "answers": ["nobody"]},
]
Ground = tuple[GroundingRun, ShardResult, ShardResult]  # the run, its items, its groundings


def grounding(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> GroundingRun:
    path = folder / "queries.jsonl"
    path.write_text("".join(json.dumps({"date": "2024-05-02", **row}) + "\n" for row in rows))
    plain = {"limit": None, "shard_items": 10, "seed": 0, "held_out": 0} | changes
    digest = source_digest(task_named("queries"), path)
    benchmark = Benchmark("r1", str(folder / "data"), "queries", str(path), digest, **plain)
    tools = tools_of(["calculator", "calendar"], ToolSettings(), "questions", ())
    library = ToolLibrary(tuple((one.key, one.digest) for one in tools), ToolSettings())
    model = NamedModel("embedded", model_digest("embedded"))
    settings = GroundingSettings(max_answer_tokens=4, max_call_tokens=8)
    return GroundingRun(benchmark, library, model, NamedModel("", ""), STANDARD_PATTERNS, settings)


def read(run: GroundingRun) -> ShardResult:
    return run_stage(BENCHMARK, Inputs(run.benchmark, "queries"))


def done(stage: Stage[Any], run: Any, items: ShardResult, **files: tuple[DataFile, ...]) -> ShardResult:
    (shard,) = benchmark_shards(items)
    return run_stage(stage, Inputs(run, "s-00000", files={"benchmark": (shard.documents,), **files}))


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    run = grounding(tmp_path_factory.mktemp("grounding"), ROWS)
    items = read(run)
    return run, items, done(GROUND, run, items)


def groundings_in(run: GroundingRun, result: ShardResult) -> Mapping[str, tuple[tuple[str, ...], Grounding]]:
    (file,) = result.files
    return {item_id: (right, one) for item_id, right, one in arrow.groundings_of(run.store().read(file))}


def test_rows_are_the_groundings_of_the_core(ground: Ground) -> None:
    run, _, result = ground
    found = groundings_in(run, result)
    assert {i: right for i, (right, _) in found.items()} == {"a": ("calculator",), "b": ("calendar",), "c": ()}
    queries = {row["item_id"]: Query(row["query"], "2024-05-02") for row in ROWS}
    expected = grounding_spec.grounder_of(run).ground([queries[item_id] for item_id in found])
    assert [grounding for _, grounding in found.values()] == expected
    [commit] = (one for one in run.store().commits("ground") if one.key == result.key)
    # three queries: one answer and two calls of the small LM each
    assert (commit.counters["small_calls"], commit.counters["large_calls"]) == (9, 0)
    assert [(b.unit, b.rows_in, b.kept) for b in commit.balances] == [("queries", 3, 3)]


def test_each_method_answers_with_its_own_choice(ground: Ground) -> None:
    run, items, result = ground
    small = run.small

    def answers(method: str, weights: Weights | None = None, **files: tuple[DataFile, ...]) -> list[dict[str, Any]]:
        asked = AnswerRun(run, method, small, weights or Weights(), (("What is 1 + 1?", "2"),))
        (file,) = done(ANSWER_GROUNDED, asked, items, **files).files
        return run.store().read(file).to_pylist()

    def chosen(*args: Any, **files: tuple[DataFile, ...]) -> dict[str, str | None]:
        return {row["item_id"]: row["tool"] for row in answers(*args, **files)}

    found = groundings_in(run, result)
    for weights in (Weights(), Weights(0.0), Weights(threshold=100.0)):
        assert chosen("gear", weights, ground=result.files) == {i: g.choice(weights) for i, (_, g) in found.items()}
    cosine = {i: g.choice(Weights(gamma=1)) for i, (_, g) in found.items()}
    assert chosen("cosine", ground=result.files) == cosine
    assert chosen("oracle") == {"a": "calculator", "b": "calendar", "c": None}
    [day] = (row for row in answers("oracle") if row["item_id"] == "b")
    assert (day["answer"], day["correct"]) == ("Today is Thursday, May 2, 2024.", True)
    for method in ("zero-shot", "few-shot"):
        assert chosen(method) == dict.fromkeys("abc")
    for method in ("lm", "toolformer"):
        choice = done(CHOOSE, ChoiceRun(run, method, small), items)
        (file,) = choice.files
        by_item = {item_id: tool for item_id, _, tool in arrow.choices_of(run.store().read(file))}
        assert chosen(method, choose=choice.files) == by_item


def test_a_tool_that_has_changed_since_the_run_was_started_is_named(ground: Ground) -> None:
    run, items, _ = ground
    other = replace(run, library=replace(run.library, tools=(("calculator", "0" * 32), *run.library.tools[1:])))
    with pytest.raises(ToolError, match="the tool calculator is not the one"):
        done(GROUND, other, items)
    other = replace(run, patterns=AUTHORS_PATTERNS)
    assert other.name != run.name
    assert not done(GROUND, other, items).skipped


def test_of_a_sample_what_is_left_out_is_counted(tmp_path: Path) -> None:
    rows = [{"item_id": f"q{n}", "query": f"What is {n} + 1?", "tools": ["calculator"]} for n in range(9)]
    run = grounding(tmp_path, [*rows, {"tools": []}], limit=4, shard_items=3, held_out=3)
    result = read(run)
    # ten rows: one is none, three are held out, four asked, two are left
    (counts,) = result.counts
    assert (counts.rows_in, counts.kept) == (10, 4)
    assert (dict(counts.dropped), dict(counts.failed)) == ({"held_out": 3, "not_chosen": 2}, {"no_query": 1})
    assert [file.rows for file in result.files] == [3, 1]
    larger = read(replace(run, benchmark=replace(run.benchmark, limit=6)))
    assert larger.files[0].digest == result.files[0].digest  # a shard of the smaller sample: not grounded again
    first = read(replace(run, benchmark=replace(run.benchmark, seed=None)))
    items = [row["item_id"] for file in first.files for row in run.store().read(file).to_pylist()]
    assert items == ["q0", "q1", "q2", "q3"]  # without a seed: the first


counts = st.tuples(st.integers(0, 3), st.integers(0, 3))
scores = st.builds(
    ToolScore, st.sampled_from("abc"), st.floats(-1, 1), st.text(), st.text(), st.text(), counts, st.booleans()
)
queries = st.builds(Query, st.text(), st.text())
some_scores = st.lists(scores, min_size=1, max_size=3).map(tuple)
groundings = st.builds(Grounding, queries, st.text(), counts, some_scores, st.just((0.5, 4.0)))


@given(st.lists(groundings, max_size=4))
def test_groundings_come_back_from_their_table(some: list[Grounding]) -> None:
    asked = [arrow.LabelledQuery(f"q{n}", g.query, ("a",)) for n, g in enumerate(some)]
    table = arrow.groundings_table("g", "svamp", asked, some, ("number", "english"))
    back = arrow.groundings_of(table)
    assert back == [(one.item_id, ("a",), g) for one, g in zip(asked, some, strict=True)]
