"""Assumptions: every one is a line, any can be given, and what is given wrongly is answered in one line."""

from __future__ import annotations

import pytest

from flows.cost.assumptions import ASSUMED, GIVEN, MEASURED, SHARE, Assumption, Assumptions, parse
from toolformer_core.errors import UnknownNameError, UsageError

DEFAULT = Assumption("ok_share", 0.5, SHARE, ASSUMED, "nobody knows")


def test_several_are_parsed_from_one_text_or_many() -> None:
    assert parse(["a=1,b=2e3", "qa.kept_share = 0.5"]) == {"a": 1.0, "b": 2000.0, "qa.kept_share": 0.5}
    assert parse([]) == {}


@pytest.mark.parametrize("text", ["a", "a=", "a=x", "=1", "a=nan", "a=inf", ""])
def test_what_is_no_assumption_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="write name=number"):
        parse([text])


def test_no_assumption_is_negative() -> None:
    with pytest.raises(UsageError, match="a=-1: no assumption is negative"):
        parse(["a=-1"])


def test_what_is_given_replaces_the_value_and_says_what_it_replaced() -> None:
    lines = Assumptions({"mfu": 0.25})
    assert lines.add("mfu", 0.4, SHARE, ASSUMED, "a guess") == 0.25
    assert lines.add("start_s", 8.0, "s", MEASURED, "a benchmark") == 8.0
    assert lines.lines == (
        Assumption("mfu", 0.25, SHARE, GIVEN, "instead of 0.4, assumed"),
        Assumption("start_s", 8.0, "s", MEASURED, "a benchmark"),
    )


def test_the_first_value_of_a_name_counts() -> None:
    lines = Assumptions()
    assert [lines.add("a", value, "", ASSUMED, "") for value in (1.0, 2.0)] == [1.0, 1.0]
    assert len(lines.lines) == 1


def test_a_tool_has_a_line_of_its_own_only_if_it_was_measured_or_given() -> None:
    lines = Assumptions({"mt.ok_share": 0.75})
    assert lines.add_for("qa", "ok_share", None, "", DEFAULT) == 0.5
    assert lines.add_for("calculator", "ok_share", 0.25, "a sample build", DEFAULT) == 0.25
    assert lines.add_for("mt", "ok_share", 0.125, "a sample build", DEFAULT) == 0.75
    assert [(line.name, line.origin) for line in lines.lines] == [
        ("ok_share", ASSUMED),
        ("calculator.ok_share", MEASURED),
        ("mt.ok_share", GIVEN),
    ]


def test_a_shared_line_that_was_given_counts_for_measured_tools_too() -> None:
    lines = Assumptions({"ok_share": 0.9})
    assert lines.add_for("calculator", "ok_share", 0.25, "a sample build", DEFAULT) == 0.9


@pytest.mark.parametrize(
    ("value", "unit", "message"), [(1.5, SHARE, r"lies in \[0, 1\]"), (0.0, "s", "must be positive")]
)
def test_values_outside_their_bounds(value: float, unit: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Assumptions({"a": value}).add("a", 0.5, unit, ASSUMED, "", positive=True)


def test_a_name_that_has_no_place_is_answered_with_the_one_that_was_meant() -> None:
    lines = Assumptions({"calculator.kept_shar": 0.1})
    lines.add("calculator.kept_share", 0.2, SHARE, ASSUMED, "")
    with pytest.raises(UnknownNameError, match=r"Did you mean 'calculator\.kept_share'"):
        lines.check()
    allowed = Assumptions({"tflops": 900.0})
    allowed.allow("tflops")
    allowed.check()
