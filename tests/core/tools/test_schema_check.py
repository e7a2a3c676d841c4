"""Schemas that others wrote: patterns are searched in bounded time, and numbers are compared as decimals."""

import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.tools.schema_check import SchemaProblem, checker, lenient_checker

NESTED = "^(a+)+$"  # with backtracking, 2^26 ways through 26 letters: seconds, and twice as many for each letter more
LETTERS = "a" * 26 + "!"


@pytest.mark.parametrize(
    ("schema", "value", "says"),
    [
        ({"pattern": NESTED}, LETTERS, "does not match"),
        ({"patternProperties": {NESTED: {}}, "additionalProperties": False}, {LETTERS: 1}, ""),
        ({"patternProperties": {NESTED: {}}, "unevaluatedProperties": False}, {LETTERS: 1}, ""),
        ({"pattern": "a{99999999}"}, "aab", ""),  # too large for the linear engine, and for memory elsewhere
        ({"pattern": NESTED}, "a" * 10_001 + "!", ""),  # too long to be searched
        ({"pattern": "^(?!b)(a+)+$"}, LETTERS, ""),  # look-around is not checked
    ],
)
def test_a_pattern_costs_no_more_than_a_second(schema: dict[str, Any], value: Any, says: str) -> None:
    started = time.thread_time()
    assert says in (problem := checker(schema)(value))
    assert bool(says) == bool(problem)
    assert time.thread_time() - started < 1


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^[a-z]+$", "abc\n", False),  # as in ECMA-262, `$` is the very end
        (r"^\d{4}-\d{2}$", "2020-12", True),
        (r"^\p{L}+$", "Zoë", True),
    ],
)
def test_patterns_mean_what_json_schema_says(pattern: str, text: str, matches: bool) -> None:
    assert (checker({"pattern": pattern})(text) == "") is matches


@pytest.mark.parametrize(
    ("step", "value", "fits"),
    [(0.01, 0.07, True), (0.01, 0.075, False), (0.1, 0.3, True), (3, 9, True), (3, 10, False), (1e-7, 3e-7, True)],
)
def test_a_multiple_is_one_in_decimal_numbers(step: float, value: float, fits: bool) -> None:
    assert (checker({"multipleOf": step})(value) == "") is fits  # 0.07 / 0.01 is 7.000000000000001 in floats


@given(st.integers(-(10**6), 10**6), st.sampled_from(["0.01", "0.001", "0.25", "7"]))
def test_every_multiple_of_a_decimal_step_is_one(times: int, step: str) -> None:
    assert checker({"multipleOf": float(step)})(float(times * Decimal(step))) == ""


def test_a_schema_that_cannot_be_used_says_why_or_checks_nothing() -> None:
    for schema in ({"pattern": "("}, {"$ref": "https://example.org/schema"}, {"type": 5}):
        with pytest.raises(SchemaProblem):
            checker(schema)
        assert lenient_checker(schema)("x") == ""
