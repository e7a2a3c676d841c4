"""The numbers that a plan rests on: a line each, with its origin, and each replaceable with `--assume`.

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
    positive: bool = False  # 0 would make the plan meaningless, e.g. of a divisor


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
        defaults: the figures that there are without a sample build; their names may be given even if unused.
    """

    def __init__(self, given: Mapping[str, float], defaults: Mapping[str, Assumption]) -> None:
        self._given = dict(given)
        self._defaults = defaults
        self._lines: dict[str, Assumption] = {}
        self._known = set(defaults)

    @property
    def lines(self) -> tuple[Assumption, ...]:
        """All assumptions that were used."""
        return tuple(self._lines.values())

    def gives(self, name: str) -> bool:
        """Return whether the user gave a value for a name."""
        return name in self._given

    def add(self, line: Assumption) -> float:
        """Add a line, unless there is one of its name; return the value that counts.

        Raises:
            UsageError: the value is outside its bounds.
        """
        name, value = line.name, line.value
        if name in self._lines:
            return self._lines[name].value
        origin, source = line.origin, line.source
        if name in self._given:
            source = f"instead of {value:,.6g}, {origin}"
            value, origin = self._given[name], GIVEN
        if line.unit == SHARE and value > 1:
            raise UsageError(f"{name} is a share and lies in [0, 1], got {value:,.6g}")
        if value < 0 or (line.positive and value == 0):
            raise UsageError(f"{name} must be {'positive' if line.positive else 'at least 0'}, got {value:,.6g}")
        self._lines[name] = Assumption(name, value, line.unit, origin, source, line.positive)
        return value

    def single(self, name: str) -> float:
        """Add the default of a name of which there is one for the whole run; return the value that counts."""
        return self.add(self._defaults[name])

    def of_tool(self, tool: str, name: str, measured: float | None, source: str) -> float:
        """Add a figure that may differ from one tool to the next; return the value that counts.

        The tool has a line of its own, `tool.name`, if it was given or measured; else all tools share one.
        """
        own, default = f"{tool}.{name}", self._defaults.get(f"{tool}.{name}", self._defaults[name])
        self._known.add(own)
        if measured is not None and name not in self._given:
            return self.add(Assumption(own, measured, default.unit, MEASURED, source))
        if own in self._given:
            return self.add(Assumption(own, default.value, default.unit, default.origin, default.source))
        return self.add(self._defaults[name] if name in self._given else default)

    def check(self) -> None:
        """Check that every value that was given has a place in the plan.

        Raises:
            UnknownNameError: one has not.
        """
        known = self._lines.keys() | self._known
        for name in self._given:
            if name not in known:
                raise UnknownNameError("assumption", name, known)
