"""What a finished training came to, from its job's folder into a record of the warehouse.

The warehouse's view `trainings` is made of these records, wherever the job's folder lies. Who trained, and how, is not
known here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from tasks.finetuned import Finetuned, base_name, training_run
from toolformer_core.finetune.events import read_events
from toolformer_core.finetune.recipe import read_job
from warehouse.records import Training, write_training
from warehouse.store import Store

__all__ = ["record_training"]

_AT_WORK = ("started", "step", "evaluated", "stopped", "finished", "failed")  # events of an attempt that goes on


def record_training(store: Store, one: Finetuned) -> None:
    """Write the record of a finished training, or replace it.

    Raises:
        StoreError: it could not be written.
        UsageError: the folder's job cannot be read.
    """
    events = read_events(one.folder)[0]
    last: dict[str, dict[str, Any]] = {event["event"]: event for event in events}
    measured = [event for event in events if event["event"] == "evaluated"]
    version = one.dataset.rpartition("@")[2]
    training = Training(
        job=one.folder.name,
        run_id=training_run(str(one.model)),
        arm=one.arm,
        dataset=one.texts[0],
        version=version or None,
        model=base_name(one),
        model_digest=one.base_digest or None,
        recipe=asdict(read_job(one.folder).recipe),
        steps=last["finished"]["step"],
        train_loss=last.get("step", {}).get("loss"),
        dev_loss=measured[-1]["loss"] if measured else None,
        dev_perplexity=measured[-1]["perplexity"] if measured else None,
        base_perplexity=next((event["perplexity"] for event in measured if event["step"] == 0), None),
        best_step=last["finished"].get("best_step"),
        best_perplexity=last["finished"].get("best_perplexity"),
        checkpoint=_within(store, one.model),
        seconds=_seconds(events),
        finished=dt.datetime.fromtimestamp(one.finished, dt.UTC).isoformat(timespec="microseconds"),
    )
    write_training(store, training)


def _within(store: Store, path: Path) -> str:
    """Return a path relative to the data folder, if it lies within; else as it is."""
    own = Path(store.root)
    return path.relative_to(own).as_posix() if store.is_local and path.is_relative_to(own) else str(path)


def _seconds(events: Sequence[dict[str, Any]]) -> float:
    """Return how long all attempts took together: the time between two of them does not count."""
    at_work = [event for event in events if event["event"] in _AT_WORK]
    return sum(float(later["t"] - event["t"]) for event, later in pairwise(at_work) if later["event"] != "started")
