"""Reads dates as people and sites write them, in URLs and in a corpus's date column. It never reads the clock.

    | in a URL                                         | is a date                                                     |
    |--------------------------------------------------|---------------------------------------------------------------|
    | /2016/11/28/, 2016-11-28-title, november-28-2016 | any of - / _ may separate the parts, also mixed               |
    | 20161128                                         | in a query only if the parameter's name suggests a date       |
    | 28-nov-2016, 15nov2018                           | if the day starts a part of the path: not top-10-nov-2016     |
    | 28-11-2016, 11/28/2016                           | if only one reading is a day of the calendar                  |
    | /2016.11.28/                                     | as a whole part of the path, two digits each: not v2016.11.28 |

Years lie between 1990 and 2100; a month without a day is not a date. Of several dates in a URL the first one counts.
"""

import datetime
import re
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import unquote

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_YEAR = r"(?<!\d)(?P<year>(?:19|20|21)\d\d)"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_FIRST_YEAR, _LAST_YEAR = 1990, 2100
_URL_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        _YEAR + r"[-/_](?P<month>\d{1,2})[-/_](?P<day>\d{1,2})(?!\w|-)",
        _YEAR + r"-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)",
        _YEAR + r"(?P<month>\d\d)(?P<day>\d\d)(?!\d)(?P<compact>)",
        _YEAR + rf"[-/_]{_MONTH}[-/_]{_DAY}(?!\d)",
        rf"(?<![a-z]){_MONTH}[-/_]{_DAY}[-/_]" + _YEAR + r"(?!\d)",
        rf"(?:\A|(?<=[/=])){_DAY}[-/_]?{_MONTH}[-/_]?(?P<year>(?:19|20|21)\d\d)(?!\d)",
        r"(?<![\w.-])(?P<one>\d{1,2})[-/_](?P<two>\d{1,2})[-/_]" + r"(?P<year>(?:19|20|21)\d\d)(?!\w|[-/_.]\d)",
        r"(?<=/)(?P<year>(?:19|20|21)\d\d)\.(?P<month>\d\d)\.(?P<day>\d\d)(?=/|\Z)",
        r"(?<=/)(?P<one>\d\d)\.(?P<two>\d\d)\.(?P<year>(?:19|20|21)\d\d)(?=/|\Z)",
    )
)
_WORDS = tuple(
    re.compile(rf"\s*(?:[a-z]+,\s+)?{pattern}(?!\d).*", re.IGNORECASE | re.DOTALL)
    for pattern in (rf"{_MONTH}\.?\s+{_DAY},?\s+(?P<year>\d{{4}})", rf"{_DAY}\s+{_MONTH}\.?,?\s+(?P<year>\d{{4}})")
)
_PARAMETER = re.compile(r"[?&;]([^=&;?]*)=[^=&;?]*\Z")
_DATE_PARAMETER = re.compile(r"date|day|time|publish|\bdt\b", re.IGNORECASE)


def url_date(url: str, latest: str = "") -> str | None:
    """Return the first date in a URL (see the module) that is not after `latest`, if given, as ISO dates; else None."""
    url = unquote(url)
    dates: list[tuple[int, str]] = []
    for pattern in _URL_DATES:
        for match in pattern.finditer(url):
            if "compact" in match.groupdict() and _is_identifier(url[: match.start()]):
                continue
            days = {day for day in _readings(match) if _FIRST_YEAR <= day.year <= _LAST_YEAR}
            if len(days) == 1 and (iso := days.pop().isoformat()) <= (latest or iso):
                dates.append((match.start(), iso))
    return min(dates)[1] if dates else None


def date_in_words(text: str) -> str | None:
    """Return the ISO date of `November 28, 2016` or `28 Nov 2016`, whatever follows it; else None."""
    for pattern in _WORDS:
        if match := pattern.match(text):
            return next((day.isoformat() for day in _readings(match)), None)
    return None


def _readings(match: re.Match[str]) -> Iterator[datetime.date]:
    """Yield the days that a match may mean: two if it is unclear which number is the month."""
    match match.groupdict():
        case {"name": name, "day": day}:
            pairs = [(str(_MONTHS.index(name[:3].lower()) + 1), day)]
        case {"one": one, "two": two}:
            pairs = [(two, one), (one, two)]
        case parts:
            pairs = [(parts["month"], parts["day"])]
    for month, day in pairs:
        with suppress(ValueError):
            yield datetime.date(int(match["year"]), int(month), int(day))


def _is_identifier(before: str) -> bool:
    """Return whether what follows is the value of a URL parameter whose name does not suggest a date."""
    parameter = _PARAMETER.search(before)
    return parameter is not None and _DATE_PARAMETER.search(parameter[1]) is None
