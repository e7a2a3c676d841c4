"""Taking a dataset away: as text, as JSONL, or as a folder that Hugging Face `datasets` reads.

It reads the dataset's own files, whose digests are checked, and writes beside its target first: what is there at the
end is whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.translate import examples_of
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.records import Example
from warehouse.commits import Dataset
from warehouse.store import Store

__all__ = ["export_dataset", "find_dataset"]

_HF_ROWS = 10_000  # per Arrow batch


def find_dataset(store: Store, name: str) -> Dataset:
    """Return a dataset by `name` (its newest version) or `name@version` (which may be shortened).

    Raises:
        UnknownNameError: there is none of that name.
        UsageError: it has no such version.
    """
    found = store.datasets()
    plain, _, version = name.partition("@")
    versions = [d for d in found if d.name == plain]
    if not versions:
        raise UnknownNameError("dataset", plain, {d.name for d in found})
    chosen = [d for d in versions if d.version.startswith(version)]
    if not chosen:
        raise UsageError(
            f"dataset {plain!r} has no version {version!r}; it has: {', '.join(d.version for d in versions)}"
        )
    return chosen[-1]


def export_dataset(store: Store, name: str, format_: str, out: Path) -> int:
    """Write a dataset and return how many examples it has.

    Args:
        format_: `text` (x* one after another, a blank line between), `jsonl` (doc_id, text and calls with their spans,
            by which the plain text is recovered), or `hf` (a folder for `datasets.load_from_disk`).
        out: the file or folder to write.

    Raises:
        UsageError: `out` exists, or the dataset does not.
    """
    dataset = find_dataset(store, name)
    if out.exists():
        raise UsageError(f"{out} exists already; name another, or remove it first")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    examples = (example for file in dataset.files for example in examples_of(store.read(file)))
    if format_ == "hf":
        shutil.rmtree(partial, ignore_errors=True)
        written = _write_hf(examples, partial, dataset)
    else:
        written = _write_lines(examples, partial, format_)
    partial.rename(out)
    return written


def _write_lines(examples: Iterator[Example], path: Path, format_: str) -> int:
    written = 0
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for example in examples:
            if format_ == "text":
                stream.write(("\n" if written else "") + example.text + "\n")
            else:
                calls = [
                    {name: getattr(call, name) for name in call.__slots__}  # InsertedCall is flat
                    for call in example.calls
                ]
                row = {"doc_id": example.doc_id, "text": example.text, "calls": calls}
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            written += 1
    return written


def _write_hf(examples: Iterator[Example], folder: Path, dataset: Dataset) -> int:
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
