"""What the flows' forms have in common: types whose JSON schema says more than the command line asks for.

The forms in Prefect's UI are made from the flows' pydantic models, and the API holds every run to their schema before
it is made. A form is filled in far from where its flow runs: a worker runs it in an empty folder, so paths must be
absolute, and names are chosen from a list. On the command line paths may be relative, and a slip in a name is answered
with "did you mean"; so these bounds stand in the schema alone. This file knows no flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from tasks.settings import model_key_variable, shown_url
from toolformer_core.config import TOOL_NAMES, tau_f_for
from toolformer_core.errors import ModelError
from toolformer_core.lm.served import served_model

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
# And no password, as `settings.shown_url` finds it: the API would store it.
_ROOTED_OR_URL = r"^(/|[A-Za-z][A-Za-z0-9+.-]*://(?![^/?#:@]*:(?!\d+([/?#]|$)).*@))"
_NAME = "[A-Za-z0-9_][A-Za-z0-9._-]{0,150}"  # as `warehouse.commits.check_name` has it
_KEYS = list(TOOL_NAMES)


def _text(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


def one_of(names: Iterable[str], pattern: str = "") -> WithJsonSchema:
    """Return the schema of a text that is one of some names, or matches a regular expression."""
    choice: dict[str, Any] = {"type": "string", "enum": list(names)}
    return WithJsonSchema({"anyOf": [choice, {"type": "string", "pattern": pattern}]} if pattern else choice)


def _without_password(url: str) -> str:
    if "://" in url and shown_url(url) != url:
        raise ValueError(
            f"{shown_url(url)} is given with credentials, which would be stored with the run: give them in the "
            "environment, for S3 in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return url


def _without_credentials(name: str) -> str:
    try:
        served = served_model(name)
    except ModelError as exc:
        raise ValueError(str(exc)) from None
    if served is not None and served.credentials:
        raise ValueError(
            f"{served.name} is given with credentials, which would be stored with the run: give them in the "
            f"environment, in {model_key_variable(name)}"
        )
    return name


AbsolutePath = Annotated[str, _text(_ROOTED)]
PathOrUrl = Annotated[str, AfterValidator(_without_password), _text(_ROOTED_OR_URL)]
Passages = Annotated[
    AbsolutePath | None, Field(description="Passages for wikisearch and qa: JSONL of title, section, text")
]
Phrases = Annotated[
    AbsolutePath | None, Field(description="Phrase table for mt: language, source, english, tab-separated")
]
# A folder's path from the root, a hub name, or `embedded`; of a server no credentials, which the API would store.
_SERVED = r"^(?!vllm\+[^#]*[@?])(?!vllm\+.*#.*#)(?!(?!vllm\+https?://).*://)[^.~ ]"
ModelName = Annotated[str, AfterValidator(_without_credentials), _text(_SERVED)]
DatasetName = Annotated[str, _text(f"^{_NAME}$")]
Version = Annotated[str, _text(f"^{_NAME}(@{_NAME})?$")]
Tools = Annotated[
    list[str],
    WithJsonSchema({"type": "array", "items": {"type": "string", "enum": _KEYS}, "minItems": 1, "uniqueItems": True}),
]
# One threshold, a number of nats. Should a rule such as "fdr=0.05" be taken, too, this becomes "number or text" and the
# values' type below `float | str`: under the same keys, so that what is stored stays as it is.
_THRESHOLD: dict[str, Any] = {"type": "number"}


def _without_nulls(given: Any) -> Any:
    """Leave out what is null, as Prefect's API lets every optional field be."""
    if given is None:
        return {}
    return {tool: value for tool, value in given.items() if value is not None} if isinstance(given, Mapping) else given


# The interface draws an input for each of `properties`, and one box of JSON where there are none. What another tool's
# threshold would be stands in `additionalProperties`; `propertyNames` refuses it while there are no tools but our own.
TauF = Annotated[
    dict[str, float],
    BeforeValidator(_without_nulls),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                tool: {**_THRESHOLD, "title": tool, "description": f"nats; paper: {tau_f_for(tool)}"} for tool in _KEYS
            },
            "additionalProperties": _THRESHOLD,
            "propertyNames": {"enum": _KEYS},
        },
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


# Messages do not repeat what was given: it may hold credentials.
FORM = ConfigDict(extra="forbid", json_schema_extra=_for_workers, hide_input_in_errors=True)
