"""The card and the manifest of an export; neither says when it was made, so that it gives the same bytes again."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from flows.export.settings import ExportSettings
from flows.report.markdown import rendered
from flows.report.tables import counted
from toolformer_core import __version__
from toolformer_core.lm.load import LoadedTokenizer
from toolformer_core.lm.reference import EMBEDDED
from warehouse.commits import Dataset
from warehouse.store import Store

_VERSION = 1  # of the manifest's form
_SPLITS = {"train": "train", "dev": "validation"}  # as the hub names them
# Identifiers of the hub for licences that corpora commonly have; any other is stated by its name.
_LICENCES = (
    *("apache-2.0", "mit", "odc-by", "cc0-1.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "gfdl"),
    *("cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "odbl", "pddl", "unlicense"),
)
_SIZES = (("n<1K", 1_000), ("1K<n<10K", 10_000), ("10K<n<100K", 100_000), ("100K<n<1M", 1_000_000))
_ROWS = {
    "text": "Plain text: the examples, each followed by a line {separator!r}.",
    "jsonl": "JSON lines of `doc_id`, `text` and `calls` with their spans in the text, [start, end).",
    "hf": "A folder for `datasets.load_from_disk`, with the columns `doc_id` and `text`.",
    "tokens": "JSON lines of `input_ids`, `attention_mask` and `labels`; -100 stands where nothing is trained.",
    "segments": "JSON lines of `segments`, each with a `label` (whether it is trained) and a `text`.",
    "openai": "JSON lines of `messages` and `tools` (a JSON string).",
    "sharegpt": "JSON lines of `conversations` and `tools` (a JSON string), as LLaMA-Factory reads them.",
    "chat text": "JSON lines of `text`: conversations, rendered with the tokenizer's chat template.",
}


@dataclass(slots=True)
class Written:
    read: int = 0
    rows: Counter[str] = field(default_factory=Counter)  # by split
    left_out: Counter[str] = field(default_factory=Counter)  # by reason
    counts: Counter[str] = field(default_factory=Counter)  # what is trained and what is masked
    calls: Counter[str] = field(default_factory=Counter)  # by tool, in the rows


def file_entries(paths: Mapping[str, Path], written: Written | None) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for split, path in paths.items():
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            has_rows = not (path.is_dir() and file.suffix == ".json")  # those of a folder say what it holds
            rows = {"split": split, "rows": written.rows[split]} if written is not None and has_rows else {}
            name = file.relative_to(path.parent).as_posix()
            entries.append({"name": name, **rows, "bytes": file.stat().st_size, "sha256": sha256_of(file)})
    return entries


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def requested_of(dataset: Dataset, settings: ExportSettings, tokenizer: LoadedTokenizer | None) -> dict[str, Any]:
    """Return the part of the manifest that says what was asked for; the same gives the same files."""
    named, chat = None, dict[str, Any]()
    if tokenizer is not None:
        name = settings.tokenizer or ""
        shown = Path(name).name if Path(name).expanduser().is_dir() else name
        named = {"name": shown, "digest": tokenizer.digest, "start": tokenizer.start, "end": tokenizer.end}
    if settings.spoken is not None:
        requests = {"first": settings.requests.first, "next": settings.requests.next}
        chat = {"dialect": settings.spoken, "arguments": settings.argument_form, "requests": requests}
    of_dataset = {name: getattr(dataset, name) for name in ("name", "version", "made", "model", "licence")}
    return {
        "manifest": _VERSION,
        "program": __version__,
        "dataset": {**of_dataset, "weights_licence": weights_licence(dataset.model), "thresholds": dataset.thresholds},
        "format": settings.format,
        **({"separator": settings.ending} if settings.format == "text" else {}),
        **chat,
        "tokenizer": named,
        "dev": {"share": settings.dev, "seed": settings.seed} if settings.dev else None,
    }


def manifest_of(
    requested: Mapping[str, Any], written: Written, files: list[dict[str, Any]], notes: Sequence[str]
) -> dict[str, Any]:
    """Return the manifest: what was requested (see `requested_of`), and what came of it."""
    return {
        **requested,
        "examples": {
            "read": written.read,
            "train": written.rows["train"],
            "dev": written.rows["dev"],
            "left_out": dict(sorted(written.left_out.items())),
        },
        "calls": dict(sorted(written.calls.items())),
        "counts": dict(written.counts),
        "notes": list(notes),
        "files": files,
    }


def manifest_text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"


def card_text(store: Store, dataset: Dataset, settings: ExportSettings, manifest: Mapping[str, Any]) -> str:
    """Return the card of an export: the hub's header, the export, its limits, and the dataset's own card."""
    from flows.build_dataset.versions import card_of  # imports Prefect

    header = yaml.safe_dump(_header(dataset, settings, manifest), sort_keys=False, allow_unicode=True)
    title, _, rest = card_of(store, dataset).partition("\n")
    what = {None: settings.format, "text": "chat text"}.get(settings.spoken, str(settings.spoken))
    rows = _ROWS[what].format(separator=settings.ending)
    card = rendered(
        "export_card.md.jinja",
        header=header,
        title=title,
        rows=rows,
        settings=settings,
        manifest=manifest,
        counted=counted,
    )
    return card + re.sub(r"(?m)^(##+ )", r"#\1", rest)


def _header(dataset: Dataset, settings: ExportSettings, manifest: Mapping[str, Any]) -> dict[str, Any]:
    rows = manifest["examples"]["train"] + manifest["examples"]["dev"]
    header: dict[str, Any] = {
        "pretty_name": f"{dataset.name}@{dataset.version}",
        **licence_header(dataset.licence),
        "annotations_creators": ["machine-generated"],
        "task_categories": ["text-generation"],
        "tags": ["toolformer", "tool-use", "function-calling"],
        "size_categories": [next((size for size, below in _SIZES if rows < below), "n>1M")],
    }
    if settings.format != "hf":  # which is read by `load_from_disk`
        files = [{"split": _SPLITS[file["split"]], "path": file["name"]} for file in manifest["files"]]
        header["configs"] = [{"config_name": "default", "data_files": files}]
    return header


def licence_header(stated: str) -> dict[str, str]:
    """Return the licence as the hub's header has it: one of its identifiers, else by name."""
    plain = "-".join(stated.lower().split())
    if not plain:
        return {"license": "unknown"}
    return {"license": plain} if plain in _LICENCES else {"license": "other", "license_name": " ".join(stated.split())}


def weights_licence(model: str) -> str:
    """Return the licence that the README.md of a model's folder states in its header; "" if it states none."""
    if model == EMBEDDED:
        return "apache-2.0"
    try:
        header = re.match(r"---\n(.*?)\n---\n", Path(model, "README.md").read_text(encoding="utf-8"), re.DOTALL)
        stated = yaml.safe_load(header[1]) if header else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return ""
    return str(stated.get("license_name") or stated.get("license") or "") if isinstance(stated, dict) else ""
