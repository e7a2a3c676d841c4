"""Recipes that are wrong: each ends in one line with its place, before anything is started or written."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.recipe.parameters import SHIPPED, RecipeParameters, shipped
from flows.recipe.read import read_recipe
from flows.recipe.resolve import resolve
from tests.support.commands import Run
from toolformer_core.errors import UsageError

GOOD = """\
model: embedded
tools: [calculator]
steps:
  build:
    corpus: embedded
    limit: 12
  finetune:
    dataset: build
    arm: [toolformer, cc]
    profile: core
  evaluate:
    task: small-world
    toolformer: finetune.toolformer
"""


def written(folder: Path, text: str) -> str:
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_steps_stand_in_the_order_in_which_they_take_from_each_other(tmp_path: Path) -> None:
    backwards = """\
steps:
  evaluate: {task: small-world, toolformer: finetune.toolformer}
  finetune: {dataset: build, arm: [toolformer, cc]}
  build: {corpus: embedded}
"""
    recipe = read_recipe(written(tmp_path, backwards))
    assert [[step.name for step in unit] for unit in recipe.units] == [
        *(["build"], ["finetune.toolformer", "finetune.cc"], ["evaluate"])
    ]
    of_build = {"dataset": "build"}
    taken = [dict(step.taken) for step in recipe.steps]
    assert taken == [{}, of_build, of_build, {"toolformer": "finetune.toolformer"}]


def test_shared_parameters_are_those_of_every_step_that_has_them(tmp_path: Path) -> None:
    text = GOOD.replace("    limit: 12\n", "    limit: 12\n    tools: [qa]\n")
    text += "  fit-trigger: {model: finetune.toolformer}\n"
    recipe = read_recipe(written(tmp_path, text), {"model": "other", "seed": None})
    values = {step.name: dict(step.values) for step in recipe.steps}
    assert values["build"] == {"model": "other", "tools": ["qa"], "corpus": "embedded", "limit": 12}
    assert values["finetune.cc"] == {"model": "other", "arm": "cc", "profile": "core"}  # has no tools
    assert values["evaluate"] == {"model": "other", "tools": ["calculator"], "task": "small-world"}
    assert values["fit-trigger"] == {}  # its model is what a step gives


def test_a_limit_makes_steps_smaller_and_none_larger(tmp_path: Path) -> None:
    text = GOOD.replace("    profile: core\n", "    steps: 240\n") + "  export: {dataset: build, out: x.jsonl}\n"
    recipe = read_recipe(written(tmp_path, text), limit=20)
    sizes = {step.name: {n: step.values[n] for n in ("limit", "steps") if n in step.values} for step in recipe.steps}
    assert sizes == {
        "build": {"limit": 12},  # the recipe's own
        "finetune.toolformer": {"steps": 20},
        "finetune.cc": {"steps": 20},
        "evaluate": {"limit": 20},
        "export": {},
    }


def test_on_off_and_dates_are_texts(tmp_path: Path) -> None:
    text = GOOD.replace("    profile: core\n", "    profile: core\n    learning_rate: 6e-4\n")
    text = text.replace("    limit: 12\n", "    dataset: 2023-01-30\n    licence: off\n")
    recipe = read_recipe(written(tmp_path, text))
    build, training, *_ = recipe.steps
    assert (build.values["dataset"], build.values["licence"]) == ("2023-01-30", "off")
    assert training.values["learning_rate"] == 6e-4


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("  finetune:", "  finetun:", 7, "unknown step 'finetun'. Did you mean 'finetune'?"),
        ("    limit: 12", "    limits: 12", 6, "unknown parameter of build 'limits'. Did you mean 'limit'?"),
        ("tools:", "tols:", 2, "unknown parameter 'tols'. Did you mean 'tools'?"),
        ("steps:", "step:", 1, "a recipe has steps: FLOW: PARAMETERS"),
        ("dataset: build", "dataset: biuld", 8, "'biuld'. Did you mean 'build'?"),
        ("dataset: build", "dataset: build.other", 8, "unknown step that gives a dataset 'build.other'."),
        ("dataset: build", "dataset: evaluate", 8, "evaluate gives not a dataset; the steps that do: build"),
        ("    dataset: build\n", "", 7, "finetune names no dataset"),
        ("finetune.toolformer", "finetune", 13, "Valid: finetune.cc, finetune.toolformer."),
        ("[toolformer, cc]", "[toolformer, toolformer]", 9, "finetune.arm: each arm stands once"),
        ("    limit: 12", "    limit: many", 6, "build.limit: Input should be a valid integer"),
        ("corpus: embedded", "corpus: nowhere.jsonl", 4, "build: no such corpus"),
        ("task: small-world", "task: smal-world", 12, "unknown task 'smal-world'. Did you mean 'small-world'?"),
        ("task: small-world", "path: x", 11, "evaluate names no task"),
        ("model: embedded", "model: embeded", 4, "Did you mean 'embedded'?"),
        ("model: embedded", "data: here", 1, "the data folder is no part of a recipe: give --data"),
        ("    limit: 12", "    data: here", 6, "build: all steps have one data folder: give --data"),
        ("    limit: 12", "    limit: 12\n    limit: 13", 7, "limit stands twice in build, first in line 6"),
        ("  evaluate:\n", "  build:\n    corpus: x\n  evaluate:\n", 11, "build stands twice in steps, first in line 4"),
        ("    limit: 12", "    model: finetune.cc", 4, "steps take from each other in a circle: build <- finetune"),
        ("    limit: 12", "    limit: [1", 7, "this is no YAML"),
        ("    limit: 12", "    limit: !!python/name:os.system x", 6, "python/name:os.system is not known"),
        ("    limit: 12", "    tau_f: &a {qa: *a}", 6, "this value contains itself"),
        ("  evaluate:", "  evaluate.:", 11, "a step is named FLOW or FLOW.LABEL"),
    ],
)  # fmt: skip
def test_a_wrong_recipe_ends_with_its_place(run: Run, tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    for more in ([], ["--plan"]):
        if more and "no such corpus" in says:
            continue  # a plan says that it is not here
        code, out, err = run("run", path, "--data", tmp_path / "data", *more)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {path}:{line}: ")
        assert says in err
        assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "recipe.yaml"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "recipe.yaml:1: nothing stands in this file"),
        ("- build\n", "recipe.yaml:1: a recipe must be a mapping"),
        ("steps: {}\n", "recipe.yaml:1: steps holds no step"),
        ("steps: {build: 3}\n", "recipe.yaml:1: build must be a mapping"),
        ("steps:\n  finetune: {dataset: x, arm: [cc]}\n  finetune.cc: {dataset: x}\n", ":3: two steps are"),
    ],
)  # fmt: skip
def test_what_is_no_recipe(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace(".", "[.]")):
        read_recipe(written(tmp_path, text))


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown recipe 'dem'\. Did you mean 'demo'"):
        read_recipe("dem")


@given(st.text(max_size=60))
def test_any_text_is_a_recipe_or_a_mistake(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, pytest.raises(UsageError):
        read_recipe(written(Path(folder), text.encode("utf-8", "replace").decode()))


@pytest.mark.parametrize("name", shipped())
def test_what_ships_is_right_wherever_its_models_lie(tmp_path: Path, name: str) -> None:
    recipe = resolve(RecipeParameters(recipe=name, data=str(tmp_path)), elsewhere=True)
    assert recipe.file == str(SHIPPED / f"{name}.yaml")
    assert list(tmp_path.iterdir()) == []


def test_what_ships_is_in_the_package() -> None:
    import tomllib

    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {f"recipes/{name}.yaml": f"flows/recipe/shipped/{name}.yaml" for name in shipped()}
    assert {"demo", "paper-gptj"} <= set(shipped())
