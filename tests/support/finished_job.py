"""A folder as a finished training leaves it, without the training."""

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors.numpy import save_file

from toolformer_core.finetune.recipe import Job, Recipe, write_job

# Two attempts: 3 s at work, 95 s until somebody goes on, 4 s more.
_EVENTS = (
    {"t": 100.0, "event": "started"},
    {"t": 101.0, "event": "evaluated", "step": 0, "loss": 3.0, "perplexity": 20.1},
    {"t": 103.0, "event": "step", "step": 1, "loss": 2.9},
    {"t": 197.0, "event": "damaged", "step": 1, "files": 1},
    {"t": 198.0, "event": "started"},
    {"t": 200.0, "event": "step", "step": 2, "loss": 2.5},
    {"t": 201.0, "event": "evaluated", "step": 2, "loss": 2.0, "perplexity": 7.4},
    {"t": 202.0, "event": "finished", "step": 2, "best_step": 2, "best_perplexity": 7.4},
)


def a_finished_job(
    folder: Path, *, base: str = "gpt", finished: float = 202.0, held_out: Sequence[str] = (), **noted: object
) -> Path:
    """Write a job of two steps on cstar@v1, `noted` in its card, into a folder of its name; return it."""
    (folder / "model").mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (folder / "model" / name).write_text("{}")
    save_file({}, folder / "model" / "model.safetensors")
    write_job(Job(model=base, recipe=Recipe(steps=2)), folder)
    (folder / "dev.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in held_out))
    card = {"train": 3, "dev": 1, "train_digest": "a", "dev_digest": "b", "dataset": "cstar@v1", "base_digest": "d0"}
    (folder / "card.json").write_text(json.dumps({**card, "number": 1, **noted}))
    events = [*_EVENTS[:-1], {**_EVENTS[-1], "t": finished}]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder
