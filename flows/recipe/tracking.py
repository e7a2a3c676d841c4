"""The MLflow run of a recipe: what its steps were asked for, the page of results, and the steps' own runs below it.

A recipe that is run again goes on with its run, whose id lies beside its page.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flows.recipe.page import Section
from flows.recipe.steps import Recipe
from tasks.provenance import versions
from tasks.settings import tracking_uri
from tasks.training.registry import MLFLOW_NOTE

__all__ = ["RecipeRun"]

_PARENT = "mlflow.parentRunId"  # by which MLflow's page shows runs below another


class RecipeRun:
    """The run of one recipe.

    Args:
        recipe: the recipe.
        data: the data folder or URL.
        folder: where its page lies.

    Raises:
        TrackingError: MLflow could not be reached.
    """

    def __init__(self, recipe: Recipe, data: str, folder: Path) -> None:
        from tasks.tracking import Tracking, project

        note = folder / MLFLOW_NOTE
        self._run = Tracking(tracking_uri(data)).start(
            experiment=project(data),
            name=f"recipe {recipe.name}",
            params={
                "steps": {step.name: {**step.values, **step.taken} for step in recipe.steps},
                "code": versions(),
            },
            tags={"kind": "recipe"},
            datasets=[],
            run_id=note.read_text(encoding="utf-8").strip() if note.is_file() else None,
            system_metrics=False,
        )
        folder.mkdir(parents=True, exist_ok=True)
        note.write_text(f"{self._run.run_id}\n", encoding="utf-8")
        self._run.text(recipe.text, "recipe.yaml")

    @property
    def run_id(self) -> str:
        """MLflow's id."""
        return str(self._run.run_id)

    @property
    def address(self) -> str | None:
        """See `TrackedRun`."""
        return self._run.address

    def add(self, section: Section, runs: Iterable[str]) -> None:
        """Record a step's figures, and put the runs that it made below this one.

        Raises:
            TrackingError: MLflow could not be reached.
        """
        self._run.metrics(section.metrics)
        for child in filter(None, runs):
            self._run.client.set_tag(child, _PARENT, self._run.run_id)

    def keep(self, pages: Iterable[Path]) -> None:
        """Keep the pages of results.

        Raises:
            TrackingError: MLflow could not be reached.
        """
        for page in pages:
            self._run.text(page.read_text(encoding="utf-8"), page.name)

    def finish(self, status: Any) -> None:
        """See `TrackedRun`."""
        self._run.finish(status)
