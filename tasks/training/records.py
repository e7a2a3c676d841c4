"""Copies the results of a finished training from its job folder into a record of the warehouse."""

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from tasks.training.registry import FinishedTraining, base_name, training_run
from toolformer_core.finetune.events import read_events
from toolformer_core.finetune.recipe import read_job
from warehouse.records import Training, write_training
from warehouse.store import Store

_AT_WORK = ("started", "step", "evaluated", "stopped", "finished", "failed")  # events of a running attempt


def record_training(store: Store, finished: FinishedTraining) -> None:
    """Write the record of a finished training, or replace it; a UsageError: the folder's job cannot be read."""
    events = read_events(finished.folder)[0]
    last: dict[str, dict[str, Any]] = {event["event"]: event for event in events}
    measured = [event for event in events if event["event"] == "evaluated"]
    training = Training(
        job=finished.folder.name,
        run_id=training_run(str(finished.model)),
        arm=finished.arm,
        dataset=finished.texts[0],
        version=finished.dataset.rpartition("@")[2],
        model=base_name(finished),
        model_digest=finished.base_digest,
        recipe=asdict(read_job(finished.folder).recipe),
        steps=last["finished"]["step"],
        train_loss=last.get("step", {}).get("loss"),
        dev_loss=measured[-1]["loss"] if measured else None,
        dev_perplexity=measured[-1]["perplexity"] if measured else None,
        base_perplexity=next((event["perplexity"] for event in measured if event["step"] == 0), None),
        best_step=last["finished"].get("best_step"),
        best_perplexity=last["finished"].get("best_perplexity"),
        checkpoint=_within(store, finished.model),
        seconds=_seconds(events),
        finished=dt.datetime.fromtimestamp(finished.finished, dt.UTC).isoformat(timespec="microseconds"),
        curve=_curve(events),
    )
    write_training(store, training)


def _within(store: Store, path: Path) -> str:
    root = Path(store.root)
    return path.relative_to(root).as_posix() if store.is_local and path.is_relative_to(root) else str(path)


def _curve(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was measured at each step, in order; of a step that was repeated, what was measured last."""
    steps: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["event"] == "step":
            measured = {name: event.get(name) for name in ("loss", "learning_rate", "tokens_per_second")}
        elif event["event"] == "evaluated":  # JSON has no infinity
            measured = {"dev_perplexity": event["perplexity"] if math.isfinite(event["perplexity"]) else None}
        else:
            continue
        steps.setdefault(event["step"], {"step": event["step"]}).update(measured)
    return [steps[step] for step in sorted(steps)]


def _seconds(events: Sequence[dict[str, Any]]) -> float:
    at_work = [event for event in events if event["event"] in _AT_WORK]
    return sum(float(later["t"] - event["t"]) for event, later in pairwise(at_work) if later["event"] != "started")
