"""The flow `evaluate` on the embedded model: small benchmarks of our own, a stop half-way, what MLflow and SQL hold."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows.evaluate import flow
from flows.evaluate.flow import run_evaluate
from flows.evaluate.metrics import EvaluateResult
from flows.evaluate.parameters import EvaluateParameters
from flows.evaluate.resolve import resolve
from flows.evaluate.tables import paper_tables
from flows.runtime import stage_tasks
from flows.runtime.ledger import reporting_to
from tasks.shards.run_shard import ShardResult
from tasks.shards.stage import Inputs, run_stage
from tasks.specs.evaluation_spec import Benchmark
from tasks.stages.benchmark import BENCHMARK
from tasks.training.registry import MLFLOW_NOTE, finished_finetunes, newest_pair, trained_model
from tests.support.finished_job import a_finished_job
from tests.support.small_builds import write_jsonl
from toolformer_core.embedded import MODEL
from toolformer_core.errors import CorpusError, ModelError, UnknownNameError, UsageError
from toolformer_core.evaluate.figures import measured_text
from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.scoring import is_right
from toolformer_core.evaluate.tasks import task_named
from toolformer_core.lm.load import model_digest
from warehouse.queries import rows_of, stats
from warehouse.store import Store

PROBLEMS = [
    ("A shelf holds 7 books and a box holds 4.", "How many books are there?", 11),
    ("Nine boats left the harbour and 3 came back.", "How many boats are out?", 6),
    ("A baker makes 12 loaves in each of 5 ovens.", "How many loaves are there?", 60),
    ("A rope of 20 metres is cut into 4 equal parts.", "How long is a part?", 5),
    ("A train had 31 passengers and 8 got off.", "How many are left?", 23),
]


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five problems in SVAMP's form, and on its last lines two rows that are none."""
    rows: list[dict[str, Any]] = [
        {"ID": f"p-{n}", "Body": body, "Question": question, "Answer": answer, "Type": "Sum"}
        for n, (body, question, answer) in enumerate(PROBLEMS)
    ]
    rows += [{"ID": "p-5", "Body": "No question.", "Answer": 1}, {"ID": "p-6", "Body": "A", "Question": "B?"}]
    path = tmp_path_factory.mktemp("benchmarks") / "problems.json"
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
    return path


def asked(path: Path | None, data: Path, /, **changes: Any) -> EvaluateParameters:
    plain = {"task": "svamp", "tools": ["calculator", "calendar"], "shard_items": 2, "max_new_tokens": 6}
    given = {"path": str(path) if path else None, "data": str(data)}
    return EvaluateParameters.model_validate({**given, **plain, **changes})


