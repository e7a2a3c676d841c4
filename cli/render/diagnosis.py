"""Shows a diagnosis under way, and prints what came of it. It judges nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from cli.render.console import Console, Display
from flows.progress import duration
from toolformer_core.diagnose.picture import gain_lines, gains_of

if TYPE_CHECKING:
    from toolformer_core.diagnose.run import Diagnosis
    from toolformer_core.diagnose.templates import TemplateFigures
    from toolformer_core.diagnose.verdict import Check

_MARKS = {True: "ok", False: "NO", None: "-"}
_COUNTED = ("prompt",)  # steps measured by a count, not a share


class DiagnosisDisplay(Display):
    """Progress per tool on standard error: a bar on a terminal, elsewhere a line a minute and per finished tool."""

    def __init__(self, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            quiet=quiet,
            clock=clock,
            transient=True,
        )
        self.stdout = Console(highlight=False, soft_wrap=True)
        self._rows: dict[str, TaskID] = {}
        self._status = "loading the model"
        self._started = clock()  # when the current tool was begun

    def __call__(self, tool: str, done: int, total: int) -> None:
        with self.lines.lock:
            if tool not in self._rows:
                self._rows[tool] = self.bars.add_task(tool, total=total)
                self._started = self.clock()
            self.bars.update(self._rows[tool], completed=done)
            self._status = (
                f"{tool:<10} {done} of {total} texts sampled"
                if done < total
                else f"{tool:<10} texts sampled, calls being scored"
            )
            if done == total and not self.console.is_terminal:
                self.lines.say(f"{tool:<10} {done} texts sampled")

    def _due_lines(self, due: bool) -> list[str]:
        return [f"{self._status}; {duration(self.clock() - self._started)} so far"] if due else []


def print_templates(rows: Iterable[TemplateFigures]) -> None:
    title = "Prompts in plain text and in a chat, against gold calls"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("tool")
    table.add_column("chat template")
    for name in ("well-formed", "executes", "equals gold", "kept", "right", "precision", "recall"):
        table.add_column(name, justify="right")
    for one in rows:
        shares = (one.well_formed, one.executes, one.equals_gold, one.precision, one.recall)
        well_formed, executes, equals, precision, recall = ("-" if x is None else f"{x:.2f}" for x in shares)
        counts = (str(one.kept), str(one.right))
        table.add_row(one.tool, one.chat_template, well_formed, executes, equals, *counts, precision, recall)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print("well-formed and equals gold: of the draws at gold positions; kept: at the tool's tau_f")


def print_diagnosis(console: Console, diagnosis: Diagnosis) -> None:
    """Print one tool's verdict, its steps beside the embedded model's, and the gains of its calls."""
    verdict, figures = diagnosis.verdict, diagnosis.measured.figures
    head = "can be taught" if verdict.teachable else f"cannot be taught as it is: {verdict.step}"
    colour = "green" if verdict.teachable else "red"
    console.print(f"\n[bold]{verdict.tool}[/bold]  [{colour}]{head}[/{colour}]")
    console.print(escape(f"  {verdict.told}"))
    if verdict.suggestion:
        console.print(escape(f"  -> {verdict.suggestion}"))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("step")
    table.add_column("")
    for name in ("measured", "least", "embedded"):
        table.add_column(name, justify="right")
    for check in verdict.checks:
        measures = (format_measure(check, value) for value in (check.measured, check.least, check.reference))
        table.add_row(check.step, _MARKS[check.passed], *measures)
    console.print(table)
    for check in verdict.checks:
        if check.passed is False and check.step != verdict.step:
            console.print(escape(f"  {check.step}: {check.told}"))
    if any((gains := gains_of(diagnosis.measured.observed)).values()):
        for line in gain_lines(gains, figures.filter.tau_f):
            console.print(escape(f"  {line}"))


def format_measure(check: Check, value: float | None) -> str:
    """Return a measure as text; one decimal where a failed check's percentage would otherwise look like the limit."""
    if value is None:
        return "-"
    if check.step in _COUNTED:
        return f"{value:.0f}"
    near = check.passed is False and round(100 * value) == round(100 * check.least) and value != check.least
    return f"{100 * value:.{1 if near else 0}f} %".replace("-0 %", "0 %")


def print_verdicts(diagnoses: Iterable[Diagnosis], *, comparable: bool) -> None:
    print()
    for diagnosis in diagnoses:
        verdict = diagnosis.verdict
        print(f"{verdict.tool:<11} {'can be taught' if verdict.teachable else 'stands in the way: ' + verdict.step}")
    if not comparable:
        print('the column "embedded" was measured on other texts than these; compare with care')
