"""The rows that a page shows, as files: `format=json` gives all of its tables, `format=csv` the one named `table`."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from fastapi import Response
from pydantic_core import to_json, to_jsonable_python

from viewer.query import NotThereError, Query

FORMATS = ("csv", "json")


def exported(tables: Mapping[str, Sequence[Any]], query: Query) -> Response:
    """Return tables, whose rows are mappings or dataclasses, as `format` says; of CSV `table`, else the first."""
    name = query.choice("table", tables) or next(iter(tables), "")
    if not name:
        raise NotThereError("this page shows no table")
    if query.text("format") == "json":
        records = {name: [_record(row) for row in rows] for name, rows in tables.items()}
        return Response(to_json(records), media_type="application/json")  # what is no finite number is null
    rows: list[dict[str, Any]] = to_jsonable_python([_record(row) for row in tables[name]])
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(column for row in rows for column in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: _cell(value) for column, value in row.items()} for row in rows)
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(out.getvalue(), media_type="text/csv", headers=headers)


def _record(row: Any) -> dict[str, Any]:
    """Return a row by column; a place in a list gives a column for each of its parts."""
    if isinstance(row, Mapping):
        return dict(row)
    record: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        record |= value._asdict() if hasattr(value, "_asdict") else {field.name: value}
    return record


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
