"""What the flows' forms have in common: types whose JSON schema says more than the command line asks for.

The forms in Prefect's UI are made from the flows' pydantic models, and the API holds every run to their schema before
it is made. A form is filled in far from where its flow runs: a worker runs it in an empty folder, so paths must be
absolute, and names are chosen from a list. On the command line paths may be relative, and a slip in a name is answered
with "did you mean"; so these bounds stand in the schema alone. This file knows no flow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema

from toolformer_core.config import TOOL_NAMES

__all__ = [
    "FORM",
    "AbsolutePath",
    "DatasetName",
    "ModelName",
    "Passages",
    "PathOrUrl",
    "Phrases",
    "TauF",
    "Tools",
    "Version",
    "one_of",
]

_ROOTED = "^/"
_ROOTED_OR_URL = "^(/|[A-Za-z][A-Za-z0-9+.-]*://)"
_NAME = "[A-Za-z0-9_][A-Za-z0-9._-]{0,150}"  # as `warehouse.commits.check_name` has it
_KEYS = list(TOOL_NAMES)


def _text(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


def one_of(names: Iterable[str], pattern: str = "") -> WithJsonSchema:
    """Return the schema of a text that is one of some names, or matches a regular expression."""
    choice: dict[str, Any] = {"type": "string", "enum": list(names)}
    return WithJsonSchema({"anyOf": [choice, {"type": "string", "pattern": pattern}]} if pattern else choice)


AbsolutePath = Annotated[str, _text(_ROOTED)]
PathOrUrl = Annotated[str, _text(_ROOTED_OR_URL)]
Passages = Annotated[
    AbsolutePath | None, Field(description="Passages for wikisearch and qa: JSONL of title, section, text")
]
Phrases = Annotated[
    AbsolutePath | None, Field(description="Phrase table for mt: language, source, english, tab-separated")
]
ModelName = Annotated[str, _text("^[^.~ ]")]  # a folder's path from the root, a hub name, or `embedded`
DatasetName = Annotated[str, _text(f"^{_NAME}$")]
Version = Annotated[str, _text(f"^{_NAME}(@{_NAME})?$")]
Tools = Annotated[
    list[str],
    WithJsonSchema({"type": "array", "items": {"type": "string", "enum": _KEYS}, "minItems": 1, "uniqueItems": True}),
]
TauF = Annotated[
    dict[str, float],
    WithJsonSchema(
        {"type": "object", "propertyNames": {"enum": _KEYS}, "additionalProperties": {"type": "number"}},
    ),
]


def _for_workers(schema: dict[str, Any]) -> None:
    """Say which paths must be absolute, and ask for `data`: its default is relative to a folder no worker has."""
    for field in schema["properties"].values():
        kinds = field.get("anyOf", [field])
        if any(kind.get("pattern") in (_ROOTED, _ROOTED_OR_URL) for kind in kinds):
            field["description"] += " (absolute, as the worker sees it)"
    schema["properties"]["data"].pop("default")
    schema["required"] = sorted({*schema.get("required", ()), "data"})


FORM = ConfigDict(extra="forbid", json_schema_extra=_for_workers)
