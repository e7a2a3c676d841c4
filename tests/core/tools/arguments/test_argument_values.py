import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.tools.arguments.values import BadValue, kinds_of, value_of

ROOT = {"$defs": {"Unit": {"enum": ["Metre", "foot"], "type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}}}
UNIT = {"$ref": "#/$defs/Unit"}
OPTIONAL_INTEGER = {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
STRINGS = {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, " as it is ", " as it is "),
        ({"type": "boolean"}, "no", False),
        ({"enum": ["a", "A", "b"]}, "A", "A"),
        ({"enum": [1, 2.5, True, None]}, "2.5", 2.5),
        (UNIT, "metre", "Metre"),
        ({"allOf": [UNIT], "description": "x"}, "FOOT", "foot"),
        (OPTIONAL_INTEGER, "null", None),
        ({"type": ["string", "null"]}, "null", "null"),  # a text is allowed: null is a text
        ({"type": ["string", "integer"]}, "007", "007"),
        ({"type": ["string", "number"]}, "1.10", "1.10"),  # a version
        ({"anyOf": [{"type": "string"}, STRINGS]}, "Paris, France", "Paris, France"),
        ({"anyOf": [{"type": "string"}, STRINGS]}, '["Paris", "Rome"]', ["Paris", "Rome"]),
        ({}, "1e999", "1e999"),
        (STRINGS, '["a, b", "c"]', ["a, b", "c"]),
        (STRINGS, "a, b ,c", ["a", "b", "c"]),
        ({"type": "object"}, ' {"a": [1]} ', {"a": [1]}),
        (True, "5", 5),
        ({"$ref": "#/$defs/Loop"}, "5", 5),  # a circle says nothing
        ({"$ref": "#/$defs/Nowhere"}, "5", 5),
    ],
)
def test_a_text_becomes_a_value(schema: Any, text: str, value: Any) -> None:
    found = value_of(text, schema, ROOT)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("schema", "text", "says"),
    [
        ({"type": "integer"}, "3.5", "'3.5' is not integer"),
        ({"type": "integer"}, "٣", "not integer"),  # other digits
        ({"type": "number"}, "1e999", "not number"),
        ({"type": "boolean"}, "1", "not boolean"),
        ({"type": "object"}, '{"a": 1e999}', "not object"),
        ({"type": "array", "items": {"type": "integer"}}, "1, x", "'x' is not integer"),
    ],
)
def test_another_text_is_refused(schema: Any, text: str, says: str) -> None:
    with pytest.raises(BadValue, match=says):
        value_of(text, schema, ROOT)


def test_in_quotes_a_text_stays_a_text() -> None:
    assert value_of("7", {"type": ["integer", "string"]}, ROOT, quoted=True) == "7"
    assert value_of("7", {"type": "integer"}, ROOT, quoted=True) == 7
    assert value_of("7", {"enum": [7]}, ROOT, quoted=True) == 7


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_as_they_are_written(whole: int, real: float) -> None:
    if len(str(whole)) <= 400:
        assert value_of(str(whole), {"type": "integer"}, {}) == whole
        assert value_of(f"{whole:,}", {"type": "integer"}, {}) == whole
    assert value_of(repr(real), {"type": "number"}, {}) == real


@given(st.text(max_size=8) | st.from_regex(r"[-+]?[0-9.,eE]{1,8}", fullmatch=True))
def test_what_may_be_a_text_is_never_changed(text: str) -> None:
    value = value_of(text, {"type": ["boolean", "integer", "number", "string"]}, {})
    assert text.strip() == json.dumps(value) if not isinstance(value, str) else value == text


def test_alternatives_of_themselves_are_gone_through_once() -> None:
    either = {"$ref": "#/$defs/Either"}
    root = {"$defs": {"Either": {"anyOf": [either, either, {"type": "integer"}]}}}  # else 2^50 branches
    assert (value_of("7", either, root), kinds_of(either, root)) == (7, ["integer"])
