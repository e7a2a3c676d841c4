"""Dateset (App. D): questions that can only be answered if the current date is known; generated here from a seed.

It draws 500 current dates, each with a past and a future date within four years of it. The paper gives templates and
sizes; the rest is our choice. The forms of a template share its size evenly, and each uses current dates in a shuffled
order, without repeats. Only complete weeks, months and years count, so N and every count are whole; N is at least 1. No
row goes back by months or years to a day that does not exist (one month before May 31). The holidays are the ten
federal ones that exist in every drawn year (Juneteenth is one only since 2021), each the day itself, not the substitute
day off; no row counts to or from a holiday on the day itself.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from itertools import islice

import numpy as np

from toolformer_core.evaluate.items import Item, item_of
from toolformer_core.evaluate.prompts import question

# Rows of each template.
SIZES = {"distance": 400, "ago": 800, "ahead": 800, "weekday": 400, "relative": 4000, "holiday": 1800, "count": 1200}
_CURRENT_DATES = 500
_FIRST, _LAST = date(2010, 1, 1), date(2022, 12, 31)  # of the current dates
_MAX_DAYS = 4 * 365 + 1  # four years hold at least one leap day

# Spelled out because `strftime` depends on the machine's locale.
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = "January February March April May June July August September October November December".split()
_FIELDS = ("day of the week", "day of the month", "month", "year")
_IN_DAYS, _IN_MONTHS = {"days": 1, "weeks": 7}, {"months": 1, "years": 12}
_UNITS = (*_IN_DAYS, *_IN_MONTHS)
_RELATIVE = {"the day before yesterday": -2, "yesterday": -1, "today": 0, "tomorrow": 1, "the day after tomorrow": 2}


def _nth(month: int, weekday: str, n: int, year: int) -> date:
    """Return the n-th such day of a month; n = 0: the last one before the month."""
    return date.fromisoformat(str(np.busday_offset(f"{year}-{month:02}-01", n - 1, roll="forward", weekmask=weekday)))


# US federal holidays: name -> function from a year to the date.
HOLIDAYS: Mapping[str, Callable[[int], date]] = {
    "New Year's Day": partial(date, month=1, day=1),
    "Martin Luther King Jr. Day": partial(_nth, 1, "Mon", 3),
    "Presidents' Day": partial(_nth, 2, "Mon", 3),
    "Memorial Day": partial(_nth, 6, "Mon", 0),
    "Independence Day": partial(date, month=7, day=4),
    "Labor Day": partial(_nth, 9, "Mon", 1),
    "Columbus Day": partial(_nth, 10, "Mon", 2),
    "Veterans Day": partial(date, month=11, day=11),
    "Thanksgiving": partial(_nth, 11, "Thu", 4),
    "Christmas Day": partial(date, month=12, day=25),
}


@dataclass(frozen=True, slots=True)
class _Day:
    today: date
    past: date
    future: date


_Question = tuple[str, tuple[str, ...]]  # a question and its answers
_Form = Callable[[_Day], _Question | None]  # None: this day does not suit the form


def dateset(seed: int = 0) -> Iterator[Item]:
    """Generate 9,400 items in the order of the templates; an item's date is the current one, its group the template."""
    r = random.Random(f"dateset/{seed}")
    days = []
    for offset in r.sample(range((_LAST - _FIRST).days + 1), _CURRENT_DATES):
        today = _FIRST + timedelta(offset)
        past, future = (timedelta(r.randint(1, _MAX_DAYS)) for _ in range(2))
        days.append(_Day(today, today - past, today + future))
    for template, forms in _templates().items():
        for form in forms:
            rows = ((day, filled) for day in r.sample(days, len(days)) if (filled := form(day)) is not None)
            for day, (text, answers) in islice(rows, SIZES[template] // len(forms)):
                yield item_of("dateset", question(text), answers, date=day.today.isoformat(), group=template)


def _templates() -> dict[str, list[_Form]]:
    return {
        "distance": [_days_ago, _days_until],
        "ago": [partial(_ago, field, unit) for field in _FIELDS for unit in _UNITS],
        "ahead": [partial(_ahead, field) for field in _FIELDS],
        "weekday": [_weekday_past, _weekday_future],
        "relative": [partial(_relative, field, name, n) for field in _FIELDS for name, n in _RELATIVE.items()],
        "holiday": [partial(_holiday, field, name) for field in _FIELDS[:3] for name in HOLIDAYS],
        "count": [partial(_count, unit, name) for unit in _UNITS for name in HOLIDAYS],
    }


def _days_ago(day: _Day) -> _Question:
    return f"How many days ago was {_written(day.past)}?", (str((day.today - day.past).days),)


def _days_until(day: _Day) -> _Question:
    return f"How many days are there until {_written(day.future)}?", (str((day.future - day.today).days),)


def _ago(field: str, unit: str, day: _Day) -> _Question | None:
    n = _complete(day.past, day.today, unit)
    then = _back(day.today, n, unit) if n else None
    return None if then is None else (f"What {field} was it {_amount(n, unit)} ago?", _answers(field, then))


def _ahead(field: str, day: _Day) -> _Question:
    n = (day.future - day.today).days
    return f"What {field} will it be in {_amount(n, 'days')}?", _answers(field, day.future)


def _weekday_past(day: _Day) -> _Question:
    return f"What day of the week was it on {_written(day.past)}?", _answers(_FIELDS[0], day.past)


def _weekday_future(day: _Day) -> _Question:
    return f"What day of the week is it on {_written(day.future)}?", _answers(_FIELDS[0], day.future)


def _relative(field: str, name: str, n: int, day: _Day) -> _Question:
    return f"What {field} {'was' if n < 0 else 'is'} it {name}?", _answers(field, day.today + timedelta(n))


def _holiday(field: str, name: str, day: _Day) -> _Question:
    on = HOLIDAYS[name](day.today.year)
    return f"What {field} {'was' if on < day.today else 'is'} {name} this year?", _answers(field, on)


def _count(unit: str, name: str, day: _Day) -> _Question | None:
    on = HOLIDAYS[name](day.today.year)
    if on == day.today:
        return None
    wording = f"{unit} ago was" if on < day.today else f"{unit} are there until"
    n = _complete(min(on, day.today), max(on, day.today), unit)
    return f"How many {wording} {name} this year?", (str(n),)


def _written(day: date) -> str:
    return f"{_MONTHS[day.month - 1]} {day.day}, {day.year}"


def _amount(n: int, unit: str) -> str:
    return f"{n} {unit[:-1] if n == 1 else unit}"


def _answers(field: str, day: date) -> tuple[str, ...]:
    """Return the right answers; a day of the month is right as 6 and 6th (and so, by the rule, as six and sixth)."""
    if field == "day of the month":
        suffix = "th" if 11 <= day.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
        return str(day.day), f"{day.day}{suffix}"
    return ({"day of the week": _DAYS[day.weekday()], "month": _MONTHS[day.month - 1], "year": str(day.year)}[field],)


def _complete(start: date, end: date, unit: str) -> int:
    """Return the number of complete days, weeks, months or years from start to end; start <= end."""
    if unit in _IN_DAYS:
        return (end - start).days // _IN_DAYS[unit]
    months = 12 * (end.year - start.year) + end.month - start.month - (end.day < start.day)
    return months // _IN_MONTHS[unit]


def _back(day: date, n: int, unit: str) -> date | None:
    """Return the day n units earlier; None if its month has no such day."""
    if unit in _IN_DAYS:
        return day - timedelta(n * _IN_DAYS[unit])
    months = 12 * day.year + day.month - 1 - n * _IN_MONTHS[unit]
    try:
        return date(months // 12, months % 12 + 1, day.day)
    except ValueError:
        return None
