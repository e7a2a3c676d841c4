"""Checks JSON schemas that clients and MCP servers send, and what is to fit them, without trusting either.

Python's `re` and `regex` can take for ever over a pattern of ten characters, so patterns are matched by the linear
engine of pydantic; one with look-around or back-references is not checked.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

MAX_NODES = 20_000  # objects and lists of a schema, each counted as often as references lead to it
MAX_DEPTH = 100
_MAX_PATTERN_CHARS = 1_000
_MAX_MATCHED_CHARS = 10_000  # of a text: the worst pattern takes 3 s for them
_PATTERNS_S = 1.0  # for all patterns of one check; those that are left then count as matched
_MAX_PROBLEM_CHARS = 300

Check = Callable[[Any], str]


class SchemaProblem(Exception):
    """A schema that cannot be used; its text says why."""


def checker(schema: Mapping[str, Any]) -> Check:
    """Return what says what a schema finds wrong with a value ("": nothing); `SchemaProblem` if it cannot be used."""
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
        raise SchemaProblem(_located(exc)) from exc
    search = _Search()
    validator = extend(kind, _keywords(schema, search))(schema, registry=Registry())  # no schema is fetched

    def check(value: Any) -> str:
        search.until = time.monotonic() + _PATTERNS_S
        try:
            error = best_match(validator.iter_errors(value))
        except (Unresolvable, UnknownType, RecursionError) as exc:
            return f"the schema cannot be applied: {type(exc).__name__}: {exc}"[:_MAX_PROBLEM_CHARS]
        return "" if error is None else _located(error)

    return check


def _located(error: Any) -> str:
    where = ".".join(map(str, error.path))
    return f"{where}: {error.message}"[:_MAX_PROBLEM_CHARS] if where else str(error.message)[:_MAX_PROBLEM_CHARS]


def lenient_checker(schema: Mapping[str, Any]) -> Check:
    """Return what `checker` does; a schema that cannot be used checks nothing, and the server then has its say."""
    try:
        return checker(schema)
    except (SchemaProblem, RecursionError):
        return lambda value: ""


def _patterns_only() -> Any:
    from jsonschema import FormatChecker

    def is_pattern(value: Any) -> bool:
        return not isinstance(value, str) or (
            len(value) <= _MAX_PATTERN_CHARS and (_matcher(value) is not None or re.compile(value) is not None)
        )

    formats = FormatChecker(formats=())
    formats.checks("regex", raises=(re.error, RecursionError, OverflowError))(is_pattern)
    return formats


@lru_cache(maxsize=32)  # each takes 10 MB at most
def _matcher(pattern: str) -> Any:
    """Return what matches a pattern in linear time; None if that cannot be done."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:
        return None


class _Search:
    """Whether a pattern occurs in a text; True where that cannot be found out within bounds."""

    until = 0.0  # on the monotonic clock

    def __call__(self, pattern: str, text: str) -> bool:
        if len(text) > _MAX_MATCHED_CHARS or time.monotonic() > self.until:
            return True
        matcher = _matcher(pattern)
        return matcher is None or matcher.isinstance_python(text)


def _keywords(schema: Mapping[str, Any], search: _Search) -> dict[str, Any]:
    """Return the keywords that are checked here, or not at all: with patterns, and `multipleOf`, in decimal numbers."""
    from jsonschema import ValidationError

    def pattern(validator: Any, wanted: str, instance: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, "string") and not search(wanted, instance):
            yield ValidationError(f"{instance!r} does not match {wanted!r}")

    def multiple_of(validator: Any, step: float, instance: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, "number") and Fraction(str(instance)) % Fraction(str(step)):
            yield ValidationError(f"{instance!r} is not a multiple of {step}")

    keywords: dict[str, Any] = {"pattern": pattern, "multipleOf": multiple_of}
    if "patternProperties" in str(schema):  # jsonschema would search names by its patterns without a bound
        keywords |= dict.fromkeys(("patternProperties", "additionalProperties", "unevaluatedProperties"), lambda *_: ())
    return keywords


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
            sizes[reference] = size(pointed(reference, schema), depth + 1)
        return sizes[reference]

    size(schema, 0)


def pointed(reference: str, root: Any) -> Any:
    """Return what a reference within a schema leads to; a `SchemaProblem` if nowhere."""
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
