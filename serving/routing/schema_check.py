"""Checks JSON schemas that clients send, and what is to fit them, without trusting either.

A schema is another's text that the server computes with, so three things are bounded: how much it comes to when its
references are followed, how long a regular expression may search, and that no reference leaves the schema. This module
knows no tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import regex

__all__ = ["SchemaProblem", "checker", "without_patterns"]

MAX_NODES = 20_000  # objects and lists of a schema, each counted as often as references lead to it
MAX_DEPTH = 100
_MAX_PATTERN_CHARS = 1_000
_PATTERN_S = 0.1  # for one search of a regular expression
_PATTERN_KEYWORDS = ("pattern", "patternProperties")
_MAX_PROBLEM_CHARS = 300

Check = Callable[[Any], str]


class SchemaProblem(Exception):
    """A schema that cannot be used; its text says why."""


def checker(schema: Mapping[str, Any]) -> Check:
    """Return a function that says what a schema finds wrong with a value; "" if nothing.

    Raises:
        SchemaProblem: it is no JSON schema, it is too large, or a reference leads nowhere or out of it.
    """
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.exceptions import UnknownType, best_match
    from jsonschema.validators import extend, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    _check_size(schema)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema, format_checker=_patterns_only())
    except SchemaError as exc:
        where = ".".join(map(str, exc.path))
        raise SchemaProblem(f"{where}: {exc.message}"[:_MAX_PROBLEM_CHARS] if where else exc.message) from exc
    bounded = extend(kind, {"pattern": _pattern, "patternProperties": _pattern_properties})
    validator = bounded(schema, registry=Registry())  # no schema is fetched from anywhere

    def check(value: Any) -> str:
        try:
            error = best_match(validator.iter_errors(value))
        except (Unresolvable, UnknownType, RecursionError, TimeoutError, regex.error) as exc:
            return f"the schema cannot be applied: {type(exc).__name__}: {exc}"[:_MAX_PROBLEM_CHARS]
        if error is None:
            return ""
        where = ".".join(map(str, error.path))
        return (f"{where}: {error.message}" if where else str(error.message))[:_MAX_PROBLEM_CHARS]

    return check


def _patterns_only() -> Any:
    """Return what checks the formats of a schema: its regular expressions, as they will be searched."""
    from jsonschema import FormatChecker

    def is_pattern(value: Any) -> bool:
        return not isinstance(value, str) or (len(value) <= _MAX_PATTERN_CHARS and regex.compile(value) is not None)

    formats = FormatChecker(formats=())
    formats.checks("regex", raises=regex.error)(is_pattern)
    return formats


def without_patterns(schema: Any) -> Any:
    """Return a schema without its regular expressions, to be used where searching them is not bounded.

    A property that is called `pattern` stays.
    """
    return _without_patterns(schema, names=False)


def _without_patterns(node: Any, *, names: bool) -> Any:
    """Copy a schema; with `names` the node's keys are names of properties, not keywords."""
    if isinstance(node, list):
        return [_without_patterns(item, names=False) for item in node]
    if not isinstance(node, Mapping):
        return node
    return {
        key: value
        if not names and key in ("enum", "const", "default", "examples")
        else _without_patterns(value, names=not names and key in ("properties", "$defs", "definitions"))
        for key, value in node.items()
        if names or key not in _PATTERN_KEYWORDS
    }


def _check_size(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that comes to too much, or whose references leave it; a reference into itself counts once."""
    sizes: dict[str, int] = {}

    def size(node: Any, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise SchemaProblem(f"it is nested more than {MAX_DEPTH} deep")
        if isinstance(node, Mapping):
            total = 1 + sum(size(value, depth + 1) for value in node.values())
            for keyword in ("$ref", "$dynamicRef"):
                if isinstance(reference := node.get(keyword), str):
                    total += referred(reference, depth)
        elif isinstance(node, list):
            total = 1 + sum(size(value, depth + 1) for value in node)
        else:
            return 0
        if total > MAX_NODES:
            raise SchemaProblem("it comes to too much; use fewer references and alternatives")
        return total

    def referred(reference: str, depth: int) -> int:
        if not reference.startswith("#"):
            raise SchemaProblem(f"the reference {reference[:80]!r} leaves the schema; only '#...' is followed")
        if reference not in sizes:
            sizes[reference] = 0  # while it is being counted: a reference into itself
            sizes[reference] = size(_pointed(reference, schema), depth + 1)
        return sizes[reference]

    size(schema, 0)


def _pointed(reference: str, root: Any) -> Any:
    target = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        elif isinstance(target, Mapping) and name in target:
            target = target[name]
        else:
            raise SchemaProblem(f"the reference {reference[:80]!r} leads nowhere")
    if reference not in ("#", "") and "/" not in reference:
        raise SchemaProblem(f"the reference {reference[:80]!r} names an anchor; write it as a path: '#/$defs/...'")
    return target


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(instance, "string") and not regex.search(pattern, instance, timeout=_PATTERN_S):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "object"):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if regex.search(pattern, name, timeout=_PATTERN_S):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)
