"""The MLflow run of a bootstrap: the figures of its rounds, with the round as the step, and the runs made by each.

Builds, trainings and evaluations have runs of their own; here they become its children. A bootstrap that is started
again goes on with its run, whose id lies in the data folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.bootstrap.parameters import BootstrapParameters
from flows.bootstrap.rounds import Round
from tasks.provenance import versions
from tasks.settings import tracking_uri
from toolformer_core.config import canonical_json
from toolformer_core.records import digest_of
from warehouse.store import Store

__all__ = ["RoundsRun"]

_PARENT = "mlflow.parentRunId"  # by which MLflow's page shows runs below another


class RoundsRun:
    """The run of one bootstrap.

    Args:
        p: the parameters.
        store: of the data folder.

    Raises:
        TrackingError: MLflow could not be reached.
    """

    def __init__(self, p: BootstrapParameters, store: Store) -> None:
        from tasks.tracking import Tracking, project

        asked = p.model_dump(mode="json")
        digest = digest_of("bootstrap", canonical_json({name: asked[name] for name in sorted(asked)}))
        self._note = store.local_folder / "bootstraps" / f"{p.dataset}-{digest[:16]}.mlflow_run"
        known = self._note.read_text(encoding="utf-8").strip() if self._note.is_file() else None
        tracking = Tracking(tracking_uri(p.data))
        self._run = tracking.start(
            experiment=project(p.data),
            name=f"rounds {p.dataset}, {Path(p.model).name}",
            params={"bootstrap": {k: v for k, v in asked.items() if v not in (None, "", [], {})}, "code": versions()},
            tags={"kind": "bootstrap"},
            datasets=[],
            run_id=known,
            system_metrics=False,
        )
        self._note.parent.mkdir(parents=True, exist_ok=True)
        self._note.write_text(self._run.run_id + "\n", encoding="utf-8")

    @property
    def address(self) -> str | None:
        """See `TrackedRun`."""
        return self._run.address

    def add(self, rounds: Sequence[Round], children: Sequence[str]) -> None:
        """Record the last round, and put the runs that it made below this one.

        Raises:
            TrackingError: MLflow could not be reached.
        """
        last = rounds[-1]
        self._run.metrics(_metrics(last), step=last.number)
        self._run.table([_row(one) for one in rounds], "tables/rounds.json")
        for child in filter(None, children):
            self._run.client.set_tag(child, _PARENT, self._run.run_id)

    def finish(self, status: Any) -> None:
        """See `TrackedRun`."""
        self._run.finish(status)


def _metrics(one: Round) -> dict[str, float]:
    figures: dict[str, float | None] = {
        "examples": one.examples,
        "draws": one.draws,
        "well_formed": one.well_formed,
        "lm_tokens": one.lm_tokens,
        "calls_per_thousand": one.calls_per_thousand,
        "calls_per_million_tokens": one.calls_per_million_tokens,
        "dev_perplexity": one.dev_perplexity,
        "accuracy": one.accuracy,
        **{f"calls/{tool}": n for tool, n in one.calls.items()},
    }
    for task, answers in one.answers.items():
        figures |= {f"{task.replace(' ', '-')}/{name}": value for name, value in asdict(answers).items()}
    return {name: value for name, value in figures.items() if value is not None}


def _row(one: Round) -> dict[str, Any]:
    return {**{k: v for k, v in asdict(one).items() if not isinstance(v, dict)}, **_metrics(one)}
