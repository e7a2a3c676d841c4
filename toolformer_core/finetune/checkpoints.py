"""Where a run's checkpoints lie, which are kept, and from which one it goes on.

    checkpoints/step-000500/meta.json   step, processes, engine, dev perplexity; the folder has its name last
                            state/      what the engine needs to go on
                            model/      the model whole, if it was evaluated at this step
    model/                              the best one's model

A folder without its final name is not a checkpoint. Nothing here knows torch.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Checkpoint", "best", "checkpoints", "clear_unfinished", "complete", "retain", "unfinished"]

_ROOT = "checkpoints"
_META = "meta.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What `meta.json` says."""

    step: int
    world: int  # processes that wrote the state; as many must read it
    engine: str  # e.g. deepspeed-zero3
    perplexity: float | None  # on the development set

    @property
    def name(self) -> str:
        return f"step-{self.step:06d}"

    def folder(self, job: Path) -> Path:
        return job / _ROOT / self.name

    def state(self, job: Path) -> Path:
        return self.folder(job) / "state"

    def model(self, job: Path) -> Path:
        return self.folder(job) / "model"


def unfinished(job: Path, checkpoint: Checkpoint) -> Path:
    """Return the folder in which a checkpoint is written before it has its name."""
    return job / _ROOT / f".writing-{checkpoint.name}"


def clear_unfinished(job: Path) -> None:
    """Remove what killed or failed runs left half-written."""
    for left in (job / _ROOT).glob(".writing-*"):
        shutil.rmtree(left, ignore_errors=True)


def complete(job: Path, checkpoint: Checkpoint) -> Path:
    """Give a written checkpoint its name, replacing one of the same step."""
    source, target = unfinished(job, checkpoint), checkpoint.folder(job)
    (source / _META).write_text(json.dumps(asdict(checkpoint)) + "\n", encoding="utf-8")
    for file in source.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())  # a name that outlives a power cut must not lead to less than was written
    shutil.rmtree(target, ignore_errors=True)
    source.rename(target)
    return target


def checkpoints(job: Path) -> list[Checkpoint]:
    """Return all checkpoints of a run that are whole, the latest last."""
    found = []
    for meta in (job / _ROOT).glob(f"step-*/{_META}"):
        with suppress(OSError, ValueError, TypeError):
            found.append(Checkpoint(**json.loads(meta.read_text(encoding="utf-8"))))
    return sorted(found, key=lambda c: c.step)


def best(job: Path) -> Checkpoint | None:
    """Return the checkpoint of the lowest dev perplexity, of those with a model; the latest if none was measured."""
    held = [c for c in checkpoints(job) if c.model(job).is_dir()]
    measured = [c for c in held if c.perplexity is not None]
    if measured:
        return min(measured, key=lambda c: (c.perplexity, c.step))
    return held[-1] if held else None


def retain(job: Path, keep: int) -> None:
    """Keep the last `keep` checkpoints whole and the best one's model; remove the rest."""
    found = checkpoints(job)
    chosen = best(job)
    for old in found[:-keep]:
        if chosen is not None and old.step == chosen.step:
            shutil.rmtree(old.state(job), ignore_errors=True)
        else:
            shutil.rmtree(old.folder(job), ignore_errors=True)
