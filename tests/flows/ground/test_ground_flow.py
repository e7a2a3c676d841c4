"""The flow `ground` on the embedded model: two small benchmarks, a stop half-way, what MLflow and SQL hold."""

import pickle
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mlflow import MlflowClient

from cli.terminal import as_plain
from flows.ground.flow import run_ground
from flows.ground.metrics import GroundResult
from flows.ground.parameters import GroundParameters
from flows.ground.resolve import EXAMPLES, resolve
from flows.ground.tables import cost_table
from flows.runtime.ledger import reporting_to
from tasks.shards import arrow
from tasks.shards.run_shard import ShardResult
from tests.support.small_builds import write_jsonl
from toolformer_core.embedded import CHAIN_PASSAGES
from toolformer_core.errors import CorpusError, ModelError, UnknownNameError, UsageError
from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.queries import grounding_accuracy
from toolformer_core.evaluate.scoring import is_right
from toolformer_core.evaluate.tasks import task_named
from toolformer_core.grounding.records import Weights
from toolformer_core.lm.load import model_digest
from warehouse.queries import rows_of, stats
from warehouse.schema import stage_facts
from warehouse.store import Store

QUERIES = [
    ("What is 12 * 7?", ["calculator"], "84"),
    ("How much is 30 - 4?", ["calculator"], "26"),
    ("What day is it today?", ["calendar"], "Thursday"),
    ("Which month is it?", ["calendar"], "May"),
    ("What is 8 + 9?", ["calculator"], "17"),
    ("Which year is it now?", ["calendar"], "2024"),
    ("How much is 5 * 5?", ["calculator"], "25"),
    ("Who are you?", [], "nobody"),
]


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight queries, and on its last line a row that is none."""
    rows: list[dict[str, Any]] = [
        {"item_id": f"q{n}", "query": query, "tools": tools, "answers": [answer], "date": "2024-05-02"}
        for n, (query, tools, answer) in enumerate(QUERIES)
    ]
    return write_jsonl(tmp_path_factory.mktemp("benchmarks") / "queries.jsonl", [*rows, {"answers": ["x"]}])


def asked(path: Path, data: Path, /, **changes: Any) -> GroundParameters:
    plain = {"tools": ["calculator", "calendar"], "shard_items": 2, "max_answer_tokens": 4, "max_call_tokens": 8}
    given = {"task": [f"queries={path}"], "data": str(data)}
    return GroundParameters.model_validate({**given, **plain, **changes})


Ran = tuple[GroundResult, GroundParameters]


@pytest.fixture(scope="module")
def done(prefect_server: None, queries: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Five of the queries and two items of the small world; three queries are held out."""
    data = tmp_path_factory.mktemp("grounded") / "data"
    tasks = [f"queries={queries}", "small-world"]
    parameters = asked(queries, data, task=tasks, limit=5, toolformer="embedded", threshold=0.1, distractors=2)
    return run_ground(parameters), parameters


METHODS = ("gear", "cosine", "lm", "toolformer")


@pytest.mark.slow
def test_every_query_is_grounded_and_answered_once_by_each_method(done: Ran) -> None:
    result, _ = done
    told = [(one.task, one.queries, one.rejected) for one in result.tasks]
    assert told == [("queries", 5, {"no_query": 1}), ("small-world", 5, {})]
    # two of the paper's and two distractors, which come last
    assert (len(result.tools), result.tools[:2]) == (4, ("calculator", "calendar"))
    assert (tuple(result.mean), [*result.mean_answered][4:]) == (METHODS, ["oracle", "zero-shot", "few-shot"])
    # two benchmarks; five queries are three shards of at most two: grounded, chosen by two models, answered by seven
    assert (result.done, result.skipped) == (2 + 2 * 3 * (1 + 2 + 7), 0)
    for columns, each in (("tool FROM groundings", 4), ("method FROM grounded_answers", 7)):
        rows = rows_of(result.snapshot, f"SELECT task, item_id, {columns}")
        assert len({tuple(row.values()) for row in rows}) == len(rows) == 2 * 5 * each
    found = stats(result.snapshot)
    assert found.conserved
    balances = {(b.stage, b.unit): (b.rows_in, b.kept) for b in found.balances}
    # of the queries' nine rows three are held out and one is none
    assert balances["ground", "queries"] == (10, 10)
    assert balances["answer_grounded", "queries"] == (70, 70)
    reasons = {(row["stage"], row["reason"]): row["rows"] for row in rows_of(result.snapshot, "FROM drops")}
    assert reasons["benchmark", "held_out"] == 2 * EXAMPLES


