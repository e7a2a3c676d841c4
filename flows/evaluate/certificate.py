"""The certificate of an accuracy: how many of a benchmark's items stand in the texts that a model was finetuned on.

These are the stored texts of the training's dataset version, without their calls; a base model's are not known.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.build_dataset.texts import plain_texts
from flows.report.tables import Cell, ResultTable, percent
from tasks.shards.arrow import items_of
from tasks.shards.run_shard import ShardResult
from tasks.specs.evaluation_spec import Evaluation
from tasks.training.registry import finished_finetune
from toolformer_core.config import NGRAM
from toolformer_core.evaluate.contamination import ItemFinder, ItemTexts
from toolformer_core.evaluate.items import Task
from toolformer_core.records import digest_of
from warehouse.errors import WarehouseError
from warehouse.records import Certificate, certificates
from warehouse.store import Store


@dataclass(frozen=True, slots=True)
class KnownItems:
    """Which items of a benchmark stand in the texts of a dataset version."""

    task: str
    dataset: str  # name@version
    benchmark: str  # digest of the items
    ids: frozenset[str]


def certificate_of(name: str, evaluation: Evaluation, right: Mapping[str, bool], known: KnownItems) -> Certificate:
    """Return the certificate of an evaluation."""
    dataset, _, version = known.dataset.partition("@")
    key = (name, known.task, evaluation.arm, evaluation.k, dataset, version, known.benchmark, NGRAM)
    unknown = _share(one for item, one in right.items() if item not in known.ids)
    return Certificate(*key, len(right), _share(right.values()), sorted(known.ids & right.keys()), unknown)


def _share(right: Iterable[bool]) -> float | None:
    given = list(right)
    return sum(given) / len(given) if given else None


def certificate_text(one: Certificate) -> str:
    """Return a certificate as a note beside its accuracy."""
    share = percent(one.accuracy_unknown)
    right = "no other item is left" if share is None else f"{share:.1f} % of the others right"
    texts = f"{one.ngram} words in a row stand in a text of {one.dataset}@{one.version}"
    return f"known items ({texts}): {len(one.known):,}; {right}"


def certificate_table(rows: Iterable[Mapping[str, Any]]) -> ResultTable:
    """Return accuracies with their certificates, where they have one, as cards show them."""

    def cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
        known = row["known"] if isinstance(row["known"], int | None) else len(row["known"])
        right, without = (None if share is None else f"{100 * share:.1f}" for share in map(row.get, shares))
        return row["task"], row["arm"], row["k"], row["items"], right, known, without

    shares = ("accuracy", "accuracy_unknown")
    columns = ("task", "arm", "k", "items", "right, %", "known", "right without, %")
    note = f"Known are items that share {NGRAM} words in a row with a text that the model was trained on."
    return ResultTable("", "Evaluations", columns, tuple(map(cells, rows)), notes=(note,))


def known_by_evaluation(
    store: Store, task: Task, read: ShardResult, evaluations: Iterable[Evaluation]
) -> dict[Evaluation, KnownItems]:
    """Return the items that the texts of each evaluation's model hold, from earlier certificates if there are any.

    Evaluations of models that were not finetuned, or whose dataset is not in the store or not whole, are left out.
    """
    benchmark = digest_of("items", *(file.digest for file in read.files))
    known: dict[str, frozenset[str] | None] = {
        f"{one.dataset}@{one.version}": frozenset(one.known)
        for one in certificates(store)
        if (one.benchmark, one.ngram) == (benchmark, NGRAM)
    }
    out: dict[Evaluation, KnownItems] = {}
    for evaluation in evaluations:
        if (training := finished_finetune(Path(evaluation.model).parent)) is not None:
            if training.dataset not in known:
                known[training.dataset] = _known(store, task, read, training.dataset)
            if (ids := known[training.dataset]) is not None:
                out[evaluation] = KnownItems(task.name, training.dataset, benchmark, ids)
    return out


def _known(store: Store, task: Task, read: ShardResult, label: str) -> frozenset[str] | None:
    """Return the items that stand in a dataset's texts; None if the store does not hold these."""
    dataset = next((one for one in store.datasets() if f"{one.name}@{one.version}" == label), None)
    if dataset is None:
        return None
    items = (item for file in read.files for item in items_of(store.read(file)))
    finder = ItemFinder(ItemTexts.of(task.name, task.form, item) for item in items)
    try:
        return frozenset(found.item_id for text in plain_texts(store, dataset) for found in finder.find(text))
    except WarehouseError:
        return None
