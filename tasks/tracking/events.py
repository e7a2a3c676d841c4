"""The lines of events.jsonl as curves and labels: which figures of training are tracked, under which names.

Told twice, an event counts once: of each kind only steps beyond the last one known are taken, so what a new attempt
repeats after a failure adds no second value to a step. Knows no MLflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["METRICS", "Event", "new_points", "tags_of"]

Event = Mapping[str, Any]

# Of each event, its figures and the metrics they become. The first is in every event of its kind.
METRICS: Mapping[str, Mapping[str, str]] = {
    "step": {
        name: name for name in ("loss", "learning_rate", "grad_norm", "tokens", "tokens_per_second", "memory_bytes")
    },
    "evaluated": {"loss": "dev_loss", "perplexity": "dev_perplexity"},
    "finished": {"best_step": "best_step", "best_perplexity": "best_dev_perplexity"},
}
_ENDINGS = ("reason", "message", "failed_step", "stopped_step")  # what a new attempt takes back


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
    """Return what the events say of the run as a whole, the last word of each; None takes a tag back.

    From `started` its facts (attempt, engine, world_size, ...), from `failed` reason and message, from either ending
    the step; a new attempt takes the endings of the one before back.
    """
    tags: dict[str, str | None] = {}
    for event in events:
        match event["event"]:
            case "started":
                tags |= dict.fromkeys(_ENDINGS)
                tags |= {k: str(v) for k, v in event.items() if k not in ("t", "event")}
            case "failed":
                told = {"reason": event["reason"], "message": event["message"], "failed_step": str(event["step"])}
                tags |= told
            case "stopped":
                tags["stopped_step"] = str(event["step"])
    return tags
