"""The query string of a page: its values as numbers and texts, and links to the same page with other values.

All that a page shows follows from its URL, so every view can be shared, kept and reached without a script.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_type_hints
from urllib.parse import quote, urlencode

Place = TypeVar("Place", bound=tuple[Any, ...])

_MAX_CHARS = 10_000  # of one value
_MAX_WHOLE = 2.0**53
_MOST = {"doc": 2**64}  # a hash; other whole numbers of a place have 31 bits


class WrongQueryError(Exception):
    """A value of the query string is wrong; the message says which, in one line."""


class NotThereError(Exception):
    """What a URL names is not in the data; the message says so, in one line."""


class Query:
    """The values of a query string or a form, of a name the last; reading a wrong one raises `WrongQueryError`."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.values = {name: value.strip() for name, value in pairs if value.strip()}

    def text(self, name: str) -> str:
        value = self.values.get(name, "")
        if len(value) > _MAX_CHARS:
            raise WrongQueryError(f"{name} may have at most {_MAX_CHARS:,} characters")
        return value

    def choice(self, name: str, choices: Iterable[str]) -> str:
        value, known = self.text(name), sorted(set(choices))
        if value and value not in known:
            raise WrongQueryError(f"{name} is one of {', '.join(known)}, not {value[:100]!r}")
        return value

    def number(self, name: str, low: float = -math.inf, high: float = math.inf) -> float | None:
        text = self.text(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value <= high):
            bounds = (f" from {low:g}" if math.isfinite(low) else "") + (f" to {high:g}" if high < _MAX_WHOLE else "")
            raise WrongQueryError(f"{name} is a number{bounds}, not {text[:100]!r}")
        return value

    def whole(self, name: str, low: int = 0) -> int | None:
        value = self.number(name, low, _MAX_WHOLE)
        if value is not None and value != int(value):
            raise WrongQueryError(f"{name} is a whole number, not {value:g}")
        return None if value is None else int(value)

    def place(self, name: str, kind: type[Place]) -> Place | None:
        """Return a place in a list, a NamedTuple as `further` writes it; None if it is not given."""
        text = self.text(name)
        if not text:
            return None
        try:
            place = kind(*(of(one) for of, one in zip(get_type_hints(kind).values(), json.loads(text), strict=True)))
            for field, one in zip(get_type_hints(kind), place, strict=True):
                if isinstance(one, int) and not 0 <= one < _MOST.get(field, 2**31):
                    raise ValueError
                if isinstance(one, float) and not math.isfinite(one):
                    raise ValueError
        except (ValueError, TypeError, OverflowError):
            raise WrongQueryError(f"{name} is no place in a list: {text[:100]!r}") from None
        return place

    def further(self, path: str, name: str, last: tuple[Any, ...] | None, section: str = "") -> str | None:
        """Return the link to the next page of a list, given the place behind which it begins; None: there is none."""
        return None if last is None else self.to(path, **{name: json.dumps(last)}) + (f"#{section}" if section else "")

    def to(self, path: str, **changes: Any) -> str:
        """Return a link to a page with these values and some changes; None removes a value."""
        return link(path, **{**self.values, **changes})


def link(path: str, **values: Any) -> str:
    """Return a link with a query string; what is None or "" is left out."""
    given = {name: str(value) for name, value in values.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def document_link(doc_id: str, call: Mapping[str, Any] | None = None, version: str = "") -> str:
    """Return the link to a document, or to a call of it: `tool` (of a chain all, joined by `+`), `position`, `nth`."""
    chosen = None if call is None else f"{call['tool']}:{call['position']}:{call.get('nth', 0)}"
    return link(f"/documents/{quote(doc_id, safe='')}", version=version, call=chosen) + ("#call" if chosen else "")
