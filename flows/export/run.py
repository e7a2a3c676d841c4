"""The export of a dataset: its rows, a dev split, the card and the manifest, all of them or none.

They are written into a folder `cstar.jsonl.partial` and then renamed, `cstar.jsonl` last: where it is, all of it is.
The same export gives the same bytes, so a push that failed is repeated without writing them again.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

from flows.build_dataset.record import BuildRecord
from flows.export.card import Written, card_text, file_entries, manifest_of, manifest_text, requested_of, sha256_of
from flows.export.find import find_dataset
from flows.export.formats import Maker, maker_of, sink_of
from flows.export.settings import ExportSettings, Format
from flows.report.tables import counted
from tasks.shards.arrow import examples_of
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import ToolformerError, UsageError
from toolformer_core.export.conversation import LeftOut
from toolformer_core.export.schemas import ToolSchema, schema_of
from toolformer_core.finetune.texts import held_out_share
from toolformer_core.lm.load import LoadedTokenizer, load_tokenizer
from toolformer_core.records import Example
from toolformer_core.tools.base import Tool
from warehouse.commits import Dataset
from warehouse.store import Store

__all__ = ["ExportResult", "OnProgress", "Places", "Pushed", "batches_of", "export_dataset", "export_to"]

_BATCH = 256  # examples that are tokenized together

OnProgress = Callable[[int, int], None]  # examples read so far, and in all


class Places(NamedTuple):
    """Where the parts of an export lie: for `cstar.jsonl` also `cstar.dev.jsonl`, `cstar.manifest.json`, ..."""

    train: Path
    dev: Path
    manifest: Path
    card: Path

    @classmethod
    def of(cls, out: Path) -> Self:
        endings = (f"dev{out.suffix}", "manifest.json", "card.md")
        return cls(out, *(out.with_name(f"{out.stem}.{ending}") for ending in endings))


@dataclass(frozen=True, slots=True)
class Pushed:
    """What was pushed, and where to."""

    repository: str  # OWNER/NAME
    url: str
    commit: str
    private: bool
    created: bool  # it was missing


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export wrote."""

    dataset: str  # name@version-made
    out: Path
    files: tuple[Path, ...]  # the rows of each split, the manifest, the card
    examples: int  # rows
    dev: int  # of them in the dev split
    left_out: dict[str, int]  # reason -> examples without a row
    counts: dict[str, int]  # of tokens or characters, how many are trained and how many masked; of chats, turns, calls
    notes: tuple[str, ...]
    manifest: dict[str, Any]
    pushed: Pushed | None = None


def export_dataset(store: Store, name: str, format_: Format, out: Path, separator: str | None = None) -> int:
    """Export a dataset with the defaults of a format; return the number of examples. See `export_to`."""
    return export_to(store, name, out, ExportSettings(format_, separator if format_ == "text" else None)).examples


