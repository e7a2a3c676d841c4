"""Fits the thresholds on p(" [") of a finetuned model on the documents of C* that its training held out.

The record is stored in the job's folder, its figures in the training's MLflow run.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flows.evaluate.resolve import finished_trainings
from flows.finetune.parameters import FitTriggerParameters
from flows.report.tables import ResultTable
from tasks.settings import tracking_uri
from tasks.training.registry import FinishedTraining, finished_finetune, trained_model, training_run
from tasks.training.trigger import TRIGGER_FILE, FittedTrigger, held_out_examples, read_trigger, write_trigger
from toolformer_core.decode.trigger import FitConfig, fit_triggers
from toolformer_core.errors import UsageError
from warehouse.store import Store

_BOUNDS = {
    "lost": "more needless openings remain than requested, because fewer would lose too many calls",
    "few_calls": "few calls to learn from, so theta is at most a tenth of the least p(' [') among them",
    "too_few_calls": "too few calls for a threshold",
}
_LEGEND = (
    "opened: calls of C* at which ' [' is among the k most likely tokens and the model names the tool; needless: such "
    "openings where C* has no call; kept, left: what remains of the two at theta."
)


@dataclass(frozen=True, slots=True)
class TriggerResult:
    model: str
    file: str
    run_id: str | None  # MLflow's, of the training
    fitted: FittedTrigger


def fit_trigger(
    parameters: FitTriggerParameters, on_progress: Callable[[int, int], None] | None = None
) -> TriggerResult:
    """Fit the thresholds of a finetuned model, and store them with it; what was fitted before is found done.

    A UsageError: no finished training of C* made the model, its dataset is gone, or it held out no document of C*.
    A TrackingError: MLflow could not be reached; the record is written all the same.
    """
    from toolformer_core.decode.openings import find_openings, names_of
    from toolformer_core.lm.load import load_model, model_digest

    store = Store(parameters.data)
    finished = _finished(parameters.model, store)
    digest = model_digest(str(finished.model))
    if (earlier := fitted_earlier(finished, digest, parameters)) is not None:
        return earlier
    examples = held_out_examples(finished, store)
    if not examples:
        raise UsageError(
            f"the training in {finished.folder} held out no document of C*: train with more --dev-documents, or on a "
            "larger corpus (a tenth of it is held out at most)"
        )
    names, config = names_of(examples), _config(parameters)
    lm = load_model(str(finished.model), digest=digest)
    openings = find_openings(lm, examples, names, top_k=parameters.k, on_progress=on_progress)
    calls = dict(sorted(Counter(call.tool for e in examples for call in e.calls).items()))
    fits = tuple(fit_triggers(openings, list(names), config))
    fitted = FittedTrigger(digest, finished.dataset, len(examples), parameters.k, calls, config, fits)
    write_trigger(finished.folder / TRIGGER_FILE, fitted)
    result = _result(finished, fitted)
    if result.run_id is not None:
        _track(result.run_id, parameters.data, fitted)
    return result


def fitted_earlier(finished: FinishedTraining, digest: str, parameters: FitTriggerParameters) -> TriggerResult | None:
    """Return what was fitted for a model of this digest by the same parameters; None if nothing was."""
    with suppress(UsageError):  # no record, or one that cannot be read
        fitted = read_trigger(finished.folder / TRIGGER_FILE)
        if (fitted.model_digest, fitted.top_k, fitted.config) == (digest, parameters.k, _config(parameters)):
            return _result(finished, fitted)
    return None


def _config(parameters: FitTriggerParameters) -> FitConfig:
    return FitConfig(needless=parameters.needless, lost=parameters.lost, min_calls=parameters.min_calls)


def _result(finished: FinishedTraining, fitted: FittedTrigger) -> TriggerResult:
    model = str(finished.model)
    return TriggerResult(model, str(finished.folder / TRIGGER_FILE), training_run(model), fitted)


def _finished(model: str, store: Store) -> FinishedTraining:
    trainings = [finished_finetune(Path(trained_model(model)).parent)] if model else finished_trainings(store)
    found = next((one for one in trainings if one is not None and one.arm == "toolformer"), None)
    if found is None and model:
        raise UsageError(
            f"{model} is no finished training of C* (arm toolformer): give the folder of one, or its model"
        )
    if found is None:
        raise UsageError(f"there is no finished training of C* in {store.root}/finetunes: run toolformer finetune")
    return found


def fits_table(fitted: FittedTrigger) -> ResultTable:
    """Return a row per tool, with notes on thresholds that are not what was requested."""
    rows = [
        (
            fit.tool,
            None if fit.threshold is None else f"{fit.threshold:.3g}",
            fitted.calls.get(fit.tool, 0),
            *(fit.wanted, fit.kept, fit.needless, fit.needless_left),
        )
        for fit in fitted.fits
    ]
    notes = [f"{fit.tool}: {note}" for fit in fitted.fits if (note := _BOUNDS.get(fit.bound))]
    title = f"held-out documents of {fitted.dataset}: {fitted.documents:,}; k = {fitted.top_k}"
    columns = ("tool", "theta", "calls", "opened", "kept", "needless", "left")
    return ResultTable("", title, columns, tuple(rows), notes=(*notes, _LEGEND))


def _track(run_id: str, data: str, fitted: FittedTrigger) -> None:
    from tasks.tracking import TrackedRun, Tracking
    from tasks.tracking.figures import curves

    run = TrackedRun(Tracking(tracking_uri(data)).client, run_id)
    metrics: dict[str, float] = {}
    for fit in fitted.fits:
        if fit.threshold is not None:
            metrics[f"trigger/theta_{fit.tool}"] = fit.threshold
            metrics[f"trigger/lost_{fit.tool}"] = 1 - fit.kept / fit.wanted
            metrics[f"trigger/needless_{fit.tool}"] = fit.needless_left / max(1, fit.needless)
    run.metrics(metrics)
    names = ("tool", "bound", "kept", "needless", "needless_left", "early", "other_tool")
    rows = [
        {name: getattr(fit, name) for name in names}
        | {"theta": fit.threshold, "opened": fit.wanted, "calls": fitted.calls.get(fit.tool, 0)}
        for fit in fitted.fits
    ]
    run.table(rows, "tables/trigger.json")
    series = {
        fit.tool: sorted((point.needless, point.kept / fit.wanted) for point in fit.curve)
        for fit in fitted.fits
        if fit.wanted
    }
    figure = curves("Calls kept by needless openings left", "share of calls kept", series, x_label="needless openings")
    run.figure(figure, "figures/trigger.png")
