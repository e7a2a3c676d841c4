"""Reads values from a row: the first of several names used by a benchmark's releases, with a check of the type."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any

from toolformer_core.evaluate.items import BadRowError, BenchmarkRow


def optional(row: BenchmarkRow, *names: str) -> Any:
    """Return the first of the values that exists and is not None."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def text_of(row: BenchmarkRow, *names: str) -> str:
    """Return the first of the values, stripped.

    Raises:
        BadRowError: `no_<first name>`: there is no value, it is not text, or it is blank.
    """
    value = optional(row, *names)
    if not isinstance(value, str):
        kind = "missing" if value is None else f"a {type(value).__name__}"
        raise BadRowError(f"no_{names[0]}", f"{' or '.join(names)} is {kind}; the row has {', '.join(row)}"[:200])
    if not value.strip():
        raise BadRowError(f"no_{names[0]}", f"{names[0]} is blank")
    return value.strip()


def texts_in(value: Any) -> list[str]:
    """Return the texts in a value: a text, a list of texts, or such a list written as text (JSON or Python syntax)."""
    if isinstance(value, str):
        listed = _list_in(value)
        return [value] if listed is None else [v for v in listed if isinstance(v, str)]
    if isinstance(value, list | tuple):
        return [v for v in value if isinstance(v, str)]
    return []


def _list_in(text: str) -> list[Any] | None:
    """Return the list written in a text; None if it is not a list."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about backslashes in Python literals
        for read in (json.loads, ast.literal_eval):  # only literals: no expression is evaluated
            try:
                value = read(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(value, list):
                return value
    return None
