"""Shows a diagnosis under way, and prints what came of it. It judges nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn

from cli.render.console import Console, Display, narrow_table
from flows.runtime.progress import duration

if TYPE_CHECKING:
    from toolformer_core.diagnose.figures import Figures, Gains
    from toolformer_core.diagnose.verdict import Check, Verdict

_MARKS = {True: "ok", False: "NO", None: "-"}
_COUNTED = ("prompt",)  # steps measured by a count, not a share
_LABELS = {"gold": "right response", "wrong": "wrong response", "unrelated": "unrelated call"}  # of trials
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LOWEST, _HIGHEST = -4.0, 8.0  # nats; gains outside are counted in the outermost cells
_CELLS = 48  # of a quarter nat each


class DiagnosisDisplay(Display):
    """Progress per tool on standard error: a bar on a terminal, elsewhere a line a minute and per finished tool."""

    def __init__(self, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(*columns, quiet=quiet, clock=clock, transient=True)
        self.stdout = Console(soft_wrap=True)
        self._rows: dict[str, TaskID] = {}
        self._status = "loading the model"
        self._started = clock()  # when the current tool was begun

    def __call__(self, tool: str, done: int, total: int) -> None:
        with self.lock:
            if tool not in self._rows:
                self._rows[tool] = self.bars.add_task(tool, total=total)
                self._started = self.clock()
            self.bars.update(self._rows[tool], completed=done)
            sampled = f"{done} of {total} texts sampled" if done < total else "texts sampled, calls being scored"
            self._status = f"{tool:<10} {sampled}"
            if done == total and not self.console.is_terminal:
                self.say(f"{tool:<10} {done} texts sampled")

    def _due_lines(self, due: bool) -> list[str]:
        return [f"{self._status}; {duration(self.clock() - self._started)} so far"] if due else []


def print_diagnosis(console: Console, figures: Figures, verdict: Verdict) -> None:
    """Print one tool's verdict, its steps beside the embedded model's, and the gains of its calls."""
    head = "can be taught" if verdict.teachable else f"cannot be taught as it is: {verdict.step}"
    colour = "green" if verdict.teachable else "red"
    console.print(f"\n[bold]{verdict.tool}[/bold]  [{colour}]{head}[/{colour}]")
    console.print(escape(f"  {verdict.description}"))
    if verdict.suggestion:
        console.print(escape(f"  -> {verdict.suggestion}"))
    rows = []
    for check in verdict.checks:
        measures = (format_measure(check, value) for value in (check.measured, check.least, check.reference))
        rows.append((check.step, _MARKS[check.passed], *measures))
    console.print(narrow_table("", ("step", ""), ("measured", "least", "embedded"), rows))
    for check in verdict.checks:
        if check.passed is False and check.step != verdict.step:
            console.print(escape(f"  {check.step}: {check.description}"))
    if any(gains.gains for gains in figures.filter.kinds.values()):
        for line in gain_lines(figures.filter.kinds, figures.filter.tau_f):
            console.print(escape(f"  {line}"))


def gain_lines(kinds: Mapping[str, Gains], tau_f: float) -> list[str]:
    """Return the distributions of L- - L+: a line of blocks per kind of trial, and one that marks zero and tau_f."""
    out = []
    for kind, label in _LABELS.items():
        gains = kinds[kind].gains
        counts = [0] * _CELLS
        for gain in gains:
            counts[_cell(gain)] += 1
        most = max(counts) or 1
        bar = "".join(_BLOCKS[math.ceil(count / most * (len(_BLOCKS) - 1))] for count in counts)
        out.append(f"{label:<15}{bar} {len(gains):>4}")
    scale = [" "] * _CELLS
    scale[_cell(0.0)] = "0"
    scale[_cell(tau_f)] = "|"
    return [*out, f"{'L- - L+, nats':<15}{''.join(scale)}  from {_LOWEST:g} to {_HIGHEST:g}, | is tau_f = {tau_f:g}"]


def _cell(gain: float) -> int:
    return min(max(math.floor((gain - _LOWEST) / (_HIGHEST - _LOWEST) * _CELLS), 0), _CELLS - 1)


def format_measure(check: Check, value: float | None) -> str:
    """Return a measure as text; one decimal where a failed check's percentage would otherwise look like the limit."""
    if value is None:
        return "-"
    if check.step in _COUNTED:
        return f"{value:.0f}"
    near = check.passed is False and round(100 * value) == round(100 * check.least) and value != check.least
    return f"{100 * value:.{1 if near else 0}f} %".replace("-0 %", "0 %")


def print_verdicts(verdicts: Iterable[Verdict], *, comparable: bool) -> None:
    print()
    for verdict in verdicts:
        print(f"{verdict.tool:<11} {'can be taught' if verdict.teachable else 'stands in the way: ' + verdict.step}")
    if not comparable:
        print('the column "embedded" was measured on other texts than these; compare with care')
