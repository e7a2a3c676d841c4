"""The certificate of an accuracy: how many of a benchmark's items stand in the texts that a model was finetuned on.

They are looked for in the stored texts of the dataset version that the training's record names, without their calls,
so a dataset needs nothing done to it before. A base model's texts are not known. What an item's words are is said in
`evaluate.contamination`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.shards.arrow import examples_of, items_of
from tasks.shards.run_shard import ShardResult
from tasks.specs.evaluation_spec import Evaluation
from tasks.training.registry import finished_finetune
from toolformer_core.config import NGRAM
from toolformer_core.evaluate.contamination import ItemFinder, ItemTexts
from toolformer_core.evaluate.items import Task
from toolformer_core.syntax import strip
from warehouse.commits import Dataset
from warehouse.errors import WarehouseError
from warehouse.store import Store


@dataclass(frozen=True, slots=True)
class Certificate:
    """An accuracy without the items that the model's training texts hold."""

    dataset: str  # name@version
    items: int  # of the benchmark, that share `ngram` words in a row with a text
    accuracy: float  # of the others, in [0, 1]; nan if there are none
    ngram: int = NGRAM

    @classmethod
    def of(cls, dataset: str, right: Mapping[str, bool], known: frozenset[str]) -> Certificate:
        """Return the certificate of an evaluation.

        Args:
            dataset: name@version.
            right: whether each item was answered right.
            known: the items that stand in the dataset's texts.
        """
        others = [one for item, one in right.items() if item not in known]
        return cls(dataset, len(known & right.keys()), sum(others) / len(others) if others else math.nan)

    def __str__(self) -> str:
        right = (
            "no other item is left" if math.isnan(self.accuracy) else f"{100 * self.accuracy:.1f} % of the others right"
        )
        return f"known items ({self.ngram} words in a row stand in a text of {self.dataset}): {self.items:,}; {right}"


def known_items(store: Store, dataset: Dataset, items: Iterable[ItemTexts]) -> frozenset[str]:
    """Return the ids of the items that stand in the texts of a dataset version, read once.

    Raises:
        CorruptDataError: files of the dataset are damaged or missing.
    """
    finder = ItemFinder(items)
    return frozenset(
        found.item_id
        for table in store.read_dataset(dataset, ["doc_id", "text", "calls"])
        for example in examples_of(table)
        for found in finder.find(strip(example.text, [(call.start, call.end) for call in example.calls]))
    )


def known_by_evaluation(
    store: Store, task: Task, read: ShardResult, evaluations: Iterable[Evaluation]
) -> dict[Evaluation, tuple[str, frozenset[str]]]:
    """Return the dataset of each evaluation's model, name@version, and the items that its texts hold.

    Evaluations of models that were not finetuned, or whose dataset is not in the store or not whole, are left out.

    Args:
        store: holds the datasets.
        task: the benchmark.
        read: its items.
        evaluations: of any arms.
    """
    out: dict[Evaluation, tuple[str, frozenset[str]]] = {}
    known: dict[str, frozenset[str] | None] = {}
    for evaluation in evaluations:
        training = finished_finetune(Path(evaluation.model).parent)
        if training is None:
            continue
        label = training.dataset
        if label not in known:
            items = (item for file in read.files for item in items_of(store.read(file)))
            known[label] = _known(store, label, [ItemTexts.of(task.name, task.form, item) for item in items])
        if (found := known[label]) is not None:
            out[evaluation] = label, found
    return out


def _known(store: Store, label: str, items: Iterable[ItemTexts]) -> frozenset[str] | None:
    """Return the items that stand in a dataset's texts; None if the store does not hold these."""
    dataset = next((one for one in store.datasets() if f"{one.name}@{one.version}" == label), None)
    try:
        return None if dataset is None else known_items(store, dataset, items)
    except WarehouseError:
        return None
