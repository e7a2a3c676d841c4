"""The plan of a recipe: which steps are found done, which are to do, and what of them is not on this machine.

A step that takes something of one that is not done waits for it. Nothing is written or fetched, no model is loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flows.build_dataset.estimate import Plan
from flows.build_dataset.plan import plan_build
from flows.export.run import written_earlier
from flows.finetune.fit_trigger import fitted_earlier
from flows.finetune.resolve import resolve as resolve_training
from flows.recipe.parameters import RecipeParameters
from flows.recipe.resolve import filled, missing_here, resolve
from flows.recipe.steps import DATASET, TRIGGER, Step, training_gives
from tasks.training.registry import finished_finetune
from toolformer_core.finetune.events import read_events
from toolformer_core.lm.load import model_digest
from warehouse.store import Store

# Parameters on which no result depends, and those of which a run records what they came to.
_NOT_COMPARED = frozenset({"workers", "gpus", "data", "shard_documents"})

Gives = dict[str, str]  # what a step gives to others, by kind


@dataclass(frozen=True, slots=True)
class PlannedStep:
    step: str
    done: bool
    waits_for: tuple[str, ...] = ()  # steps that it takes something of and that are not done
    missing: tuple[str, ...] = ()  # what it needs and this machine has not
    note: str = ""
    build: Plan | None = None  # of a build that can be planned now


@dataclass(frozen=True, slots=True)
class RecipePlan:
    name: str
    data: str
    steps: tuple[PlannedStep, ...]


def plan_recipe(parameters: RecipeParameters) -> RecipePlan:
    """Return what running a recipe would do; nothing is changed."""
    recipe = resolve(parameters, elsewhere=True)
    store = Store(parameters.data)
    results: dict[str, Gives] = {}  # of the steps that are done
    planned = []
    for step in recipe.steps:
        if lacked := step.lacks(results):
            planned.append(PlannedStep(step.name, True, note=f"left out: nothing came of {', '.join(lacked)}"))
            results[step.name] = {}
            continue
        waits_for = tuple(dict.fromkeys(other for other in step.taken.values() if other not in results))
        missing = tuple(missing_here(step))
        if waits_for or missing:
            planned.append(PlannedStep(step.name, False, waits_for, missing, _size(step)))
            continue
        one, gives = _planned(step, filled(step, parameters.data, step.given(results)), store)
        planned.append(one)
        if one.done:
            results[step.name] = gives
    return RecipePlan(recipe.name, parameters.data, tuple(planned))


def _size(step: Step) -> str:
    if step.flow != "finetune":
        return ""
    defaults = {name: field.default for name, field in step.kind.form.model_fields.items()}
    sizes: Mapping[str, Any] = {**defaults, **step.values}
    return f"{sizes['steps']:,} steps of {sizes['batch']:,} texts"


def _plan_build(step: Step, form: Any, store: Store) -> tuple[PlannedStep, Gives]:
    plan = plan_build(form)
    run = _last_run(store, "build-dataset", form) if plan.nothing_to_do else None
    note = f"{plan.documents:,} documents"
    dataset = next((one for one in store.datasets() if run is not None and one.key == run.dataset), None)
    if dataset is None:
        return PlannedStep(step.name, False, note=note, build=plan), {}
    if not any(file.rows for file in dataset.files):
        return PlannedStep(step.name, True, note=f"{note}, none of them kept"), {}
    return PlannedStep(step.name, True, note=f"{note}, {dataset.label}"), {DATASET: dataset.label}


def _plan_training(step: Step, form: Any) -> tuple[PlannedStep, Gives]:
    folder = resolve_training(form).spec.folder
    if finished_finetune(folder) is not None:
        return PlannedStep(step.name, True, note=_size(step)), training_gives(folder)
    reached = max((event["step"] for event in read_events(folder)[0] if event["event"] == "step"), default=0)
    return PlannedStep(step.name, False, note=_size(step) + (f", {reached:,} begun" if reached else "")), {}


def _planned(step: Step, form: Any, store: Store) -> tuple[PlannedStep, Gives]:
    gives: Gives = {}
    match step.flow:
        case "build":
            return _plan_build(step, form, store)
        case "finetune":
            return _plan_training(step, form)
        case "fit-trigger":
            training = finished_finetune(Path(form.model).parent)
            earlier = fitted_earlier(training, model_digest(str(training.model)), form) if training else None
            done, gives = earlier is not None, {} if earlier is None else {TRIGGER: earlier.file}
        case "export":
            done = written_earlier(store, form.dataset, Path(form.out), form.settings()) is not None
        case flow:
            done = _last_run(store, flow, form) is not None
    return PlannedStep(step.name, done), gives


def _last_run(store: Store, flow: str, form: BaseModel) -> Any:
    wanted = {name: value for name, value in form.model_dump(mode="json").items() if name not in _NOT_COMPARED}
    runs = (run for run in store.runs() if (run.flow, run.state) == (flow, "completed"))
    return max(
        (run for run in runs if all(run.parameters.get(name) == value for name, value in wanted.items())),
        key=lambda run: run.number,
        default=None,
    )