@pytest.mark.slow
def test_figures_are_those_of_the_stored_rows(done: Ran) -> None:
    result, _ = done
    weights = Weights(result.gamma, result.smoothing, result.threshold)
    for one in result.tasks:
        rows = rows_of(result.snapshot, "FROM groundings WHERE grounding = $g ORDER BY item_id", {"g": one.grounding})
        grounded = arrow.groundings_of(pa.Table.from_pylist(rows, schema=stage_facts("ground").schema))
        right = [tools for _, tools, _ in grounded]
        chosen = [g.choice(weights) for _, _, g in grounded]
        assert one.chosen["gear"] == one.by_paper["gear"] == grounding_accuracy(chosen, right)  # no open questions
        assert Counter(c or "no tool" for c in chosen) == result.confusion["gear"][one.task]
        (cosine,) = rows_of(result.snapshot, "FROM grounding_accuracy(1, 1) WHERE grounding = $g", {"g": one.grounding})
        # SQL knows no threshold: where no tool is right, it counts the choice as wrong, as the cosine has it
        assert cosine["right"] == one.chosen["cosine"].right
        choices = rows_of(result.snapshot, "FROM choice_accuracy WHERE task = $t", {"t": one.task})
        assert {r["method"]: r["right"] for r in choices} == {m: one.chosen[m].right for m in ("lm", "toolformer")}
        answers = rows_of(result.snapshot, "FROM grounded_accuracy WHERE task = $t", {"t": one.task})
        assert {r["method"]: r["right"] for r in answers} == {m: a.right for m, a in one.answered.items()}


@pytest.mark.slow
def test_a_method_answers_with_the_tool_that_it_chose(done: Ran, queries: Path) -> None:
    result, _ = done
    rows = rows_of(result.snapshot, "FROM grounded_answers WHERE task = 'queries' ORDER BY item_id")
    by_method = {m: {r["item_id"]: r for r in rows if r["method"] == m} for m in result.mean_answered}
    scores = rows_of(result.snapshot, "FROM grounding_scores(1, 1) WHERE chosen AND task = 'queries'")
    assert {r["item_id"]: r["tool"] for r in scores} == {i: r["tool"] for i, r in by_method["cosine"].items()}
    for row in by_method["oracle"].values():
        assert row["tool"] == next(iter(row["right_tools"]), None)
    for method in ("zero-shot", "few-shot"):
        assert {row["tool"] for row in by_method[method].values()} == {None}
    task = task_named("queries")
    for row in rows:
        item = Item(row["item_id"], "queries", row["query"], tuple(row["answers"]))
        assert row["correct"] == is_right(task, item, row["answer"])
    calls = [r for r in by_method["oracle"].values() if r["tool"] == "calendar" and not r["failure"]]
    assert all(r["answer"] == "Today is Thursday, May 2, 2024." for r in calls)


@pytest.mark.slow
def test_costs_are_n_plus_one_small_calls_and_one_large_call_a_query(done: Ran) -> None:
    result, _ = done
    for one in result.tasks:
        calls = {step: (cost.small_calls, cost.large_calls) for step, cost in one.cost.items()}
        assert (calls["ground"], calls["choose lm"][0]) == ((5 * (4 + 1), 0), 5)
        assert {calls[f"answer {method}"] for method in result.mean_answered} == {(0, 5)}
        assert all(cost.lm_tokens > 0 for step, cost in one.cost.items() if step != "choose toolformer")
    assert cost_table(result).rows[0][:3] == ("ground", 5.0, 0.0)


