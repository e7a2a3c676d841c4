"""A small recipe on the embedded defaults: run, killed and run again, planned, told of in MLflow and Prefect."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId

from cli.render.progress import print_recipe
from flows.recipe import flow as recipe_flow
from flows.recipe.flow import RecipeResult, observed_by, run_recipe
from flows.recipe.nodes import Place
from flows.recipe.page import Section, write_page
from flows.recipe.parameters import SHIPPED, RecipeParameters
from flows.recipe.plan import RecipePlan, plan_recipe
from flows.recipe.steps import Step
from flows.runtime.ledger import reporting_to
from recipes import case_study, gsm8k
from tasks.launch.local import side_by_side
from tasks.shards.run_shard import ShardResult
from tests.support.small_builds import write_jsonl
from warehouse.queries import rows_of

RECIPE = """\
tools: [calculator]
steps:
  build: {corpus: CORPUS, limit: 6, shard_documents: 3, top_k: 3, samples: 2}
  finetune: {dataset: build, arm: [toolformer], profile: core, steps: 2, batch: 2, sequence_length: 128}
  evaluate:
    {task: small-world, limit: 2, max_new_tokens: 4, arms: [toolformer, toolformer-disabled],
     toolformer: finetune.toolformer}
  export: {dataset: build, out: OUT}
"""


class Killed(BaseException):
    """What ends a run in the middle."""


Ask = Callable[[str], RecipeParameters]
Whole = tuple[RecipeParameters, RecipePlan, RecipeResult]


@pytest.fixture(scope="module")
def asked(
    tmp_path_factory: pytest.TempPathFactory, few_documents: Path, empty_database: Path, prefect_server: None
) -> Ask:
    """Return what makes a data folder and gives the parameters of the recipe in it."""

    def of(name: str) -> RecipeParameters:
        data = tmp_path_factory.mktemp(name)
        shutil.copy(empty_database, data / "mlflow.db")
        text = RECIPE.replace("CORPUS", str(few_documents)).replace("OUT", str(data / "out.jsonl"))
        (data / "small.yaml").write_text(text, encoding="utf-8")
        return RecipeParameters(recipe=str(data / "small.yaml"), data=str(data))

    return of


@pytest.fixture(scope="module")
def whole(asked: Ask) -> Whole:
    """A recipe that was planned and then run to its end."""
    parameters = asked("whole")
    planned = plan_recipe(parameters)
    assert {path.name for path in Path(parameters.data).iterdir()} == {"mlflow.db", "small.yaml"}  # nothing was written
    return parameters, planned, run_recipe(parameters)


def killed_at(parameters: RecipeParameters, flow: str, shards: int) -> None:
    """Run until so many shards of a flow are done; 0: until it would begin."""

    def told(stage: str, finished: int, total: int, result: ShardResult) -> None:
        nonlocal shards
        shards -= 1
        if not shards:
            raise Killed

    @contextmanager
    def observer(forms: Sequence[Any]) -> Iterator[None]:
        if type(forms[0]).__name__ != f"{flow}Parameters":
            yield None
            return
        if not shards:
            raise Killed
        with reporting_to(told):
            yield None

    with observed_by(observer), pytest.raises(Killed):
        run_recipe(parameters)


def bytes_of(result: RecipeResult, data: Path) -> dict[str, Any]:
    """What a recipe made, without what differs from run to run: C*, the model, answers, the export, the page."""
    answers = "SELECT item_id, arm, k, continuation, correct FROM predictions ORDER BY ALL"
    return {
        **{path.name: path.read_bytes() for path in Path(result.page).parent.glob("*[.]*")},
        "model": (Path(result.results["finetune.toolformer"].model) / "model.safetensors").read_bytes(),
        "answers": rows_of(data / "warehouse.duckdb", answers),
        "export": (data / "out.jsonl").read_bytes(),
        "dataset": result.results["build"].version,
    }


def test_a_plan_says_what_is_done_and_what_waits(whole: Whole) -> None:
    parameters, before, result = whole
    assert not any(step.done for step in before.steps)
    waits = {"build": (), "finetune.toolformer": ("build",), "evaluate": ("finetune.toolformer",), "export": ("build",)}
    assert {step.step: step.waits_for for step in before.steps} == waits
    assert before.steps[0].build is not None
    after = plan_recipe(parameters)
    assert all(step.done for step in after.steps)
    assert result.results["build"].version in after.steps[0].note


def test_trainings_side_by_side_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(recipe_flow._FLOWS, "finetune", lambda _: side_by_side.get())
    place = Place("r.yaml", 1)
    steps = [Step(f"finetune.{arm}", "finetune", {}, {}, {}, place) for arm in ("toolformer", "cc")]
    assert recipe_flow._run_side_by_side(steps, [None, None]) == [2, 2]
    assert recipe_flow._run_side_by_side(steps[:1], [None]) == [1]


def test_steps_that_need_what_an_empty_build_lacks_are_left_out(asked: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    parameters = asked("empty")
    Path(parameters.data, "words.jsonl").write_text('{"text": "No number stands here."}\n', encoding="utf-8")
    Path(parameters.recipe).write_text(
        f"""steps:
  build: {{corpus: {parameters.data}/words.jsonl, tools: [calculator]}}
  finetune: {{dataset: build, profile: core, steps: 2, arm: [toolformer, cc]}}
  evaluate: {{task: small-world, limit: 2, toolformer: finetune.toolformer}}
