"""One value of a call's input, read as its JSON schema says.

    integer, number    `12`, `-3.5`, `1,500` (commas between thousands), `1e6`
    boolean            `true`, `false`, `yes`, `no`, in any case
    enum               one of the words, in any case if that is clear
    array              JSON (`["a", "b"]`), or items with commas between them, in brackets or not: `a, b`
    object             JSON
    null               `null`, where no text is allowed
    string             the text as it is
    nothing said       JSON if it is JSON, else the text

Where a schema allows several types, the first of this list (null first) that fits the text is taken, and text last. A
value in quotes is a text wherever the schema allows one. References within the schema are followed, none out of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["BadValue", "kinds_of", "resolved", "value_of"]

_INTEGER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.0*)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+|(?=\.[0-9]))(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_ORDER = ("enum", "null", "boolean", "integer", "number", "array", "object", "any", "string")
_MAX_DIGITS = 400
_MAX_REFERENCES = 50  # followed from one schema to the next
_CALLED = {"any": "any value", "string": "text", "null": "null"}


class BadValue(Exception):
    """A text that is not a value of its schema; the message says what would be."""


def resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its reference followed and a sole `allOf` taken in; {} where the schema is `true`."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, Mapping):
            return {}
        if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**_pointed(reference, root), **rest}
        elif isinstance(parts := schema.get("allOf"), list) and len(parts) == 1 and isinstance(parts[0], Mapping):
            rest = {key: value for key, value in schema.items() if key != "allOf"}
            schema = {**parts[0], **rest}
        else:
            return dict(schema)
    return {}


def _pointed(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    target: Any = root
    for part in reference[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        target = target.get(part) if isinstance(target, Mapping) else None
    return target if isinstance(target, Mapping) else {}


def value_of(text: str, schema: Any, root: Mapping[str, Any], *, quoted: bool = False) -> Any:
    """Return the value that a text stands for.

    Args:
        text: the text; only texts keep the spaces at its ends.
        schema: the value's schema.
        root: the schema in which references are followed.
        quoted: the text stood in quotes.

    Raises:
        BadValue: the text stands for no value of the schema.
    """
    kinds = _alternatives(schema, root)
    order = ("enum", "string", *_ORDER) if quoted else _ORDER
    problem = ""
    for kind in order:
        for candidate in (candidate for named, candidate in kinds if named == kind):
            if kind == "null" and any(named in ("string", "any") for named, _ in kinds):
                continue
            try:
                return _read(kind, text, candidate, root)
            except BadValue as exc:
                problem = problem or str(exc)
    expected = " or ".join(kinds_of(schema, root))
    raise BadValue(problem if len(kinds) == 1 else f"{_shown(text)} is not {expected}")


def kinds_of(schema: Any, root: Mapping[str, Any]) -> list[str]:
    """Return what kinds of value a schema allows, for a person: `integer`, `one of a, b`, `text`."""
    said = []
    for kind, candidate in _alternatives(schema, root):
        if kind == "enum":
            said.append("one of " + ", ".join(_written(option) for option in _options(candidate)[:12]))
        elif kind != "null":
            said.append(_CALLED.get(kind, kind))
    return list(dict.fromkeys(said)) or ["any value"]


def _alternatives(schema: Any, root: Mapping[str, Any], depth: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """Return the kinds of value that a schema allows, each with the schema that says more of it."""
    schema = resolved(schema, root)
    if "enum" in schema or "const" in schema:
        return [("enum", schema)]
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list) and depth < _MAX_REFERENCES:
        return [found for branch in branches for found in _alternatives(branch, root, depth + 1)]
    types = schema.get("type")
    names = [types] if isinstance(types, str) else types if isinstance(types, list) else []
    if not names:
        names = ["object" if "properties" in schema else "array" if "items" in schema else "any"]
    return [(str(name), schema) for name in names]


def _options(schema: Mapping[str, Any]) -> list[Any]:
    options = schema.get("enum")
    return list(options) if isinstance(options, list) else [schema.get("const")]


def _read(kind: str, text: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    stripped = text.strip()
    match kind:
        case "string":
            return text
        case "enum":
            return _option(stripped, _options(schema))
        case "null" if stripped.lower() == "null":
            return None
        case "boolean" if stripped.lower() in _BOOLEANS:
            return _BOOLEANS[stripped.lower()]
        case "integer" if _INTEGER.fullmatch(stripped) and len(stripped) <= _MAX_DIGITS:
            return int(stripped.partition(".")[0].replace(",", ""))
        case "number" if _NUMBER.fullmatch(stripped) and len(stripped) <= _MAX_DIGITS:
            return _number(stripped)
        case "array":
            return _array(stripped, schema, root)
        case "object":
            value = _json(stripped)
            if isinstance(value, dict):
                return value
            raise BadValue(f"{_shown(text)} is not a JSON object")
        case "any":
            try:
                return _json(stripped)
            except BadValue:
                return text
    raise BadValue(f"{_shown(text)} is not {'an' if kind[:1] in 'aeiou' else 'a'} {kind}")


def _option(text: str, options: list[Any]) -> Any:
    exact = [option for option in options if _written(option) == text]
    near = exact or [option for option in options if _written(option).casefold() == text.casefold()]
    if len(near) == 1:
        return near[0]
    raise BadValue(f"{_shown(text)} is not one of {', '.join(_written(option) for option in options[:30])}")


def _written(option: Any) -> str:
    return option if isinstance(option, str) else json.dumps(option, ensure_ascii=False)


def _number(text: str) -> int | float:
    plain = text.replace(",", "")
    if re.fullmatch("[+-]?[0-9]+", plain):
        return int(plain)
    value = float(plain)
    if value in (float("inf"), float("-inf")):
        raise BadValue(f"{_shown(text)} is too large a number")
    return value


def _array(text: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Any]:
    if text.startswith("["):
        try:
            value = _json(text)
        except BadValue:
            if not text.endswith("]") or re.search(r"[\[\]{}\"]", text[1:-1]):
                raise
            text = text[1:-1]  # words without quotes
        else:
            if isinstance(value, list):
                return value
    items = [item.strip() for item in text.split(",")] if text.strip() else []
    return [value_of(item, schema.get("items", True), root) for item in items]


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        raise BadValue(f"{_shown(text)} is not JSON") from exc


def _refuse(constant: str) -> Any:
    raise ValueError(constant)  # NaN and Infinity are no JSON


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
