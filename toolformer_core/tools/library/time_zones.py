"""The tool `time_zone`: a time of day in one place, converted to another's.

    3:30 PM in New York to Tokyo -> 5:30 AM the next day in Tokyo      2024-07-01 15:30 Paris to Tokyo -> 22:30 in Tokyo

A place is a city of the IANA database, a larger city beside one of them, a country whose clocks all agree, or an
abbreviation or offset (CET, UTC+2). With a date the places' summer times count; without one both are taken at standard
time. The database is that of the package tzdata, never the machine's, so the same question has the same answer on every
machine; its version is in the fingerprint. It reads no clock.
"""

import datetime as dt
import re
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

from tzdata import IANA_VERSION

from toolformer_core.tools.custom.python_tool import tool
from toolformer_core.tools.library.readings import one_line

_STANDARD_YEAR = 2026  # whose winter gives the standard time of a question without a date

_ABBREVIATIONS = {  # hours from UTC
    **{"utc": 0, "gmt": 0, "z": 0, "wet": 0, "west": 1, "bst": 1, "cet": 1, "cest": 2, "eet": 2, "eest": 3, "msk": 3},
    **{"est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7, "akst": -9, "hst": -10},
    **{"ist": 5.5, "sgt": 8, "hkt": 8, "awst": 8, "jst": 9, "kst": 9, "acst": 9.5, "aest": 10, "aedt": 11, "nzst": 12},
}
_ALSO = {  # cities that are not in the database -> one that is, with the same clock
    "America/New_York": "boston, washington, washington dc, philadelphia, atlanta, miami, new york city, eastern time",
    "America/Chicago": "dallas, houston, austin, st louis, new orleans, minneapolis, central time",
    "America/Denver": "salt lake city, albuquerque, mountain time",
    "America/Los_Angeles": "san francisco, seattle, san diego, las vegas, portland, la, pacific time",
    "America/Toronto": "ottawa, montreal, quebec",
    "America/Sao_Paulo": "rio de janeiro, rio, brasilia",
    "Asia/Shanghai": "beijing, shenzhen, guangzhou, china",
    "Asia/Kolkata": "delhi, new delhi, mumbai, bangalore, bengaluru, chennai",
    "Asia/Tokyo": "osaka, kyoto",
    "Asia/Dubai": "abu dhabi",
    "Europe/Berlin": "munich, hamburg, frankfurt, cologne, germany",
    "Europe/Madrid": "barcelona",
    "Europe/Rome": "milan, naples, venice",
    "Europe/Zurich": "geneva, basel, bern",
    "Europe/London": "edinburgh, manchester, england, scotland, wales, uk",
    "Australia/Sydney": "canberra",
    "Africa/Johannesburg": "cape town, pretoria",
}
_OFFSET = re.compile(r"(?:utc|gmt) ?([+\-−])(\d{1,2})(?::([0-5]\d))?")
_PLACE = r"[^\d\W][\w .'/-]*?|(?:utc|gmt) ?[+\-−]\d{1,2}(?::\d\d)?"
_QUESTION = re.compile(
    r"(?:(?:what|which) time is |convert |when it is |if it is |it is )?"
    r"(?:(?P<date>\d{4}-\d\d-\d\d)[ T]?(?:at )?)?"
    r"(?:(?P<named>noon|midnight)|(?P<hour>\d{1,2})(?:[:.](?P<minute>[0-5]\d))?(?: ?(?P<half>[ap]\.?m\b\.?))?)"
    r"(?: o'clock)?(?: on (?P<day>\d{4}-\d\d-\d\d))?,?(?: in| at)? "
    rf"(?P<source>{_PLACE})(?: time)?,? "
    r"(?:to|into|in|->|=|and in|what time is it in) "
    rf"(?P<target>{_PLACE})(?: time)?",
    re.IGNORECASE,
)


@tool(
    description="Converts a time of day in one city, country or time zone into the local time of another.",
    keywords=["time zone", "local time", "UTC", "GMT", "CET", "EST", "PST", "o'clock"],
    patterns=[r"\b\d{1,2}(:\d\d)? ?[ap]\.?m\b", r"\b\d{1,2}:\d\d\b"],
    examples=[
        ("When it is 3:30 PM in New York, what time is it in Tokyo?", "3:30 PM in New York to Tokyo"),
        ("Our call begins at 9:00 in Berlin. When is that in Chicago?", "9:00 in Berlin to Chicago"),
        ("The match starts at 20:00 UTC. At what local time is that in Sydney?", "20:00 UTC to Sydney"),
        (
            "On July 1, 2024 a train leaves Paris at 15:30. What time is it then in Cairo?",
            "2024-07-01 15:30 Paris to Cairo",
        ),
    ],
    mock_response="5:30 AM the next day in Tokyo",
    version=IANA_VERSION,
)
def time_zone(text: str) -> str:
    """Convert a time of day; see the module."""
    line = one_line(text).rstrip("?. ")
    match = _QUESTION.fullmatch(line)
    if match is None:
        raise ValueError("write e.g. 3:30 PM in New York to Tokyo, or 2024-07-01 15:30 Paris to Tokyo")
    clock = _clock(match)
    source, target = place_zone(match["source"]), place_zone(match["target"])
    day = match["date"] or match["day"]
    if day:
        there = dt.datetime.combine(dt.date.fromisoformat(day), clock, source).astimezone(target)
        days = (there.date() - dt.date.fromisoformat(day)).days
    else:
        before = dt.datetime.combine(dt.date(_STANDARD_YEAR, 1, 10), clock)
        there = before - _standard_offset(source) + _standard_offset(target)
        days = (there.date() - before.date()).days
    when = {-1: " the day before", 0: "", 1: " the next day"}.get(days, f" {days:+} days")
    return f"{_written(there.time(), bool(match['half']))}{when} in {match['target'].strip()}"


def _clock(match: re.Match[str]) -> dt.time:
    if match["named"]:
        return dt.time(12 if match["named"].lower() == "noon" else 0)
    hour, half = int(match["hour"]), (match["half"] or "").lower()
    if half and not 1 <= hour <= 12:
        raise ValueError(f"there is no {hour} {half}; hours with a.m. and p.m. go from 1 to 12")
    return dt.time(hour % 12 + 12 * half.startswith("p") if half else hour, int(match["minute"] or 0))


def _written(clock: dt.time, halves: bool) -> str:
    if not halves:
        return f"{clock.hour:02}:{clock.minute:02}"
    return f"{clock.hour % 12 or 12}:{clock.minute:02} {'PM' if clock.hour >= 12 else 'AM'}"


def place_zone(name: str) -> dt.tzinfo:
    """Return the time zone of a place, an abbreviation or an offset; a `LookupError` if it is not known, or several."""
    place = " ".join(name.lower().replace("_", " ").replace(".", "").split()).removeprefix("the ")
    if match := _OFFSET.fullmatch(place):
        sign = 1 if match[1] == "+" else -1
        return dt.timezone(sign * dt.timedelta(hours=int(match[2]), minutes=int(match[3] or 0)))
    if place in _ABBREVIATIONS:
        return dt.timezone(dt.timedelta(hours=_ABBREVIATIONS[place]))
    if (key := _cities().get(place)) is not None:
        return _zone(key)
    zones = _countries().get(place)
    if not zones:
        raise LookupError(f"no city, country or time zone {name.strip()!r} is known; name a large city")
    if len({_offsets(_zone(key)) for key in zones}) > 1:
        raise LookupError(f"{name.strip()} has several time zones; name a city")
    return _zone(zones[0])


@lru_cache(maxsize=128)
def _zone(key: str) -> ZoneInfo:
    with resources.files("tzdata.zoneinfo").joinpath(*key.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=key)


def _offsets(zone: dt.tzinfo) -> tuple[dt.timedelta, ...]:
    """Return the offsets from UTC in winter and in summer."""
    days = (dt.datetime(_STANDARD_YEAR, month, 10, 12, tzinfo=zone) for month in (1, 7))
    return tuple(day.utcoffset() or dt.timedelta() for day in days)


def _standard_offset(zone: dt.tzinfo) -> dt.timedelta:
    return min(_offsets(zone))  # clocks go forward in summer, on either half of the earth


def _database(name: str) -> list[list[str]]:
    text = resources.files("tzdata.zoneinfo").joinpath(name).read_text("utf-8")
    return [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]


@lru_cache(maxsize=1)
def _cities() -> dict[str, str]:
    """Return the zones by the names of their cities, and by their own."""
    keys = resources.files("tzdata").joinpath("zones").read_text("utf-8").split()
    cities = {key.rpartition("/")[2].replace("_", " ").lower(): key for key in keys if "/" in key and key[:4] != "Etc/"}
    cities |= {key.replace("_", " ").lower(): key for key in keys if "/" in key}
    return cities | {city: key for key, also in _ALSO.items() for city in also.split(", ")}


@lru_cache(maxsize=1)
def _countries() -> dict[str, list[str]]:
    """Return the zones of each country."""
    codes = {code: name.lower() for code, name in _database("iso3166.tab")}
    zones: dict[str, list[str]] = {}
    for row in _database("zone.tab"):
        zones.setdefault(codes[row[0]], []).append(row[2])
    return zones
