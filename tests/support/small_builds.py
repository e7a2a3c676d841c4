"""What the tests of this folder ask `build_dataset` for: two tools, few draws, three shards."""

from __future__ import annotations

from pathlib import Path

from flows.build_dataset.parameters import BuildParameters
from tasks.shards import arrow
from toolformer_core.records import Example
from warehouse.commits import Dataset
from warehouse.store import Store


def small_build(documents: Path, data_folder: Path, **changes: object) -> BuildParameters:
    asked = {
        "tools": ["calculator", "calendar"],
        "shard_documents": 6,
        "top_k": 3,
        "draws": 2,
        "tau_f": {"calendar": 0.2},
    }
    return BuildParameters.model_validate({"corpus": str(documents), "data": str(data_folder), **asked, **changes})


def examples_in(store: Store, dataset: Dataset) -> list[Example]:
    """Return the texts of a version of C*."""
    return [example for file in dataset.files for example in arrow.examples_of(store.read(file))]
