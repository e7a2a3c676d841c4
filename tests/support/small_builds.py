"""What the tests of this folder ask `build_dataset` for: two tools, few draws, three shards."""

from __future__ import annotations

from pathlib import Path

from flows.build_dataset.parameters import BuildParameters


def small_build(documents: Path, data_folder: Path, **changes: object) -> BuildParameters:
    asked = {
        "tools": ["calculator", "calendar"],
        "shard_documents": 6,
        "top_k": 3,
        "draws": 2,
        "tau_f": {"calendar": 0.2},
    }
    return BuildParameters.model_validate({"corpus": str(documents), "data": str(data_folder), **asked, **changes})
