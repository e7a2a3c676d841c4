"""What the tests of this folder ask `build_dataset` for: two tools, few samples, three shards."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flows.build_dataset.flow import BuildResult
from flows.build_dataset.parameters import BuildParameters
from tasks.shards import arrow
from toolformer_core.records import Example
from warehouse.commits import Dataset
from warehouse.store import Store

Built = tuple[BuildResult, Path, list[str]]  # what the fixture `built` gives: the build, its folder, its progress


def write_jsonl(path: Path, rows: Iterable[Any]) -> Path:
    """Write a JSON object a line; a text is a row of its own."""
    objects = ({"text": row} if isinstance(row, str) else row for row in rows)
    path.write_text("".join(json.dumps(one) + "\n" for one in objects), encoding="utf-8")
    return path


# 16 documents in shards of two: ingest, and for each of the eight four stages of one tool and assemble
ONE_TOOL = {"tools": ["calendar"], "shard_documents": 2, "top_k": 1, "samples": 1, "tau_f": {"calendar": -1.0}}
SHARDS_OF_ONE_TOOL = 1 + 8 * (4 + 1)


def small_build(documents: Path, data_folder: Path, **changes: object) -> BuildParameters:
    tools = ["calculator", "calendar"]
    asked = {"tools": tools, "shard_documents": 6, "top_k": 3, "samples": 2, "tau_f": {"calendar": 0.2}}
    return BuildParameters.model_validate({"corpus": str(documents), "data": str(data_folder), **asked, **changes})


def examples_in(store: Store, dataset: Dataset) -> list[Example]:
    return [example for file in dataset.files for example in arrow.examples_of(store.read(file))]


def cstar(store: Store) -> dict[str, bytes]:
    (dataset,) = store.datasets()
    return {file.path: store.files.get(file.path) or b"" for file in dataset.files}
