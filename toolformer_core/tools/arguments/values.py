"""One value of a call's input, read as its JSON schema says.

    one of an enum       the word, in any case if that is clear
    JSON                 if its type is allowed, and JSON would write it so: `7`, not `007` or `1.10`; where a text is
                         allowed, `null` is one
    a text               where one is allowed, as it is
    where no text is     `1,500` (commas between thousands), `.5`, `1e6`; `Yes`, `no`; `a, b` and `[a, b]` for an array

A value in quotes is a text wherever the schema allows one.
"""

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from toolformer_core.tools.schema_check import SchemaProblem, pointed

_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+|(?=\.[0-9]))(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_MAX_DIGITS = 400
_MAX_REFERENCES = 50  # followed from one schema to the next
_CALLED = {"any": "any value", "string": "text"}
_KINDS: dict[type, tuple[str, ...]] = {  # the names that schemas have for a JSON value's type
    type(None): ("null", "any"),
    bool: ("boolean", "any"),
    int: ("integer", "number", "any"),
    float: ("number", "any"),
    str: ("any",),  # in quotes; a text without them comes last
    list: ("array", "any"),
    dict: ("object", "any"),
}


class BadValue(Exception):
    """A text that is not a value of its schema; the message says what would be."""


def resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its reference followed and a sole `allOf` taken in; {} where the schema is `true`."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, Mapping):
            return {}
        if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            try:
                schema = {**pointed(reference, root), **rest}
            except (SchemaProblem, TypeError):  # it leads nowhere, or to what is no object
                schema = rest
        elif isinstance(parts := schema.get("allOf"), list) and len(parts) == 1 and isinstance(parts[0], Mapping):
            schema = {**parts[0], **{key: value for key, value in schema.items() if key != "allOf"}}
        else:
            return dict(schema)
    return {}


def value_of(text: str, schema: Any, root: Mapping[str, Any], *, quoted: bool = False, is_item: bool = False) -> Any:
    """Return the value that a text stands for, or raise `BadValue`; references are followed in `root`.

    The text stood in quotes (`quoted`), or between commas (`is_item`: an array within an array is JSON).
    """
    allowed = _alternatives(schema, root)
    kinds = {kind for kind, _ in allowed} or {"any"}
    stripped = text.strip()
    if chosen := _chosen(stripped, [option for kind, one in allowed if kind == "enum" for option in _options(one)]):
        return chosen[0]
    if quoted and "string" in kinds:
        return text
    may_be_text = not kinds.isdisjoint(("string", "any"))
    with suppress(BadValue):
        value = _exactly(stripped)
        if not kinds.isdisjoint(_KINDS[type(value)]) and not (value is None and may_be_text):
            return value
    if may_be_text:
        return text
    if "boolean" in kinds and stripped.lower() in _BOOLEANS:
        return _BOOLEANS[stripped.lower()]
    if (number := _number(stripped)) is not None and not kinds.isdisjoint(_KINDS[type(number)]):
        return number
    if "array" in kinds and not is_item:
        items = next(one for kind, one in allowed if kind == "array").get("items", True)
        return [value_of(item, items, root, is_item=True) for item in _items(stripped)]
    raise BadValue(f"{_shown(text)} is not {' or '.join(kinds_of(schema, root))}")


def kinds_of(schema: Any, root: Mapping[str, Any]) -> list[str]:
    """Return what kinds of value a schema allows, for a person: `integer`, `one of a, b`, `text`."""
    allowed = _alternatives(schema, root)
    said = [
        "one of " + ", ".join(_written(option) for option in _options(one)[:12])
        if kind == "enum"
        else _CALLED.get(kind, kind)
        for kind, one in allowed
        if kind != "null"
    ]
    return list(dict.fromkeys(said)) or ["null" if allowed else "any value"]


def _alternatives(
    schema: Any, root: Mapping[str, Any], seen: set[int] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """Return the kinds of value that a schema allows, each with its schema; no list of branches is read twice."""
    schema, seen = resolved(schema, root), set() if seen is None else seen
    if "enum" in schema or "const" in schema:
        return [("enum", schema)]
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        new = branches if id(branches) not in seen else []
        seen.add(id(branches))
        return [found for branch in new for found in _alternatives(branch, root, seen)]
    types = schema.get("type") or ("object" if "properties" in schema else "array" if "items" in schema else "any")
    return [(str(name), schema) for name in (types if isinstance(types, list) else [types])]


def _options(schema: Mapping[str, Any]) -> list[Any]:
    options = schema.get("enum")
    return list(options) if isinstance(options, list) else [schema.get("const")]


def _chosen(text: str, options: list[Any]) -> list[Any]:
    """Return the option that a text names, in a list; an empty one if it names none, or several."""
    exact = [option for option in options if _written(option) == text]
    near = exact or [option for option in options if _written(option).casefold() == text.casefold()]
    return near if len(near) == 1 else []


def _written(option: Any) -> str:
    return option if isinstance(option, str) else json.dumps(option, ensure_ascii=False)


def _number(text: str) -> int | float | None:
    """Return the number that a text writes, an integer if it is whole and not in powers of ten; None if it is none."""
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    plain = text.replace(",", "")
    with suppress(ValueError):
        return int(re.sub(r"\.0*$", "", plain))  # fails on decimals, and on thousands of digits
    return float(plain) if math.isfinite(float(plain)) else None


def _items(text: str) -> list[str]:
    if text.startswith("["):
        if not text.endswith("]") or re.search(r"[\[\]{}\"]", text[1:-1]):
            raise BadValue(f"{_shown(text)} is not JSON")
        text = text[1:-1]  # words without quotes
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _exactly(text: str) -> Any:
    """Read JSON; a number only if it would be written again as it is: `007` and `1.10` are none."""
    value = read_json(text)
    if isinstance(value, int | float) and json.dumps(value) != text:
        raise BadValue(f"{_shown(text)} is not how JSON writes {value}")
    return value


def read_json(text: str) -> Any:
    """Return the value that a text writes in JSON, or raise `BadValue`; NaN and infinite numbers are no JSON."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as exc:
        raise BadValue(f"{_shown(text)} is not JSON") from exc


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refuse(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
