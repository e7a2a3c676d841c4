"""Turns the lines of events.jsonl into metrics and tags: which figures of a training are tracked, under which names.

An event counts once even if it comes twice: of each kind only steps after the last known one are used, so the steps
that a new attempt repeats after a failure get no second value. This module knows no MLflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Event = Mapping[str, Any]

# Of each event, its figures and the metrics they become. The first is in every event of its kind.
METRICS: Mapping[str, Mapping[str, str]] = {
    "step": {
        name: name for name in ("loss", "learning_rate", "grad_norm", "tokens", "tokens_per_second", "memory_bytes")
    },
    "evaluated": {"loss": "dev_loss", "perplexity": "dev_perplexity"},
    "finished": {"best_step": "best_step", "best_perplexity": "best_dev_perplexity"},
}
_ENDINGS = ("reason", "message", "failed_step", "stopped_step")  # tags that a new attempt removes


def new_points(events: Iterable[Event], last: Mapping[str, int]) -> Iterator[tuple[Event, dict[str, float]]]:
    """Yield each event that has figures not seen before, and its metrics; figures that are null are left out.

    Args:
        events: in the order of the file.
        last: by kind of event, the last step known.
    """
    reached = dict(last)
    for event in events:
        kind = event["event"]
        if kind not in METRICS or event["step"] <= reached.get(kind, -1):
            continue
        reached[kind] = event["step"]
        figures = {metric: event.get(name) for name, metric in METRICS[kind].items()}
        yield event, {metric: float(value) for metric, value in figures.items() if value is not None}


def tags_of(events: Iterable[Event]) -> dict[str, str | None]:
    """Return the run's tags, each from the last event that sets it; None removes a tag.

    `started` gives its facts (attempt, engine, world_size, ...), `failed` the reason and message, `failed` and
    `stopped` the step; a new attempt removes the tags that the previous attempt's end had set.
    """
    tags: dict[str, str | None] = {}
    for event in events:
        match event["event"]:
            case "started":
                tags |= dict.fromkeys(_ENDINGS)
                tags |= {k: str(v) for k, v in event.items() if k not in ("t", "event")}
            case "failed":
                tags |= {"reason": event["reason"], "message": event["message"], "failed_step": str(event["step"])}
            case "stopped":
                tags["stopped_step"] = str(event["step"])
    return tags
