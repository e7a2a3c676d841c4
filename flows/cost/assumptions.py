"""The numbers that a plan rests on, each with its origin, and each one that a user may replace.

    | origin   | where the value comes from                                                        |
    |----------|-----------------------------------------------------------------------------------|
    | given    | `--assume name=value`, or an option                                               |
    | measured | the commits of a sample build, or a benchmark of this repository                  |
    | paper    | Toolformer, with the section or table                                             |
    | vendor   | the documentation of the card's or the service's maker                            |
    | config   | the defaults of this program, or the model's config.json                          |
    | computed | other assumptions                                                                 |
    | assumed  | nobody has measured it; the source says why this value                            |

This module does not know what the numbers mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from toolformer_core.errors import UnknownNameError, UsageError

__all__ = [
    "ASSUMED",
    "COMPUTED",
    "CONFIG",
    "GIVEN",
    "MEASURED",
    "PAPER",
    "VENDOR",
    "Assumption",
    "Assumptions",
    "parse",
]

GIVEN, MEASURED, PAPER, VENDOR = "given", "measured", "paper", "vendor"
CONFIG, COMPUTED, ASSUMED = "config", "computed", "assumed"
SHARE = "share"  # a unit: the value lies in [0, 1]


@dataclass(frozen=True, slots=True)
class Assumption:
    """One line of a plan's assumptions."""

    name: str
    value: float
    unit: str
    origin: str  # see the module
    source: str  # where exactly, or why


def parse(texts: Iterable[str]) -> dict[str, float]:
    """Parse what `--assume` was given: `name=value`, several of them with commas between.

    Raises:
        UsageError: a part has another form, or its value is no number that a cost could be computed from.
    """
    given: dict[str, float] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, text = part.partition("=")
        try:
            value = float(text) if equals else math.nan
        except ValueError:
            value = math.nan
        if not name.strip() or not math.isfinite(value):
            raise UsageError(f"--assume {part}: write name=number, e.g. --assume calculator.kept_share=0.1")
        if value < 0:
            raise UsageError(f"--assume {part}: no assumption is negative")
        given[name.strip()] = value
    return given


class Assumptions:
    """The assumptions of one plan, in the order in which they were first used.

    Args:
        given: by name, values that replace all others.
    """

    def __init__(self, given: Mapping[str, float] | None = None) -> None:
        self._given = dict(given or {})
        self._lines: dict[str, Assumption] = {}
        self._further: set[str] = set()  # names that may be given, and were not needed

    @property
    def lines(self) -> tuple[Assumption, ...]:
        """All assumptions that were used."""
        return tuple(self._lines.values())

    def gives(self, name: str) -> bool:
        """Return whether the user gave a value for a name."""
        return name in self._given

    def allow(self, *names: str) -> None:
        """Name assumptions that may be given although this plan has no use for them."""
        self._further.update(names)

    def add(self, name: str, value: float, unit: str, origin: str, source: str, *, positive: bool = False) -> float:
        """Add an assumption, unless it was added before; return the value that counts.

        Args:
            name: for `--assume`.
            value: what it is unless the user gives another.
            unit: `share` lies in [0, 1].
            origin: see the module.
            source: where exactly the value comes from, or why it is this one.
            positive: 0 would make the plan meaningless, e.g. of a divisor.

        Raises:
            UsageError: the value is outside its bounds.
        """
        if name in self._lines:
            return self._lines[name].value
        if name in self._given:
            value, source = self._given[name], f"instead of {_short(value)}, {origin}"
            origin = GIVEN
        if unit == SHARE and value > 1:
            raise UsageError(f"{name} is a share and lies in [0, 1], got {_short(value)}")
        if value < 0 or (positive and value == 0):
            raise UsageError(f"{name} must be {'positive' if positive else 'at least 0'}, got {_short(value)}")
        self._lines[name] = Assumption(name, value, unit, origin, source)
        return value

    def add_for(
        self, owner: str, name: str, measured: float | None, source: str, default: Assumption, *, positive: bool = False
    ) -> float:
        """Add an assumption that may differ from one tool to the next; return the value that counts.

        Args:
            owner: the tool's key. Its own line is `owner.name`: if it was given or measured for this tool.
            name: of the line that all other tools share.
            measured: for this tool; None: not measured.
            source: where it was measured.
            default: the shared line.
            positive: see `add`.
        """
        own = f"{owner}.{name}"
        self.allow(own, name)
        if own in self._given or (measured is not None and name not in self._given):
            value = default.value if measured is None else measured
            origin = default.origin if measured is None else MEASURED
            return self.add(own, value, default.unit, origin, source, positive=positive)
        return self.add(name, default.value, default.unit, default.origin, default.source, positive=positive)

    def check(self) -> None:
        """Check that every value that was given has a place in the plan.

        Raises:
            UnknownNameError: one has not.
        """
        known = self._lines.keys() | self._further
        for name in self._given:
            if name not in known:
                raise UnknownNameError("assumption", name, known)


def _short(value: float) -> str:
    return f"{value:,.6g}"
