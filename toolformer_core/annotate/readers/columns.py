"""Which column of a row holds the text, the URL and the date; a dotted name reaches into an object."""

from __future__ import annotations

import datetime
import email.utils
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolformer_core.annotate.readers.dates import date_in_words
from toolformer_core.config import IngestConfig
from toolformer_core.records import unencodable

_TEXT = ("text", "raw_content", "content")
_URL = ("url", "metadata.url", "metadata.WARC-Target-URI", "id")
_CREATED = ("created", "timestamp", "date_download", "metadata.date_download", "date")

Columns = Mapping[str, Any]  # a row by column


@dataclass(frozen=True, slots=True)
class ColumnNames:
    text: tuple[str, ...]
    url: tuple[str, ...]
    created: tuple[str, ...]

    @classmethod
    def of(cls, config: IngestConfig) -> ColumnNames:
        return cls(
            (config.text_column,) if config.text_column else _TEXT,
            (config.url_column,) if config.url_column else _URL,
            (config.date_column,) if config.date_column else _CREATED,
        )

    @property
    def roots(self) -> frozenset[str]:
        names = (*self.text, *self.url, *self.created)
        return frozenset(names) | frozenset(n.partition(".")[0] for n in names)


def has(row: Columns, name: str) -> bool:
    return name in row or value_at(row, name) is not None


def value_at(row: Columns, name: str) -> Any:
    """Return the value of a column, or the value at a dotted path; objects stored as JSON text are parsed."""
    root, dot, _ = name.partition(".")
    if not dot or name in row:
        return row.get(name)
    if root not in row:
        return None
    value: Any = row
    for part in name.split("."):
        if isinstance(value, str) and value.startswith("{"):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        value = value.get(part) if isinstance(value, dict) else None
    return value


def url_in(row: Columns, names: tuple[str, ...]) -> str | None:
    for name in names:
        value = value_at(row, name)
        is_url = name != "id" or names is not _URL or re.match(r"https?://", str(value))  # an id may be none
        if isinstance(value, str) and value and is_url and not unencodable(value):
            return value
    return None


_ISO = re.compile(r"\s*(\d{4})([-/.]?)(\d{2})\2(\d{2})(?:(?!\d)|(?=\d{6}(?!\d)))")

# Seconds or milliseconds from 2001 to 2033. 2016112810 is a date and an hour, and 14 digits are a date and a time.
_EPOCH = re.compile(r"\s*1\d{9}(?:\d{3})?(?:\.\d+)?\s*")


def iso_date(value: Any) -> str | None:
    """Return the ISO date of a timestamp: ISO, RFC 2822, words, (milli)seconds since 1970 (as text from 2001 on)."""
    if isinstance(value, datetime.date):  # also matches datetime, its subclass
        return value.isoformat()[:10]
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1_000 if abs(value) >= 1e11 else value
            return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
        if match := _ISO.match(value):
            return datetime.date(int(match[1]), int(match[3]), int(match[4])).isoformat()
        if _EPOCH.fullmatch(value):
            return iso_date(float(value))
        return date_in_words(value) or email.utils.parsedate_to_datetime(value).date().isoformat()
    except (ValueError, OverflowError, OSError, TypeError):  # the last one: it is no text
        return None
