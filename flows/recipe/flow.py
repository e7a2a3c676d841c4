"""The flow `recipe`: the steps of an experiment one after another, each a flow run below it, and a page of results.

All of it is checked before the first step. A step that needs what nothing came of is left out.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.build_dataset.flow import BuildResult, build_dataset
from flows.evaluate.flow import evaluate
from flows.export.find import find_dataset
from flows.export.flow import export
from flows.export.parameters import ExportParameters
from flows.export.run import ExportResult, written_earlier
from flows.finetune.fit_trigger import TriggerResult, fit_trigger
from flows.finetune.flow import FinetuneResult, finetune, reporting_events_to
from flows.finetune.parameters import FitTriggerParameters
from flows.forms.resolved import resolved, use_resolved
from flows.ground.flow import ground
from flows.recipe.page import Section, build_section, section_of, write_page
from flows.recipe.parameters import RecipeParameters
from flows.recipe.resolve import filled, resolve
from flows.recipe.steps import DATASET, TRIGGER, Recipe, Step, training_gives
from flows.runtime.artifacts import publish_link, publish_summary, run_name_from
from flows.runtime.context import using
from flows.runtime.runners import choose_runner
from flows.runtime.running import begin_flow, stopping_if_cancelled
from tasks.launch.local import side_by_side
from tasks.provenance import versions
from tasks.settings import tracking_uri
from tasks.training.outcome import TrainingEvent
from tasks.training.registry import MLFLOW_NOTE
from warehouse.queries import current_build, gain_histogram
from warehouse.store import Store

Report = Callable[[int, TrainingEvent], None]  # takes the index of a training among those side by side, and an event
Observer = Callable[[Sequence[Any]], AbstractContextManager[Report | None]]  # takes the forms of steps side by side
_PARENT = "mlflow.parentRunId"  # by which MLflow's page shows runs below another
_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


@dataclass(frozen=True, slots=True)
class RecipeResult:
    name: str
    results: Mapping[str, Any]  # step -> the result of its flow
    page: str  # Markdown; the same in HTML beside it
    mlflow_run: str
    runs_view: str  # how to open the table of runs in MLflow
    seconds: float
    left_out: Sequence[str] = ()  # steps that needed what an empty C* does not give


@dataclass(slots=True)
class _Done:
    results: dict[str, Any] = field(default_factory=dict)  # step -> the result of its flow
    gives: dict[str, dict[str, str]] = field(default_factory=dict)  # step -> what it gives to others, by kind
    sections: dict[str, Section] = field(default_factory=dict)


def observed_by(observer: Observer) -> AbstractContextManager[None]:
    """Enter what `observer` returns around every step of the recipes inside this block."""
    return using(_observer, observer)


def results_folder(recipe: Recipe, data: str) -> Path:
    """Return where a recipe's page lies; a recipe that asks for other things has another."""
    return Store(data).local_folder / "recipes" / f"{recipe.name}-{recipe.digest[:16]}"


@flow(name="recipe", flow_run_name=run_name_from("recipe {recipe}"))
def recipe(parameters: RecipeParameters) -> RecipeResult:
    """Run an experiment: builds, trainings, evaluations and exports, as a recipe names them."""
    begin = time.monotonic()
    begin_flow()
    recipe_, store = resolved(parameters, resolve), Store(parameters.data)
    folder = results_folder(recipe_, parameters.data)
    run, done = _start_run(recipe_, parameters.data, folder), _Done()
    with run, stopping_if_cancelled():
        for steps in recipe_.units:
            for step in steps:
                if lacked := step.lacks(done.gives):
                    done.gives[step.name] = {}
                    done.sections[step.name] = Section(step.name, f"Left out: nothing came of {', '.join(lacked)}.")
            unit = [step for step in steps if step.name not in done.gives]
            forms = [filled(step, parameters.data, step.given(done.gives)) for step in unit]
            with use_resolved(*(() if done.results else recipe_.resolved)):  # later ones find what earlier steps made
                results = _run_side_by_side(unit, forms) if unit else []
            for step, result in zip(unit, results, strict=True):
                _add(done, step, result, store, run)
            pages = write_page(folder, recipe_.name, [done.sections.get(step.name) for step in recipe_.steps])
        for page in pages:
            run.text(page.read_text(encoding="utf-8"), page.name)
    publish_summary(pages[0].read_text(encoding="utf-8"), "results", "The results of every step")
    publish_link(run.address, "recipe-mlflow-run", "The run in MLflow")
    left_out = [step.name for step in recipe_.steps if step.name not in done.results]
    seconds = time.monotonic() - begin
    return RecipeResult(recipe_.name, done.results, str(pages[0]), run.run_id, run.runs_view, seconds, left_out)


