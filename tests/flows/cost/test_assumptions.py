"""Assumptions: every one is a line, any can be given, and what is given wrongly is answered in one line."""

import pytest

from flows.cost.assumptions import Assumption, Assumptions, parse
from toolformer_core.errors import UnknownNameError, UsageError


def test_several_are_parsed_from_one_text_or_many() -> None:
    assert parse(["a=1,b=2e3", "qa.kept_share = 0.5"]) == {"a": 1.0, "b": 2000.0, "qa.kept_share": 0.5}
    assert parse([]) == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "write name=number") for text in ("a", "a=", "a=x", "=1", "a=nan", "a=inf", "")),
        ("a=-1", "a=-1: no assumption is negative"),
    ],
)
def test_what_is_no_assumption_is_told_how_to_write_one(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse([text])


def test_what_is_given_replaces_the_value_and_says_what_it_replaced() -> None:
    lines = Assumptions({"mfu": 0.25})
    assert lines.add(Assumption("mfu", 0.4, "share", "assumed", "a guess")) == 0.25
    assert lines.add(Assumption("steps", 8.0, "s", "measured", "a benchmark")) == 8.0
    assert lines.add(Assumption("steps", 9.0, "s", "measured", "a benchmark")) == 8.0  # the first one counts
    assert tuple(lines.lines.values()) == (
        Assumption("mfu", 0.25, "share", "given", "instead of 0.4, assumed"),
        Assumption("steps", 8.0, "s", "measured", "a benchmark"),
    )


def test_a_tool_has_a_line_of_its_own_only_if_it_was_measured_or_given() -> None:
    lines = Assumptions({"mt.ok_share": 0.75})
    assert lines.of_tool("qa", "ok_share", None, "") == 0.5
    assert lines.of_tool("calculator", "ok_share", 0.25, "a sample build") == 0.25
    assert lines.of_tool("mt", "ok_share", 0.125, "a sample build") == 0.75
    assert [(line.name, line.origin) for line in lines.lines.values()] == [
        ("ok_share", "assumed"),
        ("calculator.ok_share", "measured"),
        ("mt.ok_share", "given"),
    ]
    # a shared line that was given counts for measured tools, too
    assert Assumptions({"ok_share": 0.9}).of_tool("calculator", "ok_share", 0.25, "a sample build") == 0.9


def test_values_outside_their_bounds_and_names_without_a_place_are_refused() -> None:
    lines = Assumptions({"ok_share": 1.5})
    with pytest.raises(UsageError, match=r"ok_share is a share and lies in \[0, 1\], got 1.5"):
        lines.single("ok_share")
    with pytest.raises(UnknownNameError, match="Did you mean 'ok_share'"):
        Assumptions({"oc_share": 0.1}).check()
