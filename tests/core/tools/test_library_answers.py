"""What the tools of the library answer, worked out by hand, and laws; what none of them takes."""

import datetime as dt
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.library import TOOLS, answer, refusal
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.library import LIBRARY
from toolformer_core.tools.library.dates import add_months, read_date
from toolformer_core.tools.library.dictionary import definitions
from toolformer_core.tools.library.readings import number_of, value_of, written
from toolformer_core.tools.library.time_zones import place_zone
from toolformer_core.tools.library.units import convert, named_units

UNITS = sorted({unit.symbol: unit for unit in named_units().values()}.values(), key=lambda unit: unit.symbol)


@pytest.mark.parametrize("key", LIBRARY)
@given(asked=st.text(max_size=40))
def test_no_input_makes_a_tool_crash(key: str, asked: str) -> None:
    result = TOOLS[key].run(asked)
    assert isinstance(result, ToolResponse) or result.reason in ("invalid_input", "no_result")


@pytest.mark.parametrize("key", LIBRARY)
def test_nothing_and_a_novel_are_no_questions(key: str) -> None:
    assert "the input is empty" in refusal(key, " \n")
    assert "1000 characters, at most 256" in refusal(key, "7" * 1000)


# Numbers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-2", Fraction(-2)),
        ("3/4", Fraction(3, 4)),
        ("-1 1/2", Fraction(-3, 2)),
        (".5", Fraction(1, 2)),
        ("twenty-five", Fraction(25)),
        ("a hundred and five", Fraction(105)),
    ],
)
def test_numbers_in_digits_and_words(text: str, value: Fraction) -> None:
    assert number_of(text) == value


@pytest.mark.parametrize("text", ["", "1,23", "1.2.3", "five six", "fifty twelve", "1 2", "x", "--1"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        number_of(text)


def test_a_sum_stands_for_a_number() -> None:
    assert value_of("10 * 2 + 1") == 21
    with pytest.raises(ValueError, match="neither a number nor an expression"):
        value_of("10 apples")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(804672, 100_000), "8.0467"),
        (Fraction(1, 3), "0.3333"),
        (Fraction(-100, 3), "-33.3333"),
        (Fraction(1, 300), "0.003333"),  # four significant digits
        (Fraction(99999995, 10**8), "1.0000"),  # 0.99999995
    ],
)
def test_how_numbers_are_written(value: Fraction, text: str) -> None:
    assert written(value) == text


@given(st.fractions(max_denominator=10**9))
def test_a_written_number_is_right_to_four_places(value: Fraction) -> None:
    assert abs(Fraction(written(value)) - value) <= Fraction(1, 20_000)


# Units


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("26.2 miles to kilometres", "42.1648 km"),  # 26.2 * 1.609344 = 42.1648128
        ("26.2 miles", "42.1648 km"),  # the usual unit of the other system
        ("98.6 °F in C", "37 °C"),  # (98.6 - 32) * 5 / 9
        ("0 K to celsius", "-273.15 °C"),
        ("5 feet 7 inches to cm", "170.18 cm"),  # 67 * 2.54
        ("30 cm to in", "11.8110 in"),  # 30 / 2.54 = 11.81102...
        ("How many feet are in a mile?", "5280 ft"),
        ("3/4 cup to ml", "177.4412 ml"),  # 0.75 * 236.5882365 = 177.441177...
    ],
)
def test_quantities_are_converted(asked: str, expected: str) -> None:
    assert answer("units", asked) == expected


@given(st.fractions(max_denominator=1000), st.sampled_from(UNITS), st.data())
def test_there_and_back_is_where_one_was(value: Fraction, source: object, data: st.DataObject) -> None:
    target = data.draw(st.sampled_from([unit for unit in UNITS if unit.kind == source.kind]))  # type: ignore[attr-defined]
    assert convert(convert(value, source, target), target, source) == value  # type: ignore[arg-type]


@given(st.sampled_from(sorted(named_units())), st.integers(1, 999))
def test_every_name_of_a_unit_is_read(name: str, number: int) -> None:
    unit = named_units()[name]
    if unit.other:
        factor = convert(Fraction(number), unit, named_units()[unit.other])
        assert answer("units", f"{number} {name}") == f"{written(factor)} {unit.other}"


# Logarithms and powers


