"""The Calendar: tells the date of a document, which it gets as the context of the call. It reads no clock."""

import re
from dataclasses import dataclass
from datetime import date

from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of

VERSION = "1"

# Spelled out because `strftime` depends on the machine's locale.
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = "January February March April May June July August September October November December".split()
_ISO = re.compile(r"\s*([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[T ].*)?\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Calendar:
    """Tells the date of the document.

    Failures: `unexpected_input` (the input is not empty), `no_date` (the context is not an ISO date).
    """

    key: str = "calendar"
    name: str = "Calendar"
    description: str = "Takes no input and returns today's date: the day of the week, month, day and year."

    @property
    def fingerprint(self) -> str:
        return digest_of(type(self).__name__, VERSION)

    def load(self) -> None: ...

    def run(self, input: str, context: str = "") -> ToolResult:
        """Tell the date: that of the context, `YYYY-MM-DD`, without the time that may follow it."""
        if input.strip():
            return ToolFailure("unexpected_input", "the calendar takes no input")
        match = _ISO.fullmatch(context)
        if match is None:
            known = f"{context[:40]!r} is not an ISO date" if context else "the date is not known"
            return ToolFailure("no_date", known)
        try:
            day = date(*(int(part) for part in match.groups()))
        except ValueError as exc:
            return ToolFailure("no_date", f"{context[:40]!r}: {exc}")
        return ToolResponse(f"Today is {_DAYS[day.weekday()]}, {_MONTHS[day.month - 1]} {day.day}, {day.year}.")
