"""The rows that corpus readers yield: rows that could be read, and rows that could not, with the reason."""

import json
from dataclasses import dataclass
from typing import Any

_RAW_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class RawRow:
    line: int  # from 1
    value: Any
    source_bytes: bytes | None = None  # the line as the file holds it; None for columnar files
    columns: tuple[str, ...] = ()  # all columns of a columnar file, whether read or not

    @property
    def names(self) -> tuple[str, ...]:
        return self.columns or (tuple(map(str, self.value)) if isinstance(self.value, dict) else ())

    @property
    def raw(self) -> str:
        """The start of the row, printable, at most 2,000 characters."""
        source = self.source_bytes
        return json.dumps(self.value, default=str)[:_RAW_CHARS] if source is None else printable(source)


@dataclass(frozen=True, slots=True)
class BadRow:
    line: int
    reason: str  # blank | broken_json | not_utf8 | too_long | truncated
    detail: str
    raw: str = ""


def printable(data: bytes) -> str:
    """Return the start of a line, with undecodable bytes escaped."""
    return data[: 4 * _RAW_CHARS].decode("utf-8", "backslashreplace")[:_RAW_CHARS]
