"""The registry of finetuned models: finished trainings, by their job folders, and which of them belong together."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.training.outcome import outcome_of
from toolformer_core.embedded import MODEL
from toolformer_core.errors import ModelError, UsageError
from toolformer_core.finetune.events import read_events
from toolformer_core.finetune.recipe import JOB_FILE, read_job
from toolformer_core.lm.reference import EMBEDDED, ModelRef

# How the embedded model's path ends, wherever the program is installed.
_EMBEDDED = "/" + "/".join(MODEL.parts[-3:])
MLFLOW_NOTE = "mlflow_run"  # in a job's folder: the id of its MLflow run


@dataclass(frozen=True, slots=True)
class FinishedTraining:
    folder: Path
    arm: str  # toolformer | cc
    base: str  # the model it started from, as the job names it
    texts: tuple[str, int, int, str]  # what it was trained on: dataset name, texts, dev texts, digest of the latter
    finished: float  # seconds since 1970
    dataset: str  # name@version
    base_digest: str  # of the model it started from
    number: int  # orders trainings, whatever clocks say

    @property
    def model(self) -> Path:
        return self.folder / "model"


def finished_finetunes(jobs: Path) -> list[FinishedTraining]:
    """Return the finished trainings below a folder, the last job's first; other folders are skipped."""
    trainings = [one for job in jobs.glob(f"*/{JOB_FILE}") if (one := finished_finetune(job.parent)) is not None]
    return sorted(trainings, key=lambda f: (-f.number, -f.finished, f.folder))


def finished_finetune(folder: Path) -> FinishedTraining | None:
    """Return the training of a job's folder; None if it has not finished, or is not a job folder."""
    name, arm, _ = ("", "", *folder.name.rsplit("-", 2))[-3:]  # see `FinetuneSpec.folder`
    events = read_events(folder)[0]
    outcome = outcome_of(events)
    whole = outcome is not None and outcome.finished and (folder / "model" / "config.json").is_file()
    if arm not in ("toolformer", "cc") or not whole:
        return None
    try:
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        texts = (name, int(card["train"]), int(card["dev"]), str(card["dev_digest"]))
        base = read_job(folder).model
        dataset, base_digest, number = str(card["dataset"]), str(card["base_digest"]), int(card["number"])
    except (OSError, ValueError, KeyError, TypeError, UsageError):
        return None
    return FinishedTraining(folder, arm, base, texts, float(events[-1]["t"]), dataset, base_digest, number)


def base_name(one: FinishedTraining) -> str:
    """Return the model that a training started from as a user names it: `embedded`, a folder, or a hub name."""
    return EMBEDDED if one.base.endswith(_EMBEDDED) else one.base


def trained_model(path: str) -> str:
    """Return the model of a path: a model's folder, that of a finished job (else a ModelError), or a name as it is."""
    named = ModelRef.of(path)
    folder = named.path
    if named.kind == "folder" and (folder / JOB_FILE).is_file():
        if not (folder / "model" / "config.json").is_file():
            raise ModelError(f"the training in {path} has not finished; run the same toolformer finetune again")
        return str((folder / "model").absolute())
    return named.absolute().name


def model_label(model: str) -> str:
    """Return a short name for a model: of a training's `model`, the job's name; of another folder, its last part."""
    folder = Path(model).expanduser().resolve()
    if not folder.is_dir():
        return model
    return folder.parent.name if (folder.parent / JOB_FILE).is_file() else folder.name


def training_run(model: str) -> str | None:
    """Return the id of the MLflow run of the training that made a model; None if no training of ours made it."""
    with suppress(OSError):
        return (Path(model).parent / MLFLOW_NOTE).read_text(encoding="utf-8").strip() or None
    return None


def newest_pair(trainings: Sequence[FinishedTraining], base_digest: str) -> dict[str, FinishedTraining]:
    """Return the newest trainings of a base model, by arm, of the dataset trained on last; they come newest first."""
    matching = [one for one in trainings if one.base_digest == base_digest]
    first = next((one for one in matching if one.arm == "toolformer"), next(iter(matching), None))
    return {one.arm: one for one in reversed(matching) if first is not None and one.texts == first.texts}
