"""Exports a dataset as text, as JSONL, or as a folder that Hugging Face `datasets` reads.

It reads the dataset's files and checks their digests. It writes to a temporary name beside the target and renames it,
so the target is complete or absent.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.arrow import examples_of
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.records import Example
from warehouse.commits import Dataset
from warehouse.store import Store

__all__ = ["SEPARATOR", "export_dataset", "find_dataset"]

SEPARATOR = "<|endoftext|>"  # the end of a document for GPT-2, GPT-Neo, GPT-J and Pythia
_HF_ROWS = 10_000  # per Arrow batch


def find_dataset(store: Store, name: str) -> Dataset:
    """Return a dataset by `name`, `name@version` or `name@version-made` (the last two may be shortened).

    Of several matches, return the one that was made last, or made again in the same way last.

    Raises:
        UnknownNameError: there is no dataset of that name.
        UsageError: it has no such version, or there are no datasets.
    """
    datasets = store.datasets()
    if not datasets:
        raise UsageError(f"there is no dataset in {store.root} yet: run the same toolformer build to its end")
    plain, _, version = name.partition("@")
    versions = [d for d in datasets if d.name == plain]
    if not versions:
        raise UnknownNameError("dataset", plain, {d.name for d in datasets})
    matches = [d for d in versions if d.id.startswith(version)]
    if not matches:
        raise UsageError(f"dataset {plain!r} has no version {version!r}; it has: {', '.join(d.id for d in versions)}")
    if len(matches) == 1:
        return matches[0]
    contents = {d.version for d in matches}
    if version and len(contents) > 1:
        raise UsageError(f"{name} may be any of {', '.join(sorted(contents))}: write more of it")
    last_made: dict[str, str] = {}
    for run in store.runs():  # oldest first
        last_made[run.dataset] = run.finished or run.started
    return max(matches, key=lambda d: (last_made.get(d.key, d.created), d.created))


def export_dataset(store: Store, name: str, format_: str, out: Path, separator: str = SEPARATOR) -> int:
    """Export a dataset; return the number of examples.

    Args:
        format_: `text` (x* one after another, each followed by a line that holds the separator), `jsonl` (doc_id, text
            and calls with their spans, by which the plain text is recovered), or `hf` (a folder for
            `datasets.load_from_disk`).
        out: the file or folder to write.
        separator: for the format `text` only.

    Raises:
        UsageError: `out` exists or cannot be written, the dataset does not exist, or a text holds the separator.
        CorruptDataError: a file of the dataset is damaged or missing.
    """
    dataset = find_dataset(store, name)
    if out.exists():
        raise UsageError(f"{out} exists already; name another, or remove it first")
    partial = out.with_name(out.name + ".partial")
    examples = (example for table in store.read_dataset(dataset) for example in examples_of(table))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)  # left by a killed export
        writers: dict[str, Callable[[], int]] = {
            "text": lambda: _write_text(examples, partial, separator),
            "jsonl": lambda: _write_jsonl(examples, partial),
            "hf": lambda: _write_hf(examples, partial, dataset),
        }
        written = writers[format_]()
        partial.rename(out)
    except OSError as exc:
        raise UsageError(f"{out} cannot be written: {exc.strerror or exc}") from exc
    return written


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write_text(examples: Iterable[Example], path: Path, separator: str) -> int:
    end = f"\n{separator}\n"
    if not separator.strip() or separator.splitlines() != [separator]:
        raise UsageError("--separator: give one line that is not blank")

    def pieces() -> Iterator[str]:
        for example in examples:
            if end in f"\n{example.text}\n":
                path.unlink(missing_ok=True)
                raise UsageError(
                    f"document {example.doc_id} holds a line {separator!r} itself: choose another --separator, "
                    "or --format jsonl"
                )
            yield example.text + end

    return _write_pieces(path, pieces())


def _write_jsonl(examples: Iterable[Example], path: Path) -> int:
    rows = (
        {
            "doc_id": example.doc_id,
            "text": example.text,
            "calls": [{name: getattr(call, name) for name in call.__slots__} for call in example.calls],
        }
        for example in examples
    )
    return _write_pieces(path, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _write_pieces(path: Path, pieces: Iterable[str]) -> int:
    written = 0
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for piece in pieces:
            stream.write(piece)
            written += 1
    return written


def _write_hf(examples: Iterable[Example], folder: Path, dataset: Dataset) -> int:
    """Write the layout of `save_to_disk`: one Arrow stream, `dataset_info.json`, `state.json`."""
    folder.mkdir(parents=True)
    schema = pa.schema([("doc_id", pa.string()), ("text", pa.string())])
    written = 0
    with pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
        batch: list[dict[str, str]] = []
        for example in examples:
            batch.append({"doc_id": example.doc_id, "text": example.text})
            written += 1
            if len(batch) == _HF_ROWS:
                stream.write_batch(pa.RecordBatch.from_pylist(batch, schema))
                batch = []
        if batch:
            stream.write_batch(pa.RecordBatch.from_pylist(batch, schema))
    text = {"dtype": "string", "_type": "Value"}
    info = {
        "citation": "",
        "description": f"C* {dataset.name}@{dataset.version}, annotated by {dataset.model}",
        "features": {"doc_id": text, "text": text},
        "homepage": "",
        "license": dataset.licence,
    }
    state: dict[str, Any] = {
        "_data_files": [{"filename": "data-00000-of-00001.arrow"}],
        "_fingerprint": dataset.version,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (folder / "dataset_info.json").write_text(json.dumps(info, indent=2), encoding="utf-8")
    (folder / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
    return written
