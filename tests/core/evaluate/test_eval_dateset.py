"""Every row of Dateset is read back from its text and worked out again."""

import calendar
import re
from collections import Counter, defaultdict
from datetime import date, datetime, timedelta

import pytest

from toolformer_core.evaluate.readers.dateset import HOLIDAYS, SIZES, dateset
from toolformer_core.evaluate.scoring import is_right
from toolformer_core.evaluate.tasks import task_named

ITEMS = list(dateset())
PREFIX = "Answer the following question: "
BY_TEMPLATE = defaultdict(list)
for _item in ITEMS:
    BY_TEMPLATE[_item.group].append(_item)

FIELD = "(day of the week|day of the month|month|year)"
RELATIVE = {"day before yesterday": -2, "yesterday": -1, "today": 0, "tomorrow": 1, "day after tomorrow": 2}


def field_of(field: str, day: date) -> str:
    return {
        "day of the week": calendar.day_name[day.weekday()],
        "day of the month": str(day.day),
        "month": calendar.month_name[day.month],
        "year": str(day.year),
    }[field]


def read_date(text: str) -> date:
    return datetime.strptime(text, "%B %d, %Y").date()


def holiday(name: str, year: int) -> date:
    """The day by the rows of the month's calendar; weeks begin on Monday."""
    fixed = {"New Year's Day": (1, 1), "Independence Day": (7, 4), "Veterans Day": (11, 11), "Christmas Day": (12, 25)}
    if name in fixed:
        return date(year, *fixed[name])
    month, weekday, n = {
        "Martin Luther King Jr. Day": (1, 0, 3),
        "Presidents' Day": (2, 0, 3),
        "Memorial Day": (5, 0, 0),
        "Labor Day": (9, 0, 1),
        "Columbus Day": (10, 0, 2),
        "Thanksgiving": (11, 3, 4),
    }[name]
    days = [week[weekday] for week in calendar.monthcalendar(year, month) if week[weekday]]
    return date(year, month, days[n - 1])  # n = 0: the last


def complete(unit: str, start: date, end: date) -> int:
    """How often a unit fits between two dates: years and months are counted up one by one."""
    if unit in ("days", "weeks"):
        return (end - start).days // {"days": 1, "weeks": 7}[unit]
    n = 0
    while True:
        months = start.month - 1 + (n + 1) * (12 if unit == "years" else 1)
        if (start.year + months // 12, months % 12 + 1, start.day) > (end.year, end.month, end.day):
            return n
        n += 1


def worked_out(text: str, today: date) -> str:
    if m := re.fullmatch(r"How many days ago was (\w+ \d+, \d+)\?", text):
        return str((today - read_date(m[1])).days)
    if m := re.fullmatch(r"How many days are there until (\w+ \d+, \d+)\?", text):
        return str((read_date(m[1]) - today).days)
    if m := re.fullmatch(FIELD.join(("What ", r" was it (\d+) (day|week|month|year)s? ago\?")), text):
        n = int(m[2])
        if m[3] in ("day", "week"):
            return field_of(m[1], today - timedelta(n * {"day": 1, "week": 7}[m[3]]))
        year, month = today.year - (n if m[3] == "year" else 0), today.month
        for _ in range(n if m[3] == "month" else 0):
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
        return field_of(m[1], date(year, month, today.day))
    if m := re.fullmatch(FIELD.join(("What ", r" will it be in (\d+) days?\?")), text):
        return field_of(m[1], today + timedelta(int(m[2])))
    if m := re.fullmatch(r"What day of the week (?:is|was) it on (\w+ \d+, \d+)\?", text):
        return field_of("day of the week", read_date(m[1]))
    if m := re.fullmatch(FIELD.join(("What ", r" (?:is|was) it (?:the )?([\w ]+)\?")), text):
        return field_of(m[1], today + timedelta(RELATIVE[m[2]]))
    if m := re.fullmatch(FIELD.join(("What ", r" (is|was) ([\w.' ]+) this year\?")), text):
        on = holiday(m[3], today.year)
        assert m[2] == ("was" if on < today else "is"), text
        return field_of(m[1], on)
    m = re.fullmatch(r"How many (days|weeks|months|years) (ago was|are there until) ([\w.' ]+) this year\?", text)
    on = holiday(m[3], today.year)
    assert on != today
    assert m[2] == ("ago was" if on < today else "are there until"), text
    return str(complete(m[1], min(on, today), max(on, today)))


@pytest.mark.parametrize("template", SIZES)
def test_every_row_of_a_template_is_right(template):
    assert len(BY_TEMPLATE[template]) == SIZES[template]
    for item in BY_TEMPLATE[template]:
        today = date.fromisoformat(item.date)
        assert item.answers[0] == worked_out(item.prompt.removeprefix(PREFIX), today), item


def test_the_papers_sizes():
    # Table 11: 400 + 800 + 800 + 400 + 4,000 + 1,800 + 1,200
    assert list(SIZES.values()) == [400, 800, 800, 400, 4_000, 1_800, 1_200]
    assert len(ITEMS) == 9_400
    assert len({item.item_id for item in ITEMS}) == 9_400
    assert len({item.date for item in ITEMS}) == 500
    days = [int(item.answers[0]) for item in BY_TEMPLATE["distance"]]
    assert 1 <= min(days) <= max(days) <= 1461  # within four years: 4 * 365 + 1


def test_forms_share_a_template_evenly():
    fields = Counter(re.search(FIELD, item.prompt)[0] for item in BY_TEMPLATE["relative"])
    assert set(fields.values()) == {1_000}
    named = Counter(name for item in BY_TEMPLATE["count"] for name in HOLIDAYS if f" {name} this" in item.prompt)
    assert named == dict.fromkeys(HOLIDAYS, 120)


def test_the_seed_decides():
    assert list(dateset(0)) == ITEMS
    assert len(other := list(dateset(1))) == 9_400
    assert other != ITEMS


def test_a_day_of_the_month_is_right_as_an_ordinal_too():
    days = [item for item in BY_TEMPLATE["relative"] if "What day of the month" in item.prompt]
    assert all(is_right(task_named("dateset"), item, f" It was the {item.answers[1]}.") for item in days)
