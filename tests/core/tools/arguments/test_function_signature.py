"""Tools of functions with annotations: what an input gives them, and which functions are refused."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from toolformer_core import tool
from toolformer_core.errors import UsageError
from toolformer_core.records import ToolFailure, ToolResponse


class Unit(Enum):
    MILE = "mi"
    METRE = "m"


@dataclass
class Point:
    x: int
    y: int = 0


class Opaque: ...


@tool
def convert(amount: float, unit: Unit, to: str = "m", *, context: str = "2020") -> str:
    return f"{amount * 1609.344:.1f} {type(unit).__name__} {to} {context}"


@tool
def kinds(
    whole: Annotated[int, Field(ge=1)] = 1,
    days: list[datetime.date] = [],  # noqa: B006
    place: Point | None = None,
    mode: Literal["fast", 7] = "fast",
    sure: bool = False,
) -> str:
    return repr((whole, days, place, mode, sure))


@pytest.mark.parametrize(
    ("asked", "text", "response"),
    [
        (convert, "amount=3, unit=mi", "4828.0 Unit m 1999"),  # 3 * 1609.344 = 4828.032
        (convert, 'to="km, or so", unit=mi, amount=1,500', "2414016.0 Unit km, or so 1999"),  # 1500 * 1609.344
        (kinds, "", "(1, [], None, 'fast', False)"),
        (kinds, "whole=2, mode=7, sure=yes", "(2, [], None, 7, True)"),
        (kinds, 'days=2023-01-30, place={"x": 1}', "(1, [datetime.date(2023, 1, 30)], Point(x=1, y=0), 'fast', False)"),
        (tool(lambda number=None: str(number)), "3, 4", "3, 4"),  # without an annotation: the input as it is
    ],
)
def test_a_function_gets_the_values_that_its_annotations_ask_for(asked: Any, text: str, response: str) -> None:
    assert asked.run(text, "1999") == ToolResponse(response)


@pytest.mark.parametrize(
    ("asked", "text", "says"),
    [
        (convert, "amount=many, unit=mi", "amount: 'many' is not number"),
        (convert, "amount=3", "unit is missing: write amount=..., unit=..."),
        (convert, "amount=3, unit=mi, context=2023", "there is no argument 'context'; there are amount, unit, to"),
        (kinds, "whole=0", "whole: 0 is less than the minimum of 1"),
        (kinds, "days=2023-02-30", "days: Input should be a valid date in the format YYYY-MM-DD, day value is outside"),
    ],
)
def test_values_of_another_type_are_a_failure(asked: Any, text: str, says: str) -> None:
    failure = asked.run(text)
    assert isinstance(failure, ToolFailure)
    assert (failure.reason, failure.retryable) == ("invalid_input", False)
    assert says in failure.detail


def test_one_argument_and_none() -> None:
    @tool
    def twice(number: int) -> str:
        return str(2 * number)

    @tool
    def now(context: str) -> str:
        return context

    @tool
    def dated(context: str, text: str) -> str:
        return f"{text} {context}"

    assert (twice.run("21"), now.run(" ", "2020-01-01")) == (ToolResponse("42"), ToolResponse("2020-01-01"))
    assert dated.run("a, b", "2020-01-01") == ToolResponse("a, b 2020-01-01")
    assert twice.run("x") == ToolFailure("invalid_input", "number: 'x' is not integer")
    assert now.run("x") == ToolFailure("invalid_input", "the tool takes no arguments: leave the input empty")


def _untyped(text, date): ...
def _opaque(a: int, b: Opaque): ...
def _callable(a: int, b: Callable[[int], int]): ...
def _absent(a: int, b: Absent): ...  # type: ignore[name-defined]  # noqa: F821
def _starred(*inputs: str): ...
def _positional(a: int, b: int, /): ...
def _context(text, context: int): ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (_untyped, "_untyped: `text` needs an annotation, e.g. `text: str`; a tool's context goes to a parameter"),
        (_opaque, "_opaque: the argument `b` cannot be of test_function_signature.Opaque, which has no JSON schema"),
        (_callable, r"_callable: the argument `b` cannot be of collections.abc.Callable\[\[int\], int\], which has"),
        (_absent, "_absent: its annotations cannot be read: NameError: name 'Absent' is not defined"),
        (_starred, r"_starred: `\*inputs: .*` cannot be given by name; write out each argument"),
        (_context, "_context: `context` is no argument of a call: write `context: str`"),
    ],
)
def test_a_function_that_no_input_can_call_is_refused_in_one_line(function: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        tool(function)
    assert "\n" not in str(caught.value)


def test_types_that_another_file_may_define_are_part_of_the_fingerprint() -> None:
    def f(amount: int, unit: Unit) -> str:
        return unit.value

    before = tool(f).fingerprint
    assert tool(f).fingerprint == before
    f.__annotations__["unit"] = Literal["km"]  # as if the file that defines Unit had changed
    assert tool(f).fingerprint != before
