"""The MLflow run of a recipe: its steps' parameters, the page of results, and the steps' own runs below it.

A recipe that is run again goes on with its run, whose id lies beside its page.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flows.recipe.steps import Recipe
from tasks.provenance import versions
from tasks.settings import tracking_uri
from tasks.training.registry import MLFLOW_NOTE

_PARENT = "mlflow.parentRunId"  # by which MLflow's page shows runs below another


def start_run(recipe: Recipe, data: str, folder: Path) -> Any:
    """Start the run of a recipe, or go on with it; return a `TrackedRun`.

    Raises:
        TrackingError: MLflow could not be reached.
    """
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


def put_below(run: Any, children: Iterable[str]) -> None:
    """Put the runs that a step made below the recipe's."""
    for child in filter(None, children):
        run.client.set_tag(child, _PARENT, run.run_id)