@pytest.mark.slow
def test_other_weights_need_no_shard_but_gears_answers(done: Ran) -> None:
    result, parameters = done
    again = run_ground(parameters)
    assert (again.done, again.skipped) == (0, result.done)
    same = {"snapshot", "mlflow_run", "run_id", "seconds", "done", "skipped"}
    figures = [{k: v for k, v in asdict(one).items() if k not in same} for one in (again, result)]
    assert as_plain(figures[0]) == as_plain(figures[1])
    other = run_ground(parameters.model_copy(update={"gamma": 0.3, "threshold": None}))
    assert other.done == 2 * 3  # the answers of gear, three shards of each benchmark
    more = run_ground(parameters.model_copy(update={"answers": False, "task": ["small-world"]}))
    assert (more.done, more.tasks[0].answered, tuple(more.tasks[0].chosen)) == (0, {}, METHODS)


@pytest.mark.slow
def test_mlflow_holds_figures_tables_pictures_and_what_was_asked(done: Ran) -> None:
    result, _ = done
    client = MlflowClient(result.tracking, result.tracking)
    run = client.get_run(result.mlflow_run)
    assert (run.info.status, run.data.tags["kind"], run.data.params["tools"]) == ("FINISHED", "ground", "4")
    assert run.data.params["model_digest"] == model_digest("embedded")
    for one in result.tasks:
        for method, accuracy in one.chosen.items():
            assert run.data.metrics[f"grounding/{one.task}/{method}"] == pytest.approx(accuracy.value)
    assert run.data.metrics["cost/queries/ground small calls"] == 5.0
    assert [given.dataset.name for given in run.inputs.dataset_inputs] == ["queries queries.jsonl", "small-world"]
    pictures = {f.path.removeprefix("figures/") for f in client.list_artifacts(run.info.run_id, "figures")}
    assert pictures == {f"{kind}_{m}.png" for kind in ("confusion", "grounding") for m in METHODS}


def data_files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.parquet")}


@pytest.mark.slow
def test_half_way_it_goes_on_and_comes_to_the_same_bytes(prefect_server: None, queries: Path, tmp_path: Path) -> None:
    small = {"limit": 4, "answers": True}

    def stop(stage: str, finished: int, total: int, last: ShardResult) -> None:
        if stage == "answer_grounded" and finished == 3:
            raise RuntimeError("as if it were killed here")

    with reporting_to(stop), pytest.raises(RuntimeError, match="killed here"):
        run_ground(asked(queries, tmp_path / "stopped", **small))
    store = Store(tmp_path / "stopped")
    before = {c.id: (c.created, c.files) for c in store.commits()}
    assert [run.state for run in store.runs()] == ["failed"]
    result = run_ground(asked(queries, tmp_path / "stopped", **small))
    after = {c.id: (c.created, c.files) for c in store.commits()}
    assert (result.skipped, result.done) == (len(before), len(after) - len(before))
    assert {key: after[key] for key in before} == before  # nothing was written again
    assert run_ground(asked(queries, tmp_path / "whole", **small)).skipped == 0
    assert data_files(tmp_path / "stopped") == data_files(tmp_path / "whole")


# --- before anything runs ---------------------------------------------------------------------------------------------


def test_the_small_world_is_continued_and_questions_are_asked(queries: Path, tmp_path: Path) -> None:
    def told(**changes: Any) -> list[tuple[str, str]]:
        plans = [plan.grounding for plan in resolve(asked(queries, tmp_path, **changes)).tasks]
        return [(one.settings.answer_prompt, one.library.demonstrations) for one in plans]

    both = told(task=[f"queries={queries}", "small-world"])
    assert both == [("Q: {query}\nA:", "questions"), ("{query}", "annotation")]
    assert told(answer_prompt="> {query}", demonstrations="annotation") == [("> {query}", "annotation")]


