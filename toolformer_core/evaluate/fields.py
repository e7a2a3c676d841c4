"""Values out of a row: the first of several names a benchmark's releases use, checked for being what they should be."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any

from toolformer_core.evaluate.items import BadRowError, Row

__all__ = ["optional", "text_of", "texts_in"]


def optional(row: Row, *names: str) -> Any:
    """Return the first of the values that is there and not None."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def text_of(row: Row, *names: str) -> str:
    """Return the first of the values, stripped.

    Raises:
        BadRowError: `no_<name>`: there is none, it is no text, or blank; named after the first name.
    """
    value = optional(row, *names)
    if not isinstance(value, str):
        found = "missing" if value is None else f"a {type(value).__name__}"
        raise BadRowError(f"no_{names[0]}", f"{' or '.join(names)} is {found}; the row has {', '.join(row)}"[:200])
    if not value.strip():
        raise BadRowError(f"no_{names[0]}", f"{names[0]} is blank")
    return value.strip()


def texts_in(value: Any) -> list[str]:
    """Return the texts in a value: a text, a list of texts, or such a list as text (JSON, or as Python prints it)."""
    if isinstance(value, str):
        listed = _list_in(value)
        return [value] if listed is None else [v for v in listed if isinstance(v, str)]
    if isinstance(value, list | tuple):
        return [v for v in value if isinstance(v, str)]
    return []


def _list_in(text: str) -> list[Any] | None:
    """Return the list that a text writes down; None if it writes none."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of backslashes in a list as Python prints it
        for read in (json.loads, ast.literal_eval):  # literals alone: no expression is evaluated
            try:
                value = read(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(value, list):
                return value
    return None
