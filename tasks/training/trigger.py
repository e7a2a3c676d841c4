"""The thresholds on p(" [") that were fitted for a finetuned model: their record, and the documents to fit them on."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import TypeAdapter

from tasks.shards.arrow import examples_of
from tasks.training.job import held_out_documents, texts_digest
from tasks.training.registry import FinishedTraining
from toolformer_core.decode.trigger import FitConfig, ToolFit
from toolformer_core.errors import UsageError
from toolformer_core.finetune.recipe import read_job
from toolformer_core.records import Example
from warehouse.files.base import put_local
from warehouse.store import Store

TRIGGER_FILE = "trigger.json"


@dataclass(frozen=True, slots=True)
class FittedTrigger:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    model_digest: str  # of the model it was fitted for
    dataset: str  # name@version
    documents: int  # documents of C* that were held out
    top_k: int  # an opening is a place where " [" is among this many most likely tokens
    calls: Mapping[str, int]  # per tool, its calls in the documents, whether " [" is likely there or not
    config: FitConfig
    fits: tuple[ToolFit, ...]

    @property
    def thresholds(self) -> dict[str, float]:
        return {fit.tool: fit.threshold for fit in self.fits if fit.threshold is not None}


def write_trigger(path: Path, fitted: FittedTrigger) -> None:
    """Write a record, whole or not at all, or raise a UsageError."""
    try:
        put_local(path, (json.dumps(asdict(fitted), indent=1) + "\n").encode())
    except OSError as exc:
        raise UsageError(f"{path} cannot be written: {exc.strerror}") from exc


def read_trigger(path: Path) -> FittedTrigger:
    """Read a record, or raise a UsageError if it cannot be read or is no such record."""
    try:
        return TypeAdapter(FittedTrigger).validate_json(path.read_bytes())
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise UsageError(f"{path} holds no thresholds that toolformer fit-trigger wrote") from exc


def held_out_examples(finished: FinishedTraining, store: Store) -> list[Example]:
    """Return the documents of C* that a training held out, in order; or a UsageError, CorruptDataError."""
    name, _, version = finished.dataset.rpartition("@")
    _, _, dev, dev_digest = finished.texts
    seed = read_job(finished.folder).recipe.seed
    for dataset in store.datasets():
        if (dataset.name, dataset.version) == (name, version):
            held = held_out_documents(dataset, store, dev, seed)
            if texts_digest(list(held.values())) == dev_digest:
                examples = (example for table in store.read_dataset(dataset) for example in examples_of(table))
                return [example for example in examples if example.doc_id in held]
    raise UsageError(
        f"the training in {finished.folder} read dataset {finished.dataset or 'unknown'}, which {store.root} does not "
        "hold in that form: give --data with the folder in which the dataset was built"
    )
