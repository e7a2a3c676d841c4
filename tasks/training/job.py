"""The folder of a training job, named after everything its result depends on, and the files it starts with.

<jobs>/<name>-<digest>/   job.json, train.jsonl, dev.jsonl, card.json; the training and its launch add others
"""

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tasks.shards.arrow import documents_of, examples_of, with_masked_texts
from tasks.shards.stage import PII
from toolformer_core.config import canonical_json
from toolformer_core.errors import UsageError
from toolformer_core.finetune.recipe import Job, Recipe, write_job
from toolformer_core.finetune.texts import held_out, training_text
from toolformer_core.records import Document, digest_of
from warehouse.commits import Dataset
from warehouse.errors import CorruptDataError
from warehouse.store import Store

VERSION = "4"  # raised when the same recipe gives another result
_CARD = "card.json"


@dataclass(frozen=True, slots=True)
class FinetuneSpec:
    """Everything that the result of a training depends on, as plain values, and the folder it is written to."""

    dataset: Dataset
    arm: str
    model: str  # a folder or a hub name that the nodes can load
    model_digest: str
    recipe: Recipe
    dev_documents: int
    device: str
    jobs: Path
    way: str = ""  # identifies the dataset's record if an earlier one of the same content read other documents; else ""

    @property
    def digest(self) -> str:
        """16 hex digits."""
        trained = self.dataset.version, self.arm, self.model_digest, canonical_json(self.recipe)
        return digest_of("finetune", VERSION, *trained, str(self.dev_documents), *filter(None, [self.way]))[:16]

    @property
    def folder(self) -> Path:
        return self.jobs / f"{self.dataset.name}-{self.arm}-{self.digest}"


@dataclass(frozen=True, slots=True)
class JobCard:
    """The number and digests of the texts in a job's folder."""

    train: int
    dev: int
    train_digest: str
    dev_digest: str
    dataset: str  # name@version
    base_digest: str  # of the model that is trained
    number: int  # larger than that of every job that was there before


def write_job_folder(spec: FinetuneSpec, store: Store) -> JobCard:
    """Write the job's folder unless it exists; return its card.

    A UsageError: there are no training texts, or the folder cannot be written. A CorruptDataError: files of the dataset
    are damaged or missing. A CallSyntaxError: responses are not trained, and the dataset's spans are not its calls'.
    """
    card = spec.folder / _CARD
    if card.is_file():
        existing = JobCard(**json.loads(card.read_text(encoding="utf-8")))
        with _explaining(spec.folder):  # the device and the model's path may have changed
            write_job(_job(spec, has_dev=existing.dev > 0), spec.folder)
        return existing
    texts = {
        example.doc_id: training_text(example, spec.arm)
        for table in store.read_dataset(spec.dataset)
        for example in examples_of(table)
    }
    held = held_out_documents(spec.dataset, store, spec.dev_documents, spec.recipe.seed)
    train = [text for doc_id, text in texts.items() if doc_id not in held]
    dev = list(held.values())
    label = f"{spec.dataset.name}@{spec.dataset.version}"
    if not train:
        raise UsageError(f"{label} has {len(texts)} documents with calls: too few")
    writing = spec.folder.with_name(f".writing-{spec.folder.name}")
    with _explaining(spec.folder):
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir(parents=True)
        digests = _write(writing / "train.jsonl", train), _write(writing / "dev.jsonl", dev)
        number = 1 + max(_numbers(spec.jobs), default=0)
        written = JobCard(len(train), len(dev), *digests, label, spec.model_digest, number)
        write_job(_job(spec, has_dev=bool(dev)), writing)
        (writing / _CARD).write_text(json.dumps(asdict(written)) + "\n", encoding="utf-8")
        writing.rename(spec.folder)
    return written


@contextlib.contextmanager
def _explaining(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise UsageError(f"the job's folder {folder} cannot be written: {exc.strerror}") from exc


def _numbers(jobs: Path) -> Iterator[int]:
    for card in jobs.glob(f"*/{_CARD}"):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            yield int(json.loads(card.read_text(encoding="utf-8")).get("number", 0))


def _job(spec: FinetuneSpec, *, has_dev: bool) -> Job:
    return Job(model=spec.model, dev="dev.jsonl" if has_dev else None, device=spec.device, recipe=spec.recipe)


def held_out_documents(dataset: Dataset, store: Store, most: int, seed: int) -> dict[str, str]:
    """Return the texts that a training on a dataset holds out of all that its run read (`held_out`), by id, in order.

    A CorruptDataError: files of the dataset are damaged or gone.
    """
    documents = {d.doc_id: d.text for d in _documents(dataset, store)}
    return {doc_id: documents[doc_id] for doc_id in sorted(held_out(documents, most, seed))}


def texts_digest(texts: Sequence[str]) -> str:
    return digest_of("texts", *texts)[:16]


def _documents(dataset: Dataset, store: Store) -> Iterator[Document]:
    runs = (run for run in store.runs() if run.run_id == dataset.run_id)
    for key in (key for run in runs for key in run.commits if key.stage == "ingest"):
        commit = store.find(key.stage, key.tool, key.shard, key.fingerprint)
        if commit is None:
            problem = f"its documents ({key.id}) are gone or not whole; run the build that made it again"
            raise CorruptDataError(f"dataset {dataset.name}@{dataset.version} is damaged: {problem}")
        for table in (store.read(file) for file in commit.files if file.is_result):
            yield from documents_of(with_masked_texts(table) if PII in commit.parts else table)


def _write(path: Path, texts: Sequence[str]) -> str:
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    path.write_text("".join(lines), encoding="utf-8")
    return texts_digest(texts)
