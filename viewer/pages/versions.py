"""The first page: the current build, the versions of C*, and the newest runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from viewer.data import ViewedData
from viewer.query import Query


def page(viewed: ViewedData, query: Query) -> Mapping[str, Any]:
    if not viewed.snapshot.is_file():
        return {"build": None, "versions": [], "runs": []}
    made = [
        {**row, "counts": _read(row["counts"]), "thresholds": _read(row["thresholds"])} for row in viewed.versions()
    ]
    runs = viewed.runs()
    tables = {"versions": made, "runs": runs}
    return {"build": viewed.build(), "versions": made, "runs": runs, "tables": tables}


def _read(column: Any) -> dict[str, float]:
    return dict(json.loads(column)) if isinstance(column, str) else dict(column or {})
