"""Small records beside the commits: prompts of builds, finished trainings, certificates of accuracies, and exports.

Writers raise `StoreError` if a name is unsafe or the disk is full.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from warehouse.commits import canonical_json, check_name, digest
from warehouse.schema import columns
from warehouse.store import Store

_PROMPTS = columns("tool text?, digest text?, text text?")
_TRAININGS = columns(
    "job text?, run_id text?, arm text?, dataset text?, version text?, model text?, model_digest text?, recipe text?, "
    "steps int?, train_loss real?, dev_loss real?, dev_perplexity real?, base_perplexity real?, best_step int?, "
    "best_perplexity real?, checkpoint text?, seconds real?, finished text?, curve text?"
)
_CERTIFICATES = columns(
    "evaluation text?, task text?, arm text?, k int?, dataset text?, version text?, ngram int?, items int?, "
    "accuracy real?, known int?, accuracy_unknown real?"
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """An accuracy of a finetuned model with and without the items that its training's texts hold."""

    evaluation: str
    task: str
    arm: str
    k: int
    dataset: str  # that it was trained on
    version: str
    benchmark: str  # digest of the items
    ngram: int  # words in a row by which an item is known
    items: int
    accuracy: float | None  # in [0, 1]; None: there are no items
    known: Sequence[str]  # ids of the items that stand in the texts
    accuracy_unknown: float | None  # of the others


@dataclass(frozen=True, slots=True)
class Training:
    """A finished training. Losses are in nats per token; None means that nothing was measured."""

    job: str  # the name of its folder
    run_id: str | None  # of the run on the tracking server
    arm: str
    dataset: str
    version: str  # of the dataset
    model: str  # the model that was trained
    model_digest: str
    recipe: Mapping[str, Any]
    steps: int
    train_loss: float | None  # of the last step
    dev_loss: float | None  # at the end
    dev_perplexity: float | None
    base_perplexity: float | None  # before the first step
    best_step: int | None
    best_perplexity: float | None
    checkpoint: str  # the model's folder; relative to the data folder if it lies within
    seconds: float  # of all attempts
    finished: str  # ISO UTC
    curve: Sequence[Mapping[str, Any]] = ()  # by step: step, loss, learning_rate, tokens_per_second, dev_perplexity


@dataclass(frozen=True, slots=True)
class Export:
    """Files of a dataset outside of the data folder."""

    dataset: str  # the record's key, NAME/VERSION-MADE
    format: str
    folder: str  # where the files lie, on the machine that wrote them
    files: tuple[Mapping[str, Any], ...]  # name, bytes, sha256, and of rows also split and rows
    program: str  # version of the program that wrote them
    created: str  # ISO UTC
    hub: str | None = None  # address of the hub that they were pushed to
    repository: str | None = None  # OWNER/NAME there
    revision: str | None = None  # commit there

    @property
    def id(self) -> str:
        """16 hex digits: the same export to the same place has the same id, whenever it is made."""
        return digest(canonical_json({**dataclasses.asdict(self), "created": ""}))[:16]


def write_prompt(store: Store, tool: str, digest: str, text: str) -> None:
    """Write a prompt's text, with one `{text}` in the place of the document, unless it is stored already."""
    path = f"prompts/{check_name('prompt', f'{tool}-{digest}')}.json"
    if store.files.stat(path) is None:
        store.write_json(path, {"tool": tool, "digest": digest, "text": text})


def write_training(store: Store, training: Training) -> None:
    store.write_json(f"trainings/{check_name('training', training.job)}.json", dataclasses.asdict(training))


def write_certificate(store: Store, certificate: Certificate) -> None:
    name = check_name("evaluation", certificate.evaluation)
    store.write_json(f"certificates/{name}.json", dataclasses.asdict(certificate))


def write_export(store: Store, export: Export) -> str:
    """Write an export's record, unless it is stored already; return its id."""
    path = f"exports/{export.id}.json"
    if store.files.stat(path) is None:
        store.write_json(path, dataclasses.asdict(export))
    return export.id


def exports(store: Store) -> dict[str, Export]:
    found = (Export(**{**value, "files": tuple(value["files"])}) for value in store.records("exports"))
    return {export.id: export for export in found}


def certificates(store: Store, dataset: str = "", version: str = "") -> list[Certificate]:
    """Return the certificates of the accuracies of models that were trained on a dataset's version, or of all."""
    found = (Certificate(**record) for record in store.records("certificates"))
    chosen = [one for one in found if not dataset or (one.dataset, one.version) == (dataset, version)]
    return sorted(chosen, key=lambda one: (one.dataset, one.version, one.task, one.arm, one.k))


def certificates_table(store: Store) -> pa.Table:
    """Return the certificates, one per row; `known` is the number of items."""
    rows = [{**dataclasses.asdict(one), "known": len(one.known)} for one in certificates(store)]
    return pa.Table.from_pylist(rows, _CERTIFICATES)


def trainings(store: Store) -> list[dict[str, Any]]:
    """Return the records of finished trainings, by job; `checkpoint` is an absolute path."""
    rows = store.records("trainings")
    return [{**row, "checkpoint": str(Path(store.root, row["checkpoint"]))} if store.is_local else row for row in rows]


def prompts_table(store: Store) -> pa.Table:
    return pa.Table.from_pylist(list(store.records("prompts")), _PROMPTS)


def trainings_table(store: Store) -> pa.Table:
    """Return the finished trainings, one per row; `recipe` and `curve` are JSON text, `checkpoint` an absolute path."""
    texts = ("recipe", "curve")
    rows = [{**row, **{name: canonical_json(row.get(name, [])).decode() for name in texts}} for row in trainings(store)]
    return pa.Table.from_pylist(rows, _TRAININGS)
