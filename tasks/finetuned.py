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
from toolformer_core.smallworld.embedded import MODEL

__all__ = [
    "MLFLOW_NOTE",
    "Finetuned",
    "base_name",
    "finished_finetune",
    "finished_finetunes",
    "model_label",
    "newest_pair",
    "trained_model",
    "training_run",
]

_EMBEDDED = "/" + "/".join(MODEL.parts[-4:])  # how the embedded model's path ends, wherever the program lies
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
    base_digest: str = ""  # of the model it started from; "" in jobs of before it was noted

    @property
    def model(self) -> Path:
        return self.folder / "model"


def finished_finetunes(jobs: Path) -> list[Finetuned]:
    """Return the finished trainings below a folder, newest first; what is no such job is passed over."""
    found = [one for job in jobs.glob(f"*/{JOB_FILE}") if (one := finished_finetune(job.parent)) is not None]
    return sorted(found, key=lambda f: (-f.finished, f.folder))


def finished_finetune(folder: Path) -> Finetuned | None:
    """Return the training of a job's folder; None if it has not finished, or is no such job."""
    name, _, rest = folder.name.rpartition("-")
    name, _, arm = name.rpartition("-")  # <dataset>-<arm>-<digest>, see `finetune.FinetuneSpec.folder`
    events = read_events(folder)[0]
    ended = outcome_of(events)
    if arm not in ("toolformer", "cc") or not rest or ended is None or not ended.finished:
        return None
    if not (folder / "model" / "config.json").is_file():
        return None
    try:
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        texts = (name, int(card["train"]), int(card["dev"]), str(card["dev_digest"]))
        base = read_job(folder).model
    except (OSError, ValueError, KeyError, TypeError, UsageError):
        return None
    noted = (str(card.get(name, "")) for name in ("dataset", "base_digest"))
    return Finetuned(folder, arm, base, texts, float(events[-1]["t"]), *noted)


def base_name(one: Finetuned) -> str:
    """Return the model that a training started from as a user names it: `embedded`, a folder, or a hub name."""
    return "embedded" if one.base.endswith(_EMBEDDED) else one.base


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


def model_label(model: str) -> str:
    """Return a short name for a model: of a training's `model`, the job's name; of another folder, its last part.

    `cstar-toolformer-0a1b2c3d4e5f6789` tells three trainings apart whose models all lie in a folder named `model`.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    folder = folder.resolve()
    return folder.parent.name if (folder.parent / JOB_FILE).is_file() else folder.name


def training_run(model: str) -> str | None:
    """Return the id of the MLflow run of the training that left a model, None if it was no training of ours."""
    try:
        return (Path(model).parent / MLFLOW_NOTE).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _starts_from(one: Finetuned, bases: Sequence[str], digest: str) -> bool:
    if digest and one.base_digest:
        return one.base_digest == digest
    # The embedded model lies in the program, which may have been installed elsewhere then.
    return one.base in bases or base_name(one) in bases


def newest_pair(found: Sequence[Finetuned], bases: Sequence[str], digest: str = "") -> dict[str, Finetuned]:
    """Return the newest trainings of a base model, by arm: of the dataset whose training ended last.

    A base model is known by its digest, wherever it lies now; in jobs of before that was noted, by its name or place.

    Args:
        found: newest first.
        bases: the names under which a job may know the base model.
        digest: the base model's; "" if it is not known.
    """
    own = [f for f in found if _starts_from(f, bases, digest)]
    first = next((f for f in own if f.arm == "toolformer"), own[0] if own else None)
    out: dict[str, Finetuned] = {}
    for one in own:
        if first is not None and one.texts == first.texts:
            out.setdefault(one.arm, one)
    return out