def export_to(
    store: Store, name: str, out: Path, settings: ExportSettings, on_progress: OnProgress | None = None
) -> ExportResult:
    """Export a dataset to a file or folder `out`, with what comes with it beside; see `deliver` for `on_progress`.

    Raises:
        UsageError: something of it exists already or cannot be written, the dataset does not exist, no example can be
            exported, a text holds the separator, or the tokenizer cannot be used.
        CorruptDataError: a file of the dataset is damaged or missing.
    """
    dataset = find_dataset(store, name)
    _check_free(out)  # first: `.` has no name to which others belong
    places = Places.of(out)
    for path in places[1:] if settings.dev else places[2:]:
        _check_free(path)
    prepared = prepare(store, dataset, settings)
    partial = out.with_name(out.name + ".partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)  # left by a killed export
        partial.mkdir()
        try:
            return _write(store, dataset, settings, prepared, places, partial, on_progress)
        finally:
            _remove(partial)
    except OSError as exc:
        raise UsageError(f"{out} cannot be written: {exc.strerror or exc}") from exc


def _check_free(path: Path) -> None:
    if path.exists():
        raise UsageError(f"{path} exists already; name another, or remove it first")


class Prepared(NamedTuple):
    make: Maker
    tokenizer: LoadedTokenizer | None
    notes: tuple[str, ...]


def prepare(store: Store, dataset: Dataset, settings: ExportSettings) -> Prepared:
    """Return what an export needs besides the examples, so that a mistake is found before anything is written."""
    tokenizer = load_tokenizer(settings.tokenizer) if settings.tokenizer else None
    schemas, notes = schemas_of(store, dataset) if settings.format == "chat" else ({}, [])
    differ = len({one.argument for one in schemas.values()}) > 1 or any(one.form for one in schemas.values())
    if settings.spoken == "openai" and settings.argument_form == "dict" and differ:
        notes.append(
            "calls may have different arguments: Arrow fills the dicts with nulls; load the file with "
            'on_mixed_types="use_json", or export with --arguments json'
        )
    return Prepared(maker_of(settings, tokenizer, schemas), tokenizer, tuple(notes))


def schemas_of(store: Store, dataset: Dataset) -> tuple[dict[str, ToolSchema], list[str]]:
    """Return the schemas of a dataset's tools by their names in calls, and notes on those that are only named."""
    from toolformer_core.tools.build import build_tools  # imports the libraries of all tools

    record = BuildRecord.of_run(store, dataset.run_id)
    names = {**TOOL_NAMES, **record.tool_names}
    keys = list(dict.fromkeys((*dataset.thresholds, *dataset.counts)))
    wanted = [*(key for key in keys if key in TOOL_NAMES), *(name for name in record.tools if name not in TOOL_NAMES)]
    built: dict[str, Tool] = {}
    problems: list[str] = []
    for name in wanted:
        try:
            built |= build_tools([name])
        except ToolformerError as exc:
            problems.append(str(exc))
    why = f" ({'; '.join(problems)})" if problems else ""
    schemas, notes = {}, []
    for key in keys:
        name = names.get(key, key)
        is_built = key in built and built[key].name == name
        schemas[name] = schema_of(built[key]) if is_built else ToolSchema(name)
        if not is_built:
            notes.append(f"the schema of {name} has no description, because the tool could not be built here{why}")
    return schemas, notes


def batches_of(store: Store, dataset: Dataset) -> Iterator[list[Example]]:
    examples = (example for table in store.read_dataset(dataset) for example in examples_of(table))
    while batch := list(islice(examples, _BATCH)):
        yield batch


def _write(
    store: Store,
    dataset: Dataset,
    settings: ExportSettings,
    prepared: Prepared,
    places: Places,
    partial: Path,
    on_progress: OnProgress | None,
) -> ExportResult:
    held, splits = frozenset[str](), {"train": partial / places.train.name}
    if settings.dev:
        ids = (doc_id for table in store.read_dataset(dataset, ["doc_id"]) for doc_id in table["doc_id"].to_pylist())
        held = held_out_share(ids, settings.dev, settings.seed)
        splits["dev"] = partial / places.dev.name
    with ExitStack() as stack:
        sinks = {split: stack.enter_context(sink_of(settings, path, dataset, split)) for split, path in splits.items()}
        written, total = Written(), sum(file.rows for file in dataset.files)
        for batch in batches_of(store, dataset):
            for example, row in zip(batch, prepared.make(batch), strict=True):
                split = "dev" if example.doc_id in held else "train"
                if isinstance(row, LeftOut):
                    written.left_out[row.reason] += 1
                else:
                    sinks[split](row.content)
                    written.rows[split] += 1
                    written.counts.update(row.counts)
                    written.calls.update(call.tool for call in example.calls)
            written.read += len(batch)
            if on_progress is not None:
                on_progress(written.read, total)
    notes = list(prepared.notes)
    if written.read and not written.rows["train"]:
        if written.rows["dev"]:
            raise UsageError(f"all that can be exported of {dataset.label} falls into the dev split: leave out --dev")
        left_out = counted(dict(sorted(written.left_out.items())))
        raise UsageError(f"no example of {dataset.label} can be exported: of {written.read:,} left out: {left_out}")
    if "dev" in splits and not written.rows["dev"]:  # an empty file cannot be loaded
        _remove(splits.pop("dev"))
        notes.append("there is no dev split: none of its documents has a row")
    files = file_entries(splits, written)
    manifest = manifest_of(requested_of(dataset, settings, prepared.tokenizer), written, files, notes)
    card = partial / places.card.name
    card.write_text(card_text(store, dataset, settings, manifest), encoding="utf-8", newline="\n")
    manifest["files"] += file_entries({"card": card}, None)
    (partial / places.manifest.name).write_text(manifest_text(manifest), encoding="utf-8", newline="\n")
    parts = [place for place in places if (partial / place.name).exists()]
    with ExitStack() as undo:
        for place in reversed(parts):
            (partial / place.name).rename(place)
            undo.callback(_remove, place)
        undo.pop_all()
    return _result(dataset, parts, manifest)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def written_earlier(store: Store, name: str, out: Path, settings: ExportSettings) -> ExportResult | None:
    """Return the export that lies at `out`, None if nothing does; a UsageError says that something else lies there."""
    if not out.exists():
        return None
    dataset = find_dataset(store, name)
    places = Places.of(out)
    tokenizer = load_tokenizer(settings.tokenizer) if settings.tokenizer else None
    wanted = requested_of(dataset, settings, tokenizer)
    try:
        manifest = dict(json.loads(places.manifest.read_text(encoding="utf-8")))
        same = all(manifest.get(key) == value for key, value in wanted.items()) and all(
            sha256_of(out.parent / file["name"]) == file["sha256"] for file in manifest["files"]
        )
    except (OSError, ValueError, TypeError):
        same = False
    if not same:
        raise UsageError(f"{out} exists already, and is not this export; name another, or remove it first")
    return _result(dataset, list(filter(Path.exists, places)), manifest)


def _result(dataset: Dataset, paths: Sequence[Path], manifest: dict[str, Any]) -> ExportResult:
    return ExportResult(
        dataset=dataset.label,
        out=paths[0],
        files=tuple(paths),
        examples=manifest["examples"]["train"] + manifest["examples"]["dev"],
        dev=manifest["examples"]["dev"],
        left_out=manifest["examples"]["left_out"],
        counts=manifest["counts"],
        notes=tuple(manifest["notes"]),
        manifest=manifest,
    )
