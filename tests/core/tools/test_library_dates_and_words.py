"""What the tools of dates, time zones, words, pauses and moves answer: values worked out by hand, and laws."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.library import TOOLS, answer, refusal
from toolformer_core.records import ToolFailure
from toolformer_core.tools.library.dates import add_months, read_date
from toolformer_core.tools.library.dictionary import definitions
from toolformer_core.tools.library.time_zones import place_zone

DATES = st.dates(dt.date(1000, 1, 1), dt.date(3000, 12, 31))

# Dates


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("30 days after January 30, 2023", "Wednesday, March 1, 2023"),  # 1 day left of January, 28 of February
        ("3 weeks before 1 May 2024", "Wednesday, April 10, 2024"),
        ("one month after 2023-01-31", "Tuesday, February 28, 2023"),
        ("3 months before 31 May 2024", "Thursday, February 29, 2024"),  # a leap year
        ("2 years and 3 months after March 3rd, 2020", "Friday, June 3, 2022"),
        ("days between 2024-05-01 and 2024-07-01", "61 days"),  # 31 + 30
        ("from July 1, 2024 to May 1, 2024", "61 days"),
        ("weeks between 2023-01-30 and 2023-03-01", "4 weeks and 2 days"),
        ("months between 2024-01-15 and 2024-03-14", "1 month and 28 days"),  # from February 15: 14 + 14
        ("years between 1990-05-01 and 2024-04-30", "33 years and 365 days"),  # 2023-05-01 to 2024-04-30
        ("day of the week of February 29, 2024", "Thursday"),
        ("what day of the week is 4 July 2026", "Saturday"),
        ("today + 3 days", "Sunday, June 15, 2025"),
        ("day of the week of yesterday", "Wednesday"),
    ],
)
def test_dates(asked: str, expected: str) -> None:
    assert answer("date_arithmetic", asked, "2025-06-12") == expected


@given(DATES, st.integers(0, 20_000))
def test_days_after_and_before_undo_each_other(day: dt.date, count: int) -> None:
    later = answer("date_arithmetic", f"{count} days after {day}").partition(", ")[2]
    assert read_date(answer("date_arithmetic", f"{count} days before {later}").partition(", ")[2]) == day
    assert read_date(later) - day == dt.timedelta(days=count)
    assert answer("date_arithmetic", f"days between {day} and {later}").split()[0] == str(count)


@given(DATES, st.integers(-500, 500))
def test_months_later_is_the_same_day_or_the_months_last(day: dt.date, months: int) -> None:
    moved = add_months(day, months)
    assert (moved.year - day.year) * 12 + moved.month - day.month == months
    assert moved.day == day.day or (moved + dt.timedelta(days=1)).day == 1


# Time zones


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("3:30 PM in New York to Tokyo", "5:30 AM the next day in Tokyo"),  # -5 to +9: 14 hours later
        ("If it is 3 PM in Boston, what time is it in Berlin?", "9:00 PM in Berlin"),
        ("noon in London to New York", "07:00 in New York"),
        ("midnight in Tokyo to Los Angeles", "07:00 the day before in Los Angeles"),  # 17 hours earlier
        ("10 am in Delhi to Japan", "1:30 PM in Japan"),  # +5:30 to +9
        ("23:30 UTC to UTC+2", "01:30 the next day in UTC+2"),
        ("15:00 CET to EST", "09:00 in EST"),
        ("2024-07-01 12:00 New York to London", "17:00 in London"),  # summer time: -4 to +1
        ("12:00 on 2024-03-20 in New York to London", "16:00 in London"),  # the three weeks in which only one has it
    ],
)
def test_time_zones(asked: str, expected: str) -> None:
    assert answer("time_zone", asked) == expected


@given(
    st.dates(dt.date(2015, 1, 1), dt.date(2025, 12, 31)),
    st.times().map(lambda t: t.replace(second=0, microsecond=0)),
    st.sampled_from(["Europe/Paris", "America/New_York", "Asia/Kolkata", "Australia/Sydney", "America/Sao_Paulo"]),
    st.sampled_from(["Tokyo", "London", "Chicago", "Cairo", "Auckland"]),
)
def test_a_dated_time_is_that_of_the_same_moment(day: dt.date, clock: dt.time, source: str, target: str) -> None:
    zone = place_zone(target)
    there = dt.datetime.combine(day, clock, ZoneInfo(source)).astimezone(zone)
    days = {-1: " the day before", 0: "", 1: " the next day"}[(there.date() - day).days]
    assert answer("time_zone", f"{day} {clock:%H:%M} {source} to {target}") == f"{there:%H:%M}{days} in {target}"


# Words, pauses, robots


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ("lantern", "lantern"),
        ("What does lantern mean?", "lantern"),
        ('the meaning of "weary"', "weary"),
        ("ferries", "ferry"),
        ("vanished", "vanish"),
    ],
)
def test_words_are_defined(asked: str, word: str) -> None:
    part, meaning = definitions()[word]
    assert answer("dictionary", asked) == f"{word} ({part}): {meaning}"


def test_the_dictionary() -> None:
    assert len(definitions()) >= 150
    assert {part for part, _ in definitions().values()} == {"noun", "verb", "adjective"}
    assert len({meaning for _, meaning in definitions().values()}) == len(definitions())
    for word, (_, meaning) in definitions().items():
        assert word not in meaning.split()  # it would explain nothing
    assert TOOLS["dictionary"].run("xyzzy") == ToolFailure("no_result")
    assert "ask for one word" in refusal("dictionary", "two words")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("2 hours", "Sleep for 2 hours"),
        ("wait for an hour and a half", "Sleep for 1.5 hours"),
        ("two and a half hours", "Sleep for 2.5 hours"),
        ("half an hour", "Sleep for 0.5 hours"),
        ("5 min 30 s", "Sleep for 5 minutes 30 seconds"),
        ("one second", "Sleep for 1 second"),
    ],
)
def test_pauses(asked: str, expected: str) -> None:
    assert answer("sleep", asked) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("go two steps ahead and turn left", "move forward 2 turn left"),
        ("forward 2, turn left, forward 1", "move forward 2 turn left move forward 1"),
        ("move 3 steps backward then 2 steps forward", "move backward 3 move forward 2"),
        ("back up by three steps", "move backward 3"),
        ("turn right by 90 degrees", "turn right 90"),
        ("turn left 20 steps forward", "turn left move forward 20"),
        ("Robot, please turn around.", "turn around"),
    ],
)
def test_moves_of_a_robot(asked: str, expected: str) -> None:
    assert answer("robot_move", asked) == expected
    assert answer("robot_move", expected) == expected  # a sequence is read as it is written


@pytest.mark.parametrize(
    ("key", "asked", "wrong"),
    [
        ("date_arithmetic", "2023-02-30 + 1 day", "day is out of range for month"),
        ("date_arithmetic", "1/2/2023 + 3 days", "write e.g. 30 days after"),  # read in two ways
        ("date_arithmetic", "today + 3 days", "today's date is not known"),
        ("date_arithmetic", "9999 years after 2023-01-01", "out of range"),
        ("date_arithmetic", "half a year after 2023-01-01", "give a whole number"),
        ("time_zone", "10:00 in Atlantis to Rome", "no city, country or time zone 'Atlantis'"),
        ("time_zone", "7:15 in Germany to United States", "United States has several time zones; name a city"),
        ("time_zone", "25:00 in Rome to Paris", "hour must be in 0..23"),
        ("time_zone", "13 pm in Rome to Paris", "there is no 13 pm"),
        ("time_zone", "Rome to Paris", "write e.g. 3:30 PM"),
        ("time_zone", "2024-02-30 10:00 Rome to Paris", "day is out of range"),
        ("time_zone", "10:00 in ../../etc/passwd to Rome", "is known"),
        ("sleep", "for a while", "does not say how long"),
        ("sleep", "0 hours", "is no time to sleep"),
        ("robot_move", "dance", "'dance' is no move"),
        ("robot_move", "move forward 5000", "is no number of steps"),
    ],
)
def test_what_has_no_answer_is_refused_with_a_reason(key: str, asked: str, wrong: str) -> None:
    assert wrong in refusal(key, asked)