@pytest.fixture(scope="module")
def done(
    prefect_server: None, problems: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[EvaluateResult, EvaluateParameters]:
    """The embedded model as base, and a copy of it as Toolformer: all arms but cc, at three ks."""
    folder = tmp_path_factory.mktemp("evaluated")
    shutil.copytree(MODEL, folder / "copy")
    (folder / MLFLOW_NOTE).write_text("0" * 32 + "\n")  # as a training leaves it beside its model
    parameters = asked(problems, folder / "data", toolformer=str(folder / "copy"), k=[0, 1, 10])
    return run_evaluate(parameters), parameters


Ran = tuple[EvaluateResult, EvaluateParameters]


def test_every_arm_at_every_k_answers_every_item_once(done: Ran) -> None:
    result, _ = done
    assert [(a.arm, a.k, a.items) for a in result.arms] == [
        *(("base", 0, 5), ("base+tools", 1, 5), ("base+tools", 10, 5)),
        *(("toolformer-disabled", 0, 5), ("toolformer", 1, 5), ("toolformer", 10, 5)),
    ]
    assert (result.done, result.skipped) == (1 + 6 * 3, 0)  # five items are three shards of at most two
    counted = rows_of(result.snapshot, "SELECT arm, k, item_id FROM predictions")
    assert len({tuple(row.values()) for row in counted}) == len(counted) == 30


def test_a_copy_of_the_base_answers_as_the_base_does(done: Ran) -> None:
    sql = "SELECT continuation FROM predictions WHERE arm = $arm ORDER BY item_id"
    base, copy = (rows_of(done[0].snapshot, sql, {"arm": arm}) for arm in ("base", "toolformer-disabled"))
    assert base == copy
    p = {a.arm: [test and test.p for test in (a.versus_base, a.versus_disabled)] for a in done[0].arms}
    assert (p["base"], p["toolformer-disabled"], p["base+tools"][1]) == ([None, None], [1.0, None], None)
    assert p["toolformer"][1] is not None


def test_what_is_printed_is_what_sql_says_and_what_the_rule_says(done: Ran) -> None:
    result, _ = done
    rows = rows_of(result.snapshot, "FROM predictions")
    task = task_named("svamp")
    for row in rows:
        item = Item(row["item_id"], "svamp", row["prompt"], tuple(row["answers"]))
        assert row["correct"] == is_right(task, item, row["clean"])
        assert row["prompt"].endswith(" The answer is")
    viewed = {r["evaluation"]: r for r in rows_of(result.snapshot, "FROM accuracy")}
    for arm in result.arms:
        view = viewed[arm.evaluation]
        assert (view["items"], view["right"], view["parameters"]) == (arm.items, arm.right, arm.parameters)
        assert view["accuracy"] == pytest.approx(arm.accuracy)
        assert view["completed"]
        assert arm.low <= arm.accuracy <= arm.high
    assert result.arms[0].parameters > 1e6


def test_rows_that_are_no_items_are_counted_by_reason_and_line(done: Ran) -> None:
    result, _ = done
    assert sum(result.rejected.values()) == 2
    lines = rows_of(result.snapshot, "SELECT line, reason, source FROM rejects ORDER BY line")
    assert [(r["line"], r["source"]) for r in lines] == [(7, "problems.json"), (8, "problems.json")]
    found = stats(result.snapshot)
    assert found.conserved
    balances = {(b.stage, b.unit): (b.rows_in, b.kept) for b in found.balances}
    assert balances == {("benchmark", "rows"): (7, 5), ("evaluate", "items"): (30, 30)}


def test_mlflow_holds_figures_tables_plots_and_what_was_asked(done: Ran) -> None:
    result, _ = done
    client = MlflowClient(result.tracking, result.tracking)
    run = client.get_run(result.mlflow_run)
    assert (run.info.run_name, run.info.status) == ("toolformer, base: svamp problems.json, embedded", "FINISHED")
    assert client.get_experiment(run.info.experiment_id).name == "data"  # the folder's name
    assert (run.data.tags["kind"], run.data.tags["run.toolformer"]) == ("evaluate", "0" * 32)
    assert "run.base" not in run.data.tags  # it was not trained here
    for arm in result.arms:
        kept = client.get_metric_history(run.info.run_id, f"accuracy/{arm.arm.replace('+', '-')}")
        assert {m.step: m.value for m in kept}[arm.k] == pytest.approx(arm.accuracy)
    (given,) = run.inputs.dataset_inputs
    assert (given.dataset.name, given.tags[0].value) == ("svamp problems.json", "evaluation")
    assert run.data.params["arms.toolformer.digest"] == run.data.params["arms.base.digest"]
    table = json.loads(Path(client.download_artifacts(run.info.run_id, "tables/arms.json")).read_text())
    at = table["columns"].index("right")
    assert [row[at] for row in table["data"]] == [a.right for a in result.arms]
    figures = {f.path for f in client.list_artifacts(run.info.run_id, "figures")}
    assert figures == {"figures/accuracy_by_arm.png", "figures/accuracy_by_k.png"}


def test_the_same_again_finds_all_done_and_more_items_reuse_whole_shards(done: Ran, problems: Path) -> None:
    result, parameters = done
    again = run_evaluate(parameters.model_copy(update={"limit": 4, "k": [1], "arms": ["base+tools"]}))
    assert (again.done, again.skipped) == (1, 2)  # another cut of the file; both shards of two are the same
    whole = run_evaluate(parameters)
    assert (whole.done, whole.skipped) == (0, 19)
    assert [a.accuracy for a in whole.arms] == [a.accuracy for a in result.arms]


def test_of_a_changed_file_only_the_changed_shard_is_answered_again(done: Ran, problems: Path, tmp_path: Path) -> None:
    file = tmp_path / problems.name
    file.write_text(problems.read_text().replace("12 loaves", "14 loaves"))  # the third problem, of the second shard
    data = shutil.copytree(done[1].data, tmp_path / "data", ignore=shutil.ignore_patterns("prefect"))
    result = run_evaluate(asked(file, data, arms=["base"]))
    assert (result.done, result.skipped) == (1 + 1, 2)
    prompts = [r["prompt"] for r in rows_of(result.snapshot, "SELECT prompt FROM predictions WHERE arm = 'base'")]
    assert [sum(f"{n} loaves" in prompt for prompt in prompts) for n in (12, 14)] == [0, 1]
    assert len(prompts) == 5


def test_the_queries_of_the_docs_run(done: Ran) -> None:
    docs = Path(__file__).parents[3] / "docs" / "evaluating.md"
    found = re.findall(r"```sql\n(.*?)```", docs.read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) >= 3
    for sql in found:
        rows_of(done[0].snapshot, sql)


def read_items(parameters: EvaluateParameters) -> tuple[Benchmark, ShardResult, list[str]]:
    """The benchmark, its shards, and the ids of its items."""
    benchmark = resolve(parameters).benchmark
    done = run_stage(BENCHMARK, Inputs(benchmark, benchmark.task))
    return benchmark, done, [row["item_id"] for file in done.files for row in benchmark.store().read(file).to_pylist()]


def test_half_way_it_goes_on_where_it_was(prefect_server: None, problems: Path, tmp_path: Path) -> None:
    parameters = asked(problems, tmp_path, arms=["base", "base+tools"])

    def stop_at_the_third(stage: str, finished: int, total: int, last: ShardResult) -> None:
        if stage == "evaluate" and finished == 3:
            raise RuntimeError("as if it were killed here")

    with reporting_to(stop_at_the_third), pytest.raises(RuntimeError, match="killed here"):
        run_evaluate(parameters)
    store = Store(tmp_path)
    before = {c.id: (c.created, c.files) for c in store.commits()}
    assert 4 <= len(before) <= 7
    assert [run.state for run in store.runs()] == ["failed"]
    result = run_evaluate(parameters)
    after = {c.id: (c.created, c.files) for c in store.commits()}
    assert (result.skipped, result.done) == (len(before), 7 - len(before))
    assert {key: after[key] for key in before} == before  # nothing was written again
    assert len(after) == 7


def test_perplexity_of_arms_and_texts(prefect_server: None, tmp_path: Path) -> None:
    text = tmp_path / "wikitext.txt"
    text.write_text("= One =\n\nThe mill was open for 50 years .\n\n= Two =\n\nThey planted trees in rows .\n")
    result = run_evaluate(asked(text, tmp_path / "data", task="perplexity", arms=["base", "base+tools"]))
    (one,) = result.perplexities  # an arm with tools on has no perplexity
    (row,) = rows_of(result.snapshot, "FROM perplexity")
    assert (one.arm, one.texts) == ("base", result.items)
    assert one.perplexity == pytest.approx(row["perplexity"])
    assert 1 < one.perplexity < 1e5
    table = next(t for t in paper_tables(Path(result.snapshot), "d") if t.name == "Table 8")
    assert table.rows[0][:3] == ("wikitext.txt", pytest.approx(one.perplexity), 9.9)
    assert result.paper == {"gpt-j": 9.9, "gpt-j + cc": 10.3, "toolformer (disabled)": 10.3}
    # the same text under a name that says nothing: no figure of the paper stands beside it, unless the task says more
    other = Path(shutil.copy(text, tmp_path / "mine.txt"))
    again = run_evaluate(asked(other, tmp_path / "data", task="perplexity", arms=["base"]))
    assert again.perplexities[0].perplexity == pytest.approx(one.perplexity)
    assert again.paper == {}
    table = next(t for t in paper_tables(Path(again.snapshot), "d") if t.name == "Table 8")
    assert [row[2] for row in table.rows if row[0] == "mine.txt"] == [None]
    assert measured_text("wikitext", "mine.txt") == "wikitext"
    plan = resolve(asked(None, tmp_path / "data", task="perplexity"))  # from the hub, where it is WikiText
    assert measured_text(plan.task.name, plan.benchmark.source) == "wikitext"


def test_of_a_folder_a_limit_asks_a_sample_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "TREx"
    folder.mkdir()
    for relation in ("P19", "P20", "P27"):
        rows = [{"sub_label": f"Ona {n}", "obj_label": "Tarn", "uuid": f"{relation}-{n}"} for n in range(5)]
        write_jsonl(folder / f"{relation}.jsonl", rows)

    def items(**changes: Any) -> tuple[Benchmark, ShardResult, list[str]]:
        return read_items(asked(folder, tmp_path / "data", task="lama-trex", shard_items=3, **changes))

    benchmark, done, asked_for = items(limit=3)
    assert benchmark.source == "TREx (sampled by seed 0)"  # in titles, tables and MLflow
    more = items(limit=6)
    assert more[2][:3] == asked_for
    assert more[1].files[0].digest == done.files[0].digest  # a whole shard of the smaller limit: not answered again
    whole, _, every = items()
    assert (whole.source, len(every), every[:3]) == ("TREx", 15, ["P19-0", "P19-1", "P19-2"])
    assert more[2] != every[:6]
    names = [resolve(asked(folder, tmp_path / "data", task="lama-trex", limit=n)).names() for n in (3, 6, None)]
    one, two, three = (set(own.values()) for own in names)
    assert (one, one & three) == (two, set())  # so that figures of a part never stand beside those of all


def test_tasks_do_not_offer_what_gives_the_answer_away(problems: Path, tmp_path: Path) -> None:
    every = ["calculator", "calendar", "wikisearch", "qa", "mt"]
    plan = resolve(asked(problems, tmp_path, tools=every, k=[3]))
    assert {e.arm: (e.k, e.offered) for e in plan.evaluations} == {"base": (0, ()), "base+tools": (3, tuple(every))}
    questions = write_jsonl(tmp_path / "questions.jsonl", [{"question": "Who?", "answer": ["x"]}])
    plan = resolve(asked(questions, tmp_path, task="nq", tools=every, max_new_tokens=None))
    assert plan.evaluations[1].offered == ("calculator", "calendar", "wikisearch", "mt")
    assert plan.evaluations[1].max_new_tokens == 96


def finetuned(jobs: Path, name: str, base: str, dev_digest: str, finished: float, **noted: object) -> Path:
    known = {"dataset": "star@1", "base_digest": base, "number": 0, "dev_digest": dev_digest, **noted}
    return a_finished_job(jobs / name, base=base, finished=finished, **known)


def test_finetunes_are_found_as_a_pair_of_the_newest_dataset(tmp_path: Path) -> None:
    jobs, base = tmp_path / "finetunes", str(MODEL)
    finetuned(jobs, "cstar-cc-00", base, "old", 4.5)  # later than the pair's, but of another dataset
    finetuned(jobs, "cstar-toolformer-00", base, "old", 2)
    newest = finetuned(jobs, "my-star-toolformer-01", base, "new", 5)
    pair = finetuned(jobs, "my-star-cc-01", base, "new", 4)
    finetuned(jobs, "my-star-toolformer-02", base, "new", 8, number=-1)  # begun earlier, by a clock set back since
    finetuned(jobs, "my-star-cc-03", "other/model", "new", 9)  # of another base
    (finetuned(jobs, "my-star-cc-04", base, "new", 9) / "events.jsonl").write_text('{"t": 8, "event": "started"}\n')
    (jobs / "stray").mkdir()
    found = finished_finetunes(jobs)
    assert len(found) == 6
    chosen = newest_pair(found, base)
    assert {arm: one.folder for arm, one in chosen.items()} == {"toolformer": newest, "cc": pair}
    assert newest_pair(found, "x") == {}
    assert trained_model(str(newest)) == str(newest / "model")
    shutil.rmtree(newest / "model")
    with pytest.raises(ModelError, match="not finished"):
        trained_model(str(newest))


def test_finetunes_are_found_by_their_base_wherever_it_lies(problems: Path, tmp_path: Path) -> None:
    data, moved = tmp_path / "data", tmp_path / "moved"
    jobs = data / "finetunes"
    shutil.copytree(MODEL, moved)
    gone = finetuned(jobs, "star-toolformer-00", "/gone/model", "d", 1, base_digest=model_digest("embedded"))

    def models(**changes: Any) -> dict[str, str]:
        return {e.arm: e.model for e in resolve(asked(problems, data, **changes)).evaluations}

    assert models()["toolformer"] == str(gone / "model")
    assert models(model=str(moved))["toolformer"] == str(gone / "model")  # the same files in another folder
    # another model has taken its place since: what the card says of its base counts, not where that lay
    finetuned(jobs, "star-toolformer-01", str(MODEL), "d", 9, base_digest="another")
    assert models()["toolformer"] == str(gone / "model")
    (moved / "config.json").write_text((moved / "config.json").read_text() + "\n")  # other files: another model
    bases = ", ".join(sorted(["/gone/model", str(MODEL)]))
    with pytest.raises(UsageError, match=rf"there are trainings of: {re.escape(bases)}\).*--toolformer PATH"):
        models(model=str(moved), arms=["toolformer"])


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"task": "svanp"}, UnknownNameError, "Did you mean"),
        ({"path": "/no/such.json"}, CorpusError, "no such benchmark"),
        ({"arms": ["base+tool"]}, UnknownNameError, "base\\+tools"),
        ({"arms": ["cc"]}, UsageError, "toolformer finetune --arm cc"),
        ({"k": [-1]}, UsageError, "--k"),
        ({"toolformer": "/no/model"}, ModelError, "no folder"),
    ],
)
def test_mistakes_are_answered_before_anything_runs(
    problems: Path, tmp_path: Path, changes: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        resolve(asked(problems, tmp_path / "data", **changes))
    assert not (tmp_path / "data").exists()


def test_tables_hold_what_was_run_and_invent_nothing(done: Ran, tmp_path: Path) -> None:
    result, parameters = done
    found = {t.name: t for t in paper_tables(Path(result.snapshot), parameters.data)}
    names = [*(f"Table {n}" for n in range(2, 8)), "§4.2", *(f"Table {n}" for n in range(8, 11)), "Figure 4"]
    assert list(found) == names
    table = found["Table 4"]
    assert table.columns == ("arm", "ASDiv", "paper", "SVAMP", "paper", "MAWPS", "paper")
    rows = {row[0]: row for row in table.rows}
    ours = {a.arm: 100 * a.accuracy for a in result.arms if a.k in (0, 10)}
    assert rows["base"][1:] == (None, 7.5, pytest.approx(ours["base"]), 5.2, None, 9.9)
    assert rows["toolformer, k=10"][1:] == (None, 40.4, pytest.approx(ours["toolformer"]), 29.4, None, 44.0)
    assert any("--task svamp" in m and "--arms cc" in m and str(parameters.path) in m for m in table.missing)
    assert found["Table 2"].rows[0] == ("qa", None, 51_987, None, 18_526, None, 5_135)
    nothing = paper_tables(tmp_path / "warehouse.duckdb", "d")
    assert all(t.missing for t in nothing)


def test_each_arms_shards_are_cut_into_groups_and_each_is_reported(
    prefect_server: None, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    submit = stage_tasks.submit_stage

    def noting(*arguments: Any, **options: Any) -> Any:
        names.append(options["name"])
        return submit(*arguments, **options)

    monkeypatch.setattr(stage_tasks, "submit_stage", noting)
    monkeypatch.setattr(flow, "tasks_at_most", lambda: 4)  # two arms: two groups each, of three shards
    reported: list[int] = []
    with reporting_to(lambda _stage, finished, _total, _done: reported.append(finished)):
        result = run_evaluate(asked(problems, tmp_path / "data", arms=["base", "base+tools"], k=[0, 1]))
    assert names == [
        *("evaluate svamp base k=0 0", "evaluate svamp base k=0 1-2"),
        *("evaluate svamp base+tools k=1 0", "evaluate svamp base+tools k=1 1-2"),
    ]
    assert (result.done, result.skipped) == (1 + 2 * 3, 0)
    assert sorted(reported) == [1, 1, 2, 3, 4, 5, 6]  # the benchmark's one, and six shards in groups
    sql = "SELECT config->>'evaluation' AS evaluation, shard FROM shards WHERE stage = 'evaluate'"
    shards = [(row["shard"], row["evaluation"]) for row in rows_of(result.snapshot, sql)]
    assert len(shards) == 6
    assert all(shard in {f"{evaluation}-0000{n}" for n in range(3)} for shard, evaluation in shards)
