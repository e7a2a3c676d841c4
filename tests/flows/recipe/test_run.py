"""A small recipe on the embedded defaults: run, killed and run again, planned, told of in MLflow and Prefect."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId

from flows.ledger import reporting_to
from flows.recipe.flow import RecipeResult, observed_by, run_recipe
from flows.recipe.parameters import RecipeParameters
from flows.recipe.plan import plan_recipe
from tasks.run_shard import ShardResult
from warehouse.queries import rows_of

RECIPE = """\
tools: [calculator]
steps:
  build: {corpus: CORPUS, limit: 6, shard_documents: 3, top_k: 3, draws: 2}
  finetune: {dataset: build, arm: [toolformer, cc], profile: core, steps: 2, batch: 2, sequence_length: 128}
  evaluate: {task: small-world, limit: 2, max_new_tokens: 4, cc: finetune.cc, toolformer: finetune.toolformer}
  export: {dataset: build, out: OUT}
"""


class Killed(BaseException):
    """What ends a run in the middle."""


@pytest.fixture
def asked(tmp_path: Path, few_documents: Path, empty_database: Path, prefect_server: None) -> Callable[[str], Any]:
    """Return the parameters of the recipe in a folder of that name, which is made."""

    def of(name: str) -> RecipeParameters:
        data = tmp_path / name
        data.mkdir()
        shutil.copy(empty_database, data / "mlflow.db")
        text = RECIPE.replace("CORPUS", str(few_documents)).replace("OUT", str(data / "out.jsonl"))
        (data / "small.yaml").write_text(text, encoding="utf-8")
        return RecipeParameters(recipe=str(data / "small.yaml"), data=str(data))

    return of


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
    """What a recipe made, without what differs from run to run: C*, models, answers, the export, the page."""
    made = {path.name: path.read_bytes() for path in Path(result.page).parent.glob("*[.]*")}
    models = {arm: Path(result.results[f"finetune.{arm}"].model) / "model.safetensors" for arm in ("toolformer", "cc")}
    answers = "SELECT item_id, arm, k, answer, correct FROM predictions ORDER BY ALL"
    return {
        **made,
        **{arm: path.read_bytes() for arm, path in models.items()},
        "answers": rows_of(data / "warehouse.duckdb", answers),
        "export": (data / "out.jsonl").read_bytes(),
        "dataset": result.results["build"].version,
    }


def test_a_killed_recipe_goes_on_and_makes_the_same_bytes(asked: Callable[[str], Any], tmp_path: Path) -> None:
    whole = asked("whole")
    before = plan_recipe(whole)
    assert [(step.step, step.done, step.waits_for) for step in before.steps] == [
        ("build", False, ()),
        ("finetune.toolformer", False, ("build",)),
        ("finetune.cc", False, ("build",)),
        ("evaluate", False, ("finetune.cc", "finetune.toolformer")),
        ("export", False, ("build",)),
    ]
    assert {path.name for path in (tmp_path / "whole").iterdir()} == {"mlflow.db", "small.yaml"}  # nothing was written
    result = run_recipe(whole)
    assert list(result.results) == ["build", "finetune.toolformer", "finetune.cc", "evaluate", "export"]
    made = bytes_of(result, tmp_path / "whole")
    assert {"results.md", "results.html", "1.png", "4.png"} <= made.keys()
    after = plan_recipe(whole)
    assert [step.step for step in after.steps if not step.done] == []
    assert result.results["build"].version in after.steps[0].note
    tell(result, tmp_path / "whole")

    killed = asked("killed")
    for flow, shards in (("Build", 3), ("Finetune", 0), ("Evaluate", 2)):  # within a build, between, within answers
        killed_at(killed, flow, shards)
    assert [step.step for step in plan_recipe(killed).steps if not step.done] == ["evaluate", "export"]
    resumed = run_recipe(killed)
    assert resumed.results["build"].done == 0
    assert resumed.results["finetune.cc"].skipped
    assert resumed.results["evaluate"].skipped
    again = bytes_of(resumed, tmp_path / "killed")
    assert again.keys() == made.keys()
    assert [name for name in made if made[name] != again[name]] == []
    assert run_recipe(killed).mlflow_run == resumed.mlflow_run  # and the export is found done


def tell(result: RecipeResult, data: Path) -> None:
    """Look at what MLflow and Prefect show: one run, with those of the steps below it."""
    client = MlflowClient(f"sqlite:///{data / 'mlflow.db'}")
    (experiment,) = [one for one in client.search_experiments() if one.name == data.name]
    runs = {run.info.run_id: run for run in client.search_runs([experiment.experiment_id])}
    parent = runs.pop(result.mlflow_run)
    assert (parent.info.status, parent.data.tags["kind"]) == ("FINISHED", "recipe")
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {result.mlflow_run}
    assert sorted(run.data.tags["kind"] for run in runs.values()) == ["build", "evaluate", "finetune", "finetune"]
    assert {file.path for file in client.list_artifacts(result.mlflow_run)} >= {
        "recipe.yaml",
        "results.md",
        "results.html",
    }
    assert parent.data.params["steps.finetune.cc.dataset"] == "build"
    page = Path(result.page).read_text(encoding="utf-8")
    assert "| toolformer | 10 | " in page
    assert "![Gains of the scored calls](1.png)" in page
    site = Path(result.page).with_suffix(".html").read_text(encoding="utf-8")
    assert site.count('src="data:image/png;base64,') == 2
    assert 'src="http' not in site
    with get_client(sync_client=True) as prefect:
        (run,) = [
            one for one in prefect.read_flow_runs() if one.name == "recipe small.yaml" and one.state_name == "Completed"
        ]
        below = prefect.read_flow_runs(
            flow_run_filter=FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run.id]))
        )
    assert len(below) == 5
