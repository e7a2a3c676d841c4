"""Which finetuned models there are: finished trainings, as their jobs' folders tell, and which of them belong together.

A job's folder is what `tasks.finetune` describes. Nothing is loaded here, and no warehouse is asked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.following import outcome_of
from toolformer_core.errors import ModelError, UsageError
from toolformer_core.finetune.events import read_events
from toolformer_core.finetune.recipe import JOB_FILE, read_job

__all__ = ["MLFLOW_NOTE", "Finetuned", "finished_finetunes", "newest_pair", "trained_model", "training_run"]

MLFLOW_NOTE = "mlflow_run"  # in a job's folder: the id of the MLflow run that tells of it


@dataclass(frozen=True, slots=True)
class Finetuned:
    """A finished training, as its job's folder tells."""

    folder: Path
    arm: str  # toolformer | cc
    base: str  # the model it started from, as the job names it
    texts: tuple[str, int, int, str]  # what it was trained on: dataset name, texts, dev texts, digest of the latter
    finished: float  # seconds since 1970
    dataset: str = ""  # name@version; "" where the job does not say

    @property
    def model(self) -> Path:
        return self.folder / "model"


def finished_finetunes(jobs: Path) -> list[Finetuned]:
    """Return the finished trainings below a folder, newest first; what is no such job is passed over."""
    found = []
    for folder in sorted(p.parent for p in jobs.glob(f"*/{JOB_FILE}")):
        name, _, rest = folder.name.rpartition("-")
        name, _, arm = name.rpartition("-")  # <dataset>-<arm>-<digest>, see `finetune.FinetuneSpec.folder`
        events = read_events(folder)[0]
        ended = outcome_of(events)
        if arm not in ("toolformer", "cc") or not rest or ended is None or not ended.finished:
            continue
        if not (folder / "model" / "config.json").is_file():
            continue
        try:
            card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
            texts = (name, int(card["train"]), int(card["dev"]), str(card["dev_digest"]))
            base = read_job(folder).model
        except (OSError, ValueError, KeyError, TypeError, UsageError):
            continue
        found.append(Finetuned(folder, arm, base, texts, float(events[-1]["t"]), str(card.get("dataset", ""))))
    return sorted(found, key=lambda f: -f.finished)


def trained_model(path: str) -> str:
    """Return the model that a path names: a model's folder, a job's folder with its `model`, or a name as it is.

    Raises:
        ModelError: a job's folder whose training has not finished.
    """
    folder = Path(path).expanduser()
    if (folder / JOB_FILE).is_file():
        if not (folder / "model" / "config.json").is_file():
            raise ModelError(f"the training in {path} has not finished; run the same toolformer finetune again")
        return str((folder / "model").absolute())
    return str(folder.absolute()) if folder.is_dir() else path


def training_run(model: str) -> str | None:
    """Return the id of the MLflow run of the training that left a model, None if it was no training of ours."""
    try:
        return (Path(model).parent / MLFLOW_NOTE).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def newest_pair(found: Sequence[Finetuned], bases: Sequence[str]) -> dict[str, Finetuned]:
    """Return the newest trainings of a base model, by arm: of the dataset whose training ended last.

    Args:
        found: newest first.
        bases: the names under which a job may know the base model.
    """
    own = [f for f in found if f.base in bases]
    first = next((f for f in own if f.arm == "toolformer"), own[0] if own else None)
    out: dict[str, Finetuned] = {}
    for one in own:
        if first is not None and one.texts == first.texts:
            out.setdefault(one.arm, one)
    return out
