"""Fits the thresholds on p(" [") of a finetuned model on the documents of C* that its training held out.

The record is stored in the job's folder, and its figures in the training's MLflow run. It takes one pass over the
documents, so it runs in this process, where the finetuned model is loaded; it is no flow. How an opening is judged is
in `toolformer_core.decode.trigger`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.evaluate.plan import finished_trainings
from tasks.settings import tracking_uri
from tasks.training.registry import FinishedTraining, finished_finetune, trained_model, training_run
from tasks.training.trigger import TRIGGER_FILE, FittedTrigger, held_out_examples, write_trigger
from toolformer_core.decode.trigger import FitConfig, ToolFit, fit_triggers
from toolformer_core.errors import UsageError
from warehouse.store import Store

__all__ = ["TriggerResult", "fit_trigger", "rows_of_fits"]


@dataclass(frozen=True, slots=True)
class TriggerResult:
    """What was fitted, and where it is stored."""

    model: str
    file: str
    run_id: str | None  # MLflow's, of the training
    fitted: FittedTrigger


def fit_trigger(
    model: str,
    data: str,
    *,
    top_k: int = 10,
    config: FitConfig | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> TriggerResult:
    """Fit the thresholds of a finetuned model, and store them with it.

    Args:
        model: the folder of a training of C*, or of its `model`; "": the newest in the data folder.
        data: the data folder or URL in which the dataset was built.
        top_k: k of the decoding that the thresholds are for.
        config: what a threshold may cost; None: the defaults.
        on_progress: see `find_openings`.

    Raises:
        UsageError: no finished training of C* made the model, or its dataset is not in the store, or it held out no
            document of C*.
        TrackingError: MLflow could not be reached; the record is written all the same.
    """
    from toolformer_core.decode.openings import find_openings, names_of
    from toolformer_core.lm.load import load_model, model_digest

    store = Store(data)
    finished = _finished(model, store)
    examples = held_out_examples(finished, store)
    if not examples:
        raise UsageError(
            f"the training in {finished.folder} held out no document of C*: train with more --dev-documents, or on a "
            "larger corpus (a tenth of it is held out at most)"
        )
    names, config = names_of(examples), config or FitConfig()
    digest = model_digest(str(finished.model))
    lm = load_model(str(finished.model), digest=digest)
    openings = find_openings(lm, examples, names, top_k=top_k, on_progress=on_progress)
    fitted = FittedTrigger(
        model_digest=digest,
        dataset=finished.dataset,
        documents=len(examples),
        top_k=top_k,
        calls=dict(sorted(Counter(call.tool for e in examples for call in e.calls).items())),
        config=config,
        fits=tuple(fit_triggers(openings, list(names), config)),
    )
    write_trigger(finished.folder / TRIGGER_FILE, fitted)
    run_id = training_run(str(finished.model))
    if run_id is not None:
        _track(run_id, data, fitted)
    return TriggerResult(str(finished.model), str(finished.folder / TRIGGER_FILE), run_id, fitted)


def _finished(model: str, store: Store) -> FinishedTraining:
    if not model:
        newest = next((one for one in finished_trainings(store) if one.arm == "toolformer"), None)
        if newest is None:
            raise UsageError(f"there is no finished training of C* in {store.root}/finetunes: run toolformer finetune")
        return newest
    finished = finished_finetune(Path(trained_model(model)).parent)
    if finished is None or finished.arm != "toolformer":
        raise UsageError(
            f"{model} is no finished training of C* (arm toolformer): give the folder of one, or its model"
        )
    return finished


def rows_of_fits(fitted: FittedTrigger) -> list[dict[str, Any]]:
    """Return one flat row per tool."""
    return [
        {
            "tool": fit.tool,
            "theta": fit.threshold,
            "bound": fit.bound,
            "calls": fitted.calls.get(fit.tool, 0),
            "opened": fit.wanted,
            "kept": fit.kept,
            "needless": fit.needless,
            "needless_left": fit.needless_left,
            "early": fit.early,
            "other_tool": fit.other_tool,
        }
        for fit in fitted.fits
    ]


def _track(run_id: str, data: str, fitted: FittedTrigger) -> None:
    from tasks.tracking import TrackedRun, Tracking, curves

    run = TrackedRun(Tracking(tracking_uri(data)).client, run_id)
    run.metrics({name: value for fit in fitted.fits for name, value in _metrics(fit).items()})
    run.table(rows_of_fits(fitted), "tables/trigger.json")
    series = {
        fit.tool: sorted((point.needless, point.kept / fit.wanted) for point in fit.curve)
        for fit in fitted.fits
        if fit.wanted
    }
    figure = curves("Calls kept by needless openings left", "share of calls kept", series, x_label="needless openings")
    run.figure(figure, "figures/trigger.png")


def _metrics(fit: ToolFit) -> dict[str, float]:
    if fit.threshold is None:
        return {}
    return {
        f"trigger/theta_{fit.tool}": fit.threshold,
        f"trigger/lost_{fit.tool}": 1 - fit.kept / fit.wanted,
        f"trigger/needless_{fit.tool}": fit.needless_left / max(1, fit.needless),
    }