def _start_run(recipe: Recipe, data: str, folder: Path) -> Any:
    from tasks.tracking import Tracking, project

    note = folder / MLFLOW_NOTE
    steps = {step.name: {**step.values, **step.taken} for step in recipe.steps}
    run = Tracking(tracking_uri(data)).start(
        experiment=project(data),
        name=f"recipe {recipe.name}",
        params={"steps": steps, "code": versions()},
        tags={"kind": "recipe"},
        datasets=[],
        run_id=note.read_text(encoding="utf-8").strip() if note.is_file() else None,
        system_metrics=False,
    )
    folder.mkdir(parents=True, exist_ok=True)
    note.write_text(f"{run.run_id}\n", encoding="utf-8")
    run.text(recipe.text, "recipe.yaml")
    return run


def _run_side_by_side(unit: Sequence[Step], forms: Sequence[Any]) -> list[Any]:
    observer = _observer.get()
    with nullcontext() if observer is None else observer(forms) as report:

        def run(index: int) -> Any:
            side_by_side.set(len(unit))  # in a context of its own, if there are several
            start = _FLOWS[unit[index].flow]
            if report is None:
                return start(forms[index])
            with reporting_events_to(lambda event: report(index, event)):
                return start(forms[index])

        if len(unit) == 1:
            return [run(0)]
        with ThreadPoolExecutor(len(unit)) as threads:
            futures = [threads.submit(copy_context().run, run, index) for index in range(len(unit))]
            return [future.result() for future in futures]


@task(name="fit-trigger", cache_policy=NO_CACHE)
def fit(parameters: FitTriggerParameters) -> TriggerResult:
    return fit_trigger(parameters)


def _export(form: ExportParameters) -> ExportResult:
    store, out = Store(form.data), Path(form.out)
    earlier = None if form.push else written_earlier(store, form.dataset, out, form.settings())
    return earlier or export(form)


_FLOWS: dict[str, Callable[[Any], Any]] = {
    "build": build_dataset,
    "finetune": finetune,
    "fit-trigger": fit,
    "evaluate": evaluate,
    "ground": ground,
    "export": _export,
}


def _add(done: _Done, step: Step, result: Any, store: Store, run: Any) -> None:
    gives: dict[str, str] = {}
    children: tuple[str, ...] = (getattr(result, "mlflow_run", ""),)
    if isinstance(result, BuildResult) and not result.examples:
        section = Section(step.name, " ".join(result.nothing_kept[:-1]))
    elif isinstance(result, BuildResult):
        dataset = find_dataset(store, f"{result.dataset}@{result.version}-{result.made}")
        gives = {DATASET: dataset.label}
        current = current_build(result.snapshot)
        shown = current is not None and current.run_id == result.run_id
        section = build_section(step.name, dataset, gain_histogram(Path(result.snapshot)) if shown else ())
    else:
        section = section_of(step.name, result)
    if isinstance(result, FinetuneResult):
        gives, children = training_gives(result.folder), (result.run_id,)
    if isinstance(result, TriggerResult):
        gives = {TRIGGER: result.file}
    done.results[step.name], done.gives[step.name], done.sections[step.name] = result, gives, section
    run.metrics(section.metrics)
    for child in filter(None, children):
        run.client.set_tag(child, _PARENT, run.run_id)


def run_recipe(parameters: RecipeParameters, runner: str | None = None) -> RecipeResult:
    """Run the flow in this process; `runner` is that of all steps, see `choose_runner`."""
    with choose_runner(runner):
        return recipe(parameters)
