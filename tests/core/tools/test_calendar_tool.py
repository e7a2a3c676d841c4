from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.records import ToolFailure, ToolResponse, day_of
from toolformer_core.tools.calendar import Calendar


@pytest.mark.parametrize(
    ("context", "answer"),
    [
        ("2023-01-30", "Today is Monday, January 30, 2023."),
        ("2024-02-29", "Today is Thursday, February 29, 2024."),  # a leap day; 2024-03-01 was a Friday
        ("2000-01-01T12:00:00Z", "Today is Saturday, January 1, 2000."),
    ],
)
def test_the_date_of_the_document(context: str, answer: str) -> None:
    assert Calendar().run("", context) == ToolResponse(answer)
    assert Calendar().run(" \n", context) == ToolResponse(answer)


@pytest.mark.parametrize(
    ("text", "context", "reason"),
    [
        ("", "", "no_date"),
        ("", "2023-02-30", "no_date"),
        ("", "0000-01-01", "no_date"),
        ("", "30 January 2023", "no_date"),
        ("today", "2023-01-30", "unexpected_input"),
    ],
)
def test_failures_are_typed(text: str, context: str, reason: str) -> None:
    result = Calendar().run(text, context)
    assert isinstance(result, ToolFailure)
    assert result.reason == reason


@given(day=st.dates())
def test_the_calendar_reads_whatever_is_accepted_as_a_date(day: date) -> None:
    """Whatever a user may give passes `day_of`; 2020-W01-1 and 20200101, which name the same kind of day, do not."""
    assert day_of(day.isoformat()) == day
    assert isinstance(Calendar().run("", day_of(day.isoformat()).isoformat()), ToolResponse)
    for other in (day.strftime("%Y%m%d"), f"{day.isocalendar().year:04}-W{day.isocalendar().week:02}-1"):
        with pytest.raises(ValueError, match="is not a date like 2023-01-30"):
            day_of(other)