@pytest.mark.parametrize(
    ("key", "asked", "expected"),
    [
        ("logarithm", "log2(8)", "3"),
        ("logarithm", "log(10 * 100)", "3"),
        ("logarithm", "log base 10 of 50", "1.6990"),  # 1.698970...
        ("logarithm", "ln 5", "1.6094"),  # 1.609437...
        ("logarithm", "ln e", "1"),
        ("logarithm", "log 1" + "0" * 39 + "1", "40.0000"),  # of 10^40 + 1: 40 and 4 * 10^-41
        ("power", "2^10", "1024"),
        ("power", "7 cubed", "343"),
        ("power", "(-2)^3", "-8"),
        ("power", "square root of 144", "12"),
        ("power", "sqrt(2)", "1.4142"),  # 1.414213...
        ("power", "cube root of -27", "-3"),
    ],
)
def test_logarithms_powers_and_roots(key: str, asked: str, expected: str) -> None:
    assert answer(key, asked) == expected


@given(st.integers(2, 20), st.integers(0, 60))
def test_a_logarithm_undoes_a_power(base: int, exponent: int) -> None:
    raised = answer("power", f"{base}^{exponent}")
    assert raised == str(base**exponent)
    assert answer("logarithm", f"log {raised} base {base}") == str(exponent)


@given(st.integers(0, 10**9), st.integers(2, 9))
def test_a_root_undoes_a_power(number: int, degree: int) -> None:
    assert answer("power", f"the {degree}th root of {number**degree}") == str(number)


DATES = st.dates(dt.date(1000, 1, 1), dt.date(3000, 12, 31))

# Dates


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("30 days after January 30, 2023", "Wednesday, March 1, 2023"),  # 1 day left of January, 28 of February
        ("one month after 2023-01-31", "Tuesday, February 28, 2023"),
        ("3 months before 31 May 2024", "Thursday, February 29, 2024"),  # a leap year
        ("2 years and 3 months after March 3rd, 2020", "Friday, June 3, 2022"),
        ("days between 2024-05-01 and 2024-07-01", "61 days"),  # 31 + 30
        ("months between 2024-01-15 and 2024-03-14", "1 month and 28 days"),  # from February 15: 14 + 14
        ("day of the week of February 29, 2024", "Thursday"),
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
        ("midnight in Tokyo to Los Angeles", "07:00 the day before in Los Angeles"),  # 17 hours earlier
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
    ("asked", "expected"), [("2 hours", "Sleep for 2 hours"), ("wait for an hour and a half", "Sleep for 1.5 hours")]
)
def test_pauses(asked: str, expected: str) -> None:
    assert answer("sleep", asked) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("go two steps ahead and turn left", "move forward 2 turn left"),
        ("turn right by 90 degrees", "turn right 90"),
        ("turn left 20 steps forward", "turn left move forward 20"),
    ],
)
def test_moves_of_a_robot(asked: str, expected: str) -> None:
    assert answer("robot_move", asked) == expected
    assert answer("robot_move", expected) == expected  # a sequence is read as it is written


@pytest.mark.parametrize(
    ("key", "asked", "wrong"),
    [
        ("units", "5 kg to metres", "kg is a unit of mass, m one of length"),
        ("units", "10 km to miles or feet", "it names mi and ft"),
        ("units", "3 hours and 4 litres to minutes", "there are two quantities in it"),
        ("logarithm", "log 5 base 1", "1 is no base"),
        ("power", "0^-1", "0 has no negative power"),
        ("power", "sqrt(-1)", "no root of degree 2"),
        ("power", "-2^2", "not clear what the minus belongs to"),
        ("power", "2^1000", "more than 300 digits"),
        ("date_arithmetic", "2023-02-30 + 1 day", "day is out of range for month"),
        ("date_arithmetic", "1/2/2023 + 3 days", "write e.g. 30 days after"),  # read in two ways
        ("date_arithmetic", "today + 3 days", "today's date is not known"),
        ("date_arithmetic", "9999 years after 2023-01-01", "out of range"),
        ("time_zone", "10:00 in Atlantis to Rome", "no city, country or time zone 'Atlantis'"),
        ("time_zone", "7:15 in Germany to United States", "United States has several time zones; name a city"),
        ("time_zone", "25:00 in Rome to Paris", "hour must be in 0..23"),
        ("time_zone", "10:00 in ../../etc/passwd to Rome", "is known"),
        ("sleep", "for a while", "does not say how long"),
        ("robot_move", "dance", "'dance' is no move"),
        ("robot_move", "move forward 5000", "is no number of steps"),
    ],
)
def test_what_has_no_answer_is_refused_with_a_reason(key: str, asked: str, wrong: str) -> None:
    assert wrong in refusal(key, asked)