""",
        encoding="utf-8",
    )
    result = run_recipe(parameters)
    left_out = ["finetune.toolformer", "finetune.cc", "evaluate"]
    assert (list(result.results), result.left_out) == (["build"], left_out)
    page = Path(result.page).read_text(encoding="utf-8")
    assert "## build\n\nC* is empty: no call was scored. Main reason: " in page
    assert page.endswith(
        "## finetune.cc\n\nLeft out: nothing came of build.\n\n"
        "## evaluate\n\nLeft out: nothing came of finetune.toolformer.\n"
    )
    planned = [(step.step, step.done, step.note) for step in plan_recipe(parameters).steps]
    assert planned[0] == ("build", True, "1 documents, none of them kept")
    assert planned[3] == ("evaluate", True, "left out: nothing came of finetune.toolformer")
    capsys.readouterr()
    print_recipe(result, parameters.data)
    shown = capsys.readouterr().out
    assert "build: C* is empty: no call was scored.\n" in shown
    assert f"toolformer view --data {parameters.data}\nsmall: 1 step, " in shown
    assert f"Left out, as they need what is missing: {', '.join(left_out)}\n" in shown


@pytest.mark.slow
def test_a_killed_recipe_makes_the_same_bytes(whole: Whole, asked: Ask) -> None:
    made = bytes_of(whole[2], Path(whole[0].data))
    assert {"results.md", "results.html", "1.png", "3.png"} <= made.keys()
    killed = asked("killed")
    for flow, shards in (("Build", 3), ("Finetune", 0), ("Evaluate", 2)):  # within a build, between, within answers
        killed_at(killed, flow, shards)
    assert [step.step for step in plan_recipe(killed).steps if not step.done] == ["evaluate", "export"]
    [page] = Path(killed.data).glob("recipes/*/results.md")
    assert "\n2 of 4 steps are done.\n" in page.read_text(encoding="utf-8")
    resumed = run_recipe(killed)
    assert resumed.results["build"].done == 0
    assert resumed.results["finetune.toolformer"].skipped
    assert resumed.results["evaluate"].skipped
    again = bytes_of(resumed, Path(killed.data))
    assert again.keys() == made.keys()
    assert [name for name in made if made[name] != again[name]] == []
    assert run_recipe(killed).mlflow_run == resumed.mlflow_run  # and the export is found done


def test_a_page_holds_the_steps_that_are_done(tmp_path: Path) -> None:
    page, site = write_page(tmp_path, "study", [None, Section("build", "It kept 3 calls.")])
    assert page.read_text(encoding="utf-8") == "# study\n\n1 of 2 steps are done.\n\n## build\n\nIt kept 3 calls.\n"
    assert "<p>1 of 2 steps are done.</p>" in site.read_text(encoding="utf-8")


def test_mlflow_and_prefect_show_a_run_with_its_steps(whole: Whole) -> None:
    parameters, _, result = whole
    data = Path(parameters.data)
    client = MlflowClient(f"sqlite:///{data / 'mlflow.db'}")
    (experiment,) = [one for one in client.search_experiments() if one.name == data.name]
    runs = {run.info.run_id: run for run in client.search_runs([experiment.experiment_id])}
    parent = runs.pop(result.mlflow_run)
    assert (parent.info.status, parent.data.tags["kind"]) == ("FINISHED", "recipe")
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {result.mlflow_run}
    assert sorted(run.data.tags["kind"] for run in runs.values()) == ["build", "evaluate", "finetune"]
    kept = {file.path for file in client.list_artifacts(result.mlflow_run)}
    assert kept >= {"recipe.yaml", "results.md", "results.html"}
    assert parent.data.params["steps.finetune.toolformer.dataset"] == "build"
    page = Path(result.page).read_text(encoding="utf-8")
    assert "| toolformer, k=10 | " in page
    assert "![Gains of the scored calls](1.png)" in page
    site = Path(result.page).with_suffix(".html").read_text(encoding="utf-8")
    assert site.count('src="data:image/png;base64,') == 2
    assert 'src="http' not in site
    with get_client(sync_client=True) as prefect:
        named = [one for one in prefect.read_flow_runs() if one.name == "recipe small.yaml"]
        (run,) = [one for one in named if one.parameters["parameters"]["data"] == parameters.data]
        parent_filter = FlowRunFilterParentFlowRunId(any_=[run.id])
        below = prefect.read_flow_runs(flow_run_filter=FlowRunFilter(parent_flow_run_id=parent_filter))
    assert len(below) == 4


def problems(number: int) -> list[dict[str, str]]:
    """Return problems of one sum, with the sum marked in the solution."""
    question = "A library has {a} books, and {b} of them are lent out. How many are on the shelf?"
    answer = "Of the {a} books, {b} are lent out and only <<{a}-{b}={c}>>{c} are on the shelf.\n#### {c}"
    figures = [{"a": 300 + 37 * n, "b": 120 + 11 * n, "c": 180 + 26 * n} for n in range(number)]
    return [{"question": question.format(**one), "answer": answer.format(**one)} for one in figures]


@pytest.mark.slow
def test_the_study(prefect_server: None, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = Path("case-study")
    (study / "texts" / "math").mkdir(parents=True)
    train = write_jsonl(study / "texts" / "math" / "gsm8k.train.jsonl", problems(10))
    monkeypatch.setattr(sys, "argv", ["gsm8k.py", str(train), "--out", str(study / "gsm8k")])
    gsm8k.main()
    svamp = [{"ID": "1", "Body": "A box holds 7 pens.", "Question": "How many are in 3 boxes?", "Answer": 21}]
    (study / "texts" / "math" / "SVAMP.json").write_text(json.dumps(svamp))
    (study / "data").mkdir()
    (study / "data" / "mlflow.db").write_bytes(empty_database.read_bytes())

    text = (SHIPPED / "smollm2-quick.yaml").read_text(encoding="utf-8")
    smaller = {r"case-study/smollm2": "embedded", r"limit: [24]00": "limit: 10", r"limit: 300": "limit: 1"}
    for pattern, small in smaller.items():
        text, found = re.subn(pattern, small, text)
        assert found
    text = re.sub(r"(steps|evaluate_every): [24]0", r"\1: 2", text)
    text = text.replace("batch: 8", "batch: 2").replace("sequence_length: 384", "sequence_length: 128")
    recipe = study / "quick.yaml"
    recipe.write_text(text, encoding="utf-8")
    result = run_recipe(RecipeParameters(recipe=str(recipe), data=str(study / "data")))
    assert set(result.results) >= {"build.marks", "build", "finetune.toolformer", "finetune.cc", "evaluate.svamp"}

    page = case_study.page(recipe, study / "data", study / "gsm8k")
    assert page.count("\n## ") == 6
    marks = result.results["build.marks"]
    assert marks.examples > 0
    # ten gold calls, all in texts that were read; what the model drew itself gives its number, by the option `new`
    table = page.partition("## Calls against GSM8K's own")[2].partition("## Kept")[0]
    assert all(line.rstrip(" |").endswith("10") for line in table.splitlines() if re.match(r"\| 0", line))
    assert re.search(r"^- \+\d\.\d\d ….* `\[Calculator\(", page, re.MULTILINE)