def test_a_tasks_own_passages_are_searched_unless_others_are_named(queries: Path, tmp_path: Path) -> None:
    def passages(**changes: Any) -> list[Path | None]:
        plan = resolve(asked(queries, tmp_path, task=["small-world", "small-world-chains"], **changes))
        return [one.grounding.library.settings.passages for one in plan.tasks]

    assert passages() == [None, CHAIN_PASSAGES]
    known = CHAIN_PASSAGES.with_name("known.jsonl.gz")
    assert passages(passages=str(known)) == [known] * 2


def test_few_shot_shows_held_out_items_that_are_never_asked(queries: Path, tmp_path: Path) -> None:
    def examples(**changes: Any) -> tuple[tuple[str, str], ...]:
        (plan,) = resolve(asked(queries, tmp_path, **changes)).tasks
        return next(run.examples for run in plan.answers if run.method == "few-shot")

    plan = resolve(asked(queries, tmp_path))
    assert pickle.loads(pickle.dumps(plan)) == plan  # it travels to workers
    shown = examples()
    assert len(shown) == EXAMPLES
    assert set(shown) <= {(query, answer) for query, _, answer in QUERIES}
    assert examples(limit=2) == shown  # whatever the limit
    assert examples(seed=1) != shown


def test_queries_without_answers_are_no_examples(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "queries.jsonl", [{"query": f"What is {n}?", "tools": []} for n in range(5)])
    (plan,) = resolve(asked(path, tmp_path)).tasks
    assert {run.examples for run in plan.answers} == {()}


def test_weights_name_gears_answers_alone(queries: Path, tmp_path: Path) -> None:
    def names(**changes: Any) -> tuple[str, dict[str, str]]:
        (plan,) = resolve(asked(queries, tmp_path, **changes)).tasks
        return plan.grounding.name, {run.method: run.name for run in plan.answers}

    grounding, answers = names()
    for name, value in (("gamma", 0.5), ("smoothing", 2.0), ("threshold", 0.4)):
        same, others = names(**{name: value})
        assert same == grounding
        assert {method for method in answers if answers[method] != others[method]} == {"gear"}
    changes: dict[str, Any] = {"patterns": "authors", "mock": ["calculator"], "tools": ["calendar"]}
    for name, other in {**changes, "max_call_tokens": 9}.items():
        assert names(**{name: other})[0] != grounding


def test_mock_responses_of_all_tools_or_of_some(queries: Path, tmp_path: Path) -> None:
    (plan,) = resolve(asked(queries, tmp_path, mock=["all"], distractors=2)).tasks
    assert plan.grounding.library.mocked == plan.grounding.library.keys != ()
    (plan,) = resolve(asked(queries, tmp_path, mock=["Calendar"])).tasks
    assert plan.grounding.library.mocked == ("calendar",)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"task": []}, UsageError, "--task NAME=PATH"),
        ({"task": ["svanp"]}, UnknownNameError, "Did you mean"),
        ({"task": ["svamp=/no/such.json"]}, CorpusError, "no such benchmark"),
        ({"task": ["svamp="]}, UsageError, "the path is missing"),
        ({"task": ["small-world", "small_world"]}, UsageError, "named twice"),
        ({"task": ["wikitext"]}, UsageError, "asks? nothing"),
        ({"mock": ["qa"]}, UsageError, "not in the library: qa"),
        ({"answer_prompt": "A:"}, UsageError, "needs one"),
        ({"toolformer": "/no/model"}, ModelError, "no folder"),
        ({"distractors": 10_000}, UsageError, "distractors"),
    ],
)
def test_mistakes_are_answered_before_anything_runs(
    queries: Path, tmp_path: Path, changes: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        resolve(asked(queries, tmp_path / "data", **changes))
    assert not (tmp_path / "data").exists()
