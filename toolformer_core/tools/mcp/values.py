"""One value of a call's input, read as its JSON schema says.

    integer, number    `12`, `-3.5`, `1,500` (commas between thousands), `1e6`
    boolean            `true`, `false`, `yes`, `no`, in any case
    enum               one of the words, in any case if that is clear
    array              JSON (`["a", "b"]`), or items with commas between them, in brackets or not: `a, b`
    object             JSON
    null               `null`, where no text is allowed
    string             the text as it is
    nothing said       JSON if it is JSON, else the text

Where a schema allows several types, the first of this list (null first) that fits the text is taken, and text last. So
that no text is changed, what may be a text is another value only if JSON would write it so: `7`, not `007` or `yes`. A
value in quotes is a text wherever the schema allows one. References within the schema are followed, none out of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_INTEGER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.0*)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+|(?=\.[0-9]))(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_ORDER = ("enum", "null", "boolean", "integer", "number", "array", "object", "any", "string")
_MAX_DIGITS = 400
_MAX_REFERENCES = 50  # followed from one schema to the next
_TYPES: dict[str, Any] = {"boolean": bool, "integer": int, "number": (int, float), "array": list}
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


def value_of(text: str, schema: Any, root: Mapping[str, Any], *, quoted: bool = False, is_item: bool = False) -> Any:
    """Return the value that a text stands for.

    Args:
        text: the text; only texts keep the spaces at its ends.
        schema: the value's schema.
        root: the schema in which references are followed.
        quoted: the text stood in quotes.
        is_item: the text stood between commas; an array within an array is JSON.

    Raises:
        BadValue: the text stands for no value of the schema.
    """
    kinds = _alternatives(schema, root) or [("any", {})]
    order = ("enum", "string", *_ORDER) if quoted else _ORDER
    may_be_text = any(named in ("string", "any") for named, _ in kinds)
    problem = ""
    for kind in order:
        for candidate in (candidate for named, candidate in kinds if named == kind):
            if kind == "null" and may_be_text:
                continue
            try:
                if kind in _TYPES and (may_be_text or (is_item and kind == "array")):
                    return _as_json(kind, text.strip())
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


def _alternatives(
    schema: Any, root: Mapping[str, Any], seen: set[int] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """Return the kinds of value that a schema allows, each with the schema that says more of it.

    Branches that lead back into themselves allow nothing new: each list of them is gone through once (`seen`).
    """
    schema, seen = resolved(schema, root), set() if seen is None else seen
    if "enum" in schema or "const" in schema:
        return [("enum", schema)]
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        new = branches if id(branches) not in seen else []
        seen.add(id(branches))
        return [found for branch in new for found in _alternatives(branch, root, seen)]
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
            value = read_json(stripped)
            if isinstance(value, dict):
                return value
            raise BadValue(f"{_shown(text)} is not a JSON object")
        case "any":
            try:
                return _exactly(stripped)
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
            value = read_json(text)
        except BadValue:
            if not text.endswith("]") or re.search(r"[\[\]{}\"]", text[1:-1]):
                raise
            text = text[1:-1]  # words without quotes
        else:
            if isinstance(value, list):
                return value
    items = [item.strip() for item in text.split(",")] if text.strip() else []
    return [value_of(item, schema.get("items", True), root, is_item=True) for item in items]


def _as_json(kind: str, text: str) -> Any:
    value = _exactly(text)
    if isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)):
        return value
    raise BadValue(f"{_shown(text)} is not {kind} in JSON")


def _exactly(text: str) -> Any:
    """Read JSON; a number only if it would be written again as it is: `007` and `1.10` are none."""
    value = read_json(text)
    if isinstance(value, int | float) and json.dumps(value) != text:
        raise BadValue(f"{_shown(text)} is not how JSON writes {value}")
    return value


def read_json(text: str) -> Any:
    """Return the value that a text writes in JSON.

    Raises:
        BadValue: it is not JSON; NaN and numbers that are infinite as floats are not.
    """
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
