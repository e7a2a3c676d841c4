"""The numbers that a plan rests on: a line each, with its origin, and each replaceable with `--assume`; and the cards.

Origins: `given` by an option; `measured` by a sample build or a benchmark of ours; `paper`: Toolformer; `vendor`: the
card's or service's maker; `config`: our defaults, or the model's config.json; `computed` from other lines; `assumed`.
"""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flows.forms.calls import number_in
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.evaluate.figures import EXAMPLES_BY_THRESHOLD


@dataclass(frozen=True, slots=True)
class Assumption:
    name: str
    value: float
    unit: str  # of a "share" the value lies in [0, 1]
    origin: str  # see the module
    source: str  # where exactly, or why


# Names, of a tool's the part after the point, of which 0 would make the plan meaningless, e.g. of a divisor.
_POSITIVE = frozenset(
    "calls_at_once characters_a_token text_copies padding mfu bandwidth_share decode_rows gpu_busy_share cpu_gflops "
    "cpu_mfu sequence_length evaluate_every training_mfu tflops bandwidth cores".split()
)
_HERE = Path(__file__).parent


def _rows(name: str) -> list[dict[str, str]]:
    with (_HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# First the rates that a sample build measures for each tool, then those of the whole run, and of the finetuning.
DEFAULTS: Mapping[str, Assumption] = {
    row["name"]: Assumption(row["name"], float(row["value"]), row["unit"], row["origin"], row["source"])
    for row in _rows("assumptions.csv")
}

# Card -> TFLOP/s of bf16 without sparsity, GB/s of its memory, and the maker's page.
CARDS: Mapping[str, tuple[float, float, str]] = {
    row["card"]: (float(row["tflops"]), float(row["bandwidth"]), row["source"]) for row in _rows("cards.csv")
}


def examples_a_document(tool: str, tau_f: float) -> tuple[float, str, str]:
    """Return the examples of C* per document at the tau_f of Table 2 that is nearest: value, origin, source."""
    counts = EXAMPLES_BY_THRESHOLD.get(tool)
    if counts is None:
        return 0.01, "assumed", "between the paper's calendar and its calculator"
    nearest = min(counts, key=lambda tau: (abs(tau - tau_f), tau))
    source = f"Toolformer, Table 2 at tau_f {nearest:g}, over a million documents (section 7: more than a million)"
    return counts[nearest] / 1_000_000, "paper", source


def parse(texts: Iterable[str]) -> dict[str, float]:
    """Parse what `--assume` was given: `name=value`, several of them with commas between."""
    given: dict[str, float] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, _, text = part.partition("=")
        value = number_in(text)
        if not name.strip() or not math.isfinite(value):
            raise UsageError(f"--assume {part}: write name=number, e.g. --assume calculator.kept_share=0.1")
        if value < 0:
            raise UsageError(f"--assume {part}: no assumption is negative")
        given[name.strip()] = value
    return given


class Assumptions:
    """The assumptions of one plan, in the order of their first use; a given value replaces all others."""

    def __init__(self, given: Mapping[str, float]) -> None:
        self.given = given
        self.lines: dict[str, Assumption] = {}  # those that were used
        self._known = set(DEFAULTS)

    def add(self, line: Assumption) -> float:
        """Add a line, unless there is one of its name; return the value that counts."""
        name = line.name
        if name not in self.lines:
            if name in self.given:
                source = f"instead of {line.value:,.6g}, {line.origin}"
                line = replace(line, value=self.given[name], origin="given", source=source)
            if line.unit == "share" and line.value > 1:
                raise UsageError(f"{name} is a share and lies in [0, 1], got {line.value:,.6g}")
            positive = name.rpartition(".")[2] in _POSITIVE
            if line.value < 0 or (positive and line.value == 0):
                raise UsageError(f"{name} must be {'positive' if positive else 'at least 0'}, got {line.value:,.6g}")
            self.lines[name] = line
        return self.lines[name].value

    def single(self, name: str) -> float:
        """Add the default of a name of which there is one for the whole run; return the value that counts."""
        return self.add(DEFAULTS[name])

    def of_tool(self, tool: str, name: str, measured: float | None, source: str) -> float:
        """Add a tool's figure: a line of its own, `tool.name`, if it was given or measured, else one that all share."""
        own = f"{tool}.{name}"
        default = DEFAULTS.get(own, DEFAULTS[name])
        self._known.add(own)
        if measured is not None and name not in self.given:
            return self.add(Assumption(own, measured, default.unit, "measured", source))
        if own in self.given:
            return self.add(replace(default, name=own))
        return self.add(DEFAULTS[name] if name in self.given else default)

    def check(self) -> None:
        """Check that every value that was given has a place in the plan."""
        known = self.lines.keys() | self._known
        for name in self.given:
            if name not in known:
                raise UnknownNameError("assumption", name, known)
