"""The tool `date_arithmetic`: days after, before and between dates, and days of the week.

    30 days after January 30, 2023 -> Wednesday, March 1, 2023        days between 2023-01-30 and 2023-03-01 -> 30 days
    3 months before 31 May 2024 -> Thursday, February 29, 2024        day of the week of 2024-02-29 -> Thursday

A month or year later is the same day of the month, or the month's last day if it has no such day. Dates are written
with the month's name or as YYYY-MM-DD, since 1/2/2023 is read in two ways. `today` is the date of the document, which
the call gets as its context; the tool reads no clock.
"""

import datetime as dt
import re
from calendar import monthrange

from toolformer_core.tools.custom.python_tool import tool
from toolformer_core.tools.library.readings import VERSION, WORD_NUMBER, number_of, one_line

_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = "January February March April May June July August September October November December".split()
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if month[3:] else month for month in _MONTHS)
_DATE = (
    rf"\d{{4}}-\d\d-\d\d|(?:{_MONTH})\.? \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? (?:{_MONTH})\.?,? \d{{4}}|today|tomorrow|yesterday"
)
_UNIT = r"day|week|month|year"
_SPAN = re.compile(rf"(?P<count>\d+|{WORD_NUMBER}) (?P<unit>{_UNIT})s?", re.IGNORECASE)
_SPANS = rf"(?:\d+|{WORD_NUMBER}) (?:{_UNIT})s?(?:(?:,? and|,)? (?:\d+|{WORD_NUMBER}) (?:{_UNIT})s?)*"
_WEEKDAYS = "|".join(_DAYS)
_LEAD = (
    r"(?:(?:what|which|when)(?: date)? (?:is|was|will be) )?(?:the )?(?:date )?(?:is )?(?:(?:" + _WEEKDAYS + r"),? )?"
)
_AFTER = re.compile(
    rf"{_LEAD}(?P<spans>{_SPANS}) (?P<way>after|from|later than|since|before|until|earlier than) (?P<date>{_DATE})",
    re.IGNORECASE,
)
_PLUS = re.compile(rf"(?P<date>{_DATE}) ?(?P<way>\+|-|−|plus|minus) ?(?P<spans>{_SPANS})", re.IGNORECASE)
_BETWEEN = re.compile(
    rf"(?:how many |number of |the )*(?P<unit>{_UNIT})s? (?:are there )?(?:between|from|passed from|since) "
    rf"(?P<start>{_DATE}) (?:and|to|until|till) (?P<end>{_DATE})"
    rf"|(?:between |from )?(?P<start2>{_DATE}) (?:and|to|until|till) (?P<end2>{_DATE})",
    re.IGNORECASE,
)
_WEEKDAY = re.compile(
    rf"(?:what |which |the )*(?:day of the week|weekday|day)(?: (?:is|was|of|on|for|will be))*:? (?P<date>{_DATE})",
    re.IGNORECASE,
)


@tool(
    description="Finds the date some days, weeks, months or years before or after a date, the days between two dates, "
    "or the weekday of a date.",
    keywords=["days after", "days before", "weeks after", "weeks before", "days later", "weeks later", "days between"],
    patterns=[rf"\b(?:{'|'.join(_MONTHS)}) \d{{1,2}}, \d{{4}}", r"\b\d{4}-\d\d-\d\d\b"],
    examples=[
        (
            "A parcel was sent on January 30, 2023 and took 30 days. When did it arrive?",
            "30 days after January 30, 2023",
        ),
        ("How many days lie between May 1, 2024 and July 1, 2024?", "days between 2024-05-01 and 2024-07-01"),
        ("On which day of the week was February 29, 2024?", "day of the week of February 29, 2024"),
        ("The course ends on May 31, 2024 and lasts 3 months. When did it begin?", "3 months before May 31, 2024"),
    ],
    mock_response="Wednesday, March 1, 2023",
    version=VERSION,
)
def date_arithmetic(text: str, context: str = "") -> str:
    """Compute with dates; see the module."""
    line = one_line(text).rstrip("?.= ")
    if match := _AFTER.fullmatch(line) or _PLUS.fullmatch(line):
        forward = match["way"].lower() in ("after", "from", "later than", "since", "+", "plus")
        return _long(_shift(read_date(match["date"], context), match["spans"], 1 if forward else -1))
    if match := _BETWEEN.fullmatch(line):
        start, end = (read_date(match[name] or match[f"{name}2"], context) for name in ("start", "end"))
        return _difference(min(start, end), max(start, end), (match["unit"] or "day").lower())
    if match := _WEEKDAY.fullmatch(line):
        return _DAYS[read_date(match["date"], context).weekday()]
    raise ValueError("write e.g. 30 days after January 30, 2023, or days between 2023-01-30 and 2023-03-01")


def read_date(text: str, context: str = "") -> dt.date:
    """Return the date that a text names, e.g. `30 Jan 2023` or `tomorrow`; the context is the ISO date of today.

    A `ValueError` if there is no such day, or today is not known.
    """
    word = text.lower()
    if word in ("today", "tomorrow", "yesterday"):
        if not re.match(r"\d{4}-\d\d-\d\d", context):
            raise ValueError("today's date is not known; write a date")
        return dt.date.fromisoformat(context[:10]) + dt.timedelta(("yesterday", "today", "tomorrow").index(word) - 1)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return dt.date.fromisoformat(text)
    day, year = (int(number) for number in re.findall(r"\d+", text))
    name = next(word for word in re.findall("[a-z]+", word) if word not in ("st", "nd", "rd", "th", "of"))
    month = next(number for number, month in enumerate(_MONTHS, start=1) if month.lower().startswith(name))
    return dt.date(year, month, day)


def add_months(date: dt.date, months: int) -> dt.date:
    """Return the same day some months later, or that month's last day; a `ValueError` beyond the years 1 to 9999."""
    year, month = divmod(12 * date.year + date.month - 1 + months, 12)
    if not dt.MINYEAR <= year <= dt.MAXYEAR:
        raise ValueError(f"the year {year} is out of range")
    return dt.date(year, month + 1, min(date.day, monthrange(year, month + 1)[1]))


def _shift(date: dt.date, spans: str, sign: int) -> dt.date:
    counts = dict.fromkeys(("day", "week", "month", "year"), 0)
    for match in _SPAN.finditer(spans):
        count = number_of(match["count"])
        if count.denominator != 1:
            raise ValueError(f"{match[0]!r}: give a whole number")
        counts[match["unit"].lower()] += sign * int(count)
    moved = add_months(date, 12 * counts["year"] + counts["month"])
    return moved + dt.timedelta(days=7 * counts["week"] + counts["day"])


def _difference(start: dt.date, end: dt.date, unit: str) -> str:
    """Return how many whole units lie between two dates, and the days that are left."""
    days = (end - start).days
    if unit == "day":
        return _count(days, "day")
    if unit == "week":
        whole, rest = divmod(days, 7)
    else:
        size = 12 if unit == "year" else 1
        whole = ((end.year - start.year) * 12 + end.month - start.month) // size
        if add_months(start, whole * size) > end:
            whole -= 1
        rest = (end - add_months(start, whole * size)).days
    return _count(whole, unit) + (f" and {_count(rest, 'day')}" if rest else "")


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" + ("" if number == 1 else "s")


def _long(date: dt.date) -> str:
    return f"{_DAYS[date.weekday()]}, {_MONTHS[date.month - 1]} {date.day}, {date.year}"
