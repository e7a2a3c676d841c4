"""A finetuned model with a card in a model repository of the Hugging Face hub, pushed in one commit."""

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flows.build_dataset.versions import card_of
from flows.evaluate.certificate import certificate_table
from flows.export.card import file_entries, licence_header, manifest_text, weights_licence
from flows.export.find import find_dataset
from flows.export.hub import MANIFEST, README, look_at, push
from flows.export.run import Pushed
from flows.report.markdown import rendered
from toolformer_core import __version__
from toolformer_core.errors import UnknownNameError, UsageError
from warehouse.commits import Dataset
from warehouse.queries import rows_of
from warehouse.records import trainings
from warehouse.snapshot.publish import SNAPSHOT
from warehouse.store import Store

_ANSWERS = """
    SELECT a.task, a.arm, a.k, a.items, a.accuracy, c.known, c.accuracy_unknown
    FROM accuracy AS a LEFT JOIN certificates AS c USING (evaluation)
    WHERE model_digest IN (SELECT model_digest FROM accuracy WHERE model = $model) AND completed ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class ModelPush:
    """What a push of a model sent, or would send."""

    job: str
    repository: str  # OWNER/NAME
    weights: str  # licence of the weights
    texts: str  # licence of the corpus; empty: not stated
    files: tuple[tuple[str, int], ...]  # path in the repository, bytes
    pushed: Pushed | None  # None: nothing was sent


def push_model(
    store: Store,
    job: str,
    name: str,
    *,
    licence: str | None = None,
    public: bool = False,
    replace: bool = False,
    dry_run: bool = False,
) -> ModelPush:
    """Push the model of a finished training, given by its name, its folder, or its model's folder, to OWNER/NAME.

    Args:
        licence: of the weights; None: the base model's, as its README states it.
        dry_run: whether to send nothing and to ask the hub nothing.

    Raises:
        UsageError: there is no such training, its files or the licence of its weights are not to be found, there is no
            token, or the repository is another's.
        PushError: the hub could not be reached, or refused.
    """
    training = _training(store, job)
    folder = Path(training["checkpoint"])
    if not (folder / "config.json").is_file():
        raise UsageError(f"the model of {training['job']} is not at {folder} any more")
    weights = licence or weights_licence(training["model"])
    if not weights:
        raise UsageError(
            f"the licence of {training['model']} is not stated in a README.md beside it: name it with --licence"
        )
    dataset = find_dataset(store, f"{training['dataset']}@{training['version']}")
    with tempfile.TemporaryDirectory() as scratch:
        card, manifest = Path(scratch, README), Path(scratch, MANIFEST)
        card.write_text(_card(store, training, dataset, weights), encoding="utf-8", newline="\n")
        uploads = {file.name: file for file in sorted(folder.iterdir()) if file.is_file()} | {README: card}
        entries = [
            {**entry, "name": name} for name, path in uploads.items() for entry in file_entries({"": path}, None)
        ]
        head = {"manifest": 1, "program": __version__, "training": training["job"], "dataset": dataset.label}
        manifest.write_text(manifest_text({**head, "files": entries}), encoding="utf-8", newline="\n")
        uploads[MANIFEST] = manifest
        pushed = None
        if not dry_run:
            repository = look_at(name, uploads, "model", public=public, replace=replace)
            pushed = push(repository, uploads, f"{training['job']}, trained on {dataset.label}")
        sizes = tuple((path, file.stat().st_size) for path, file in uploads.items())
    return ModelPush(training["job"], name, weights, dataset.licence, sizes, pushed)


def _training(store: Store, job: str) -> dict[str, Any]:
    found = {one["job"]: one for one in trainings(store)}
    path = Path(job)
    name = path.parent.name if path.name == "model" else path.name
    if name not in found:
        raise UnknownNameError("training", name, found) if found else UsageError(f"no training in {store.root} is done")
    return found[name]


def _card(store: Store, training: dict[str, Any], dataset: Dataset, weights: str) -> str:
    base, recipe = Path(training["model"]).name, training["recipe"]
    before, after = training["base_perplexity"], training["dev_perplexity"]
    perplexity = "not measured" if after is None else f"{before:.2f} before, {after:.2f} after, tools off"
    texts = "" if training["arm"] == "toolformer" else ", the texts without their calls"
    size = f"{recipe['batch']:,} texts of at most {recipe['sequence_length']:,} tokens"
    header = {
        **licence_header(weights),
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": list(dict.fromkeys(("toolformer", "tool-use", training["arm"]))),
    }
    rows = [
        ("base model", f"{base}, digest {training['model_digest']}"),
        ("licence of the weights", weights),
        ("trained on", f"{dataset.label}{texts}"),
        ("licence of the texts", dataset.licence or "not stated"),
        ("steps", f"{training['steps']:,} of {size}"),
        ("learning rate, seed", f"{recipe['learning_rate']:g}, {recipe['seed']}"),
        ("perplexity of held-out texts", perplexity),
    ]
    return rendered(
        "model_card.md.jinja",
        header=yaml.safe_dump(header, sort_keys=False, allow_unicode=True),
        training=training,
        base=base,
        dataset=dataset,
        rows=rows,
        tools=json.dumps(list(dataset.thresholds)),
        evaluations=rows_of(store.local_folder / SNAPSHOT, _ANSWERS, {"model": training["checkpoint"]}),
        certificate_table=certificate_table,
        dataset_card=re.sub(r"(?m)^(##+ )", r"#\1", card_of(store, dataset).partition("\n")[2].strip()),
    )
