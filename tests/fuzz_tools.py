"""Gives a million generated texts to the calculator and to the parser of calls: `make fuzz-tools`.

    python -m tests.fuzz_tools [--inputs 1000000] [--seed 0] [--only NUMBER] [--json]

Every text goes to both: expressions, calls, mutations of them, nested brackets, any characters, and texts of up to
10,000 characters. Three things must hold:

    - nothing is raised but `CallSyntaxError`, and that only by `parse`;
    - no call of a function takes more than 10 ms of CPU time, by the clock of its thread, which stops while other
      processes run. A call that takes longer is repeated and its shortest time counts, because a garbage collection,
      for example, falls into one of them;
    - the results are right. An expression's answer is compared with its tree's (`support/expressions.py`), a call must
      come back as it was written, and the parser is compared with a plain one (`support/plain_syntax.py`).

A seed and a number give the same text everywhere: `--only NUMBER` shows one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from tests.support.call_texts import Case, draw_case
from tests.support.plain_syntax import plain_calls, plain_close, plain_parse
from toolformer_core import syntax
from toolformer_core.errors import CallSyntaxError
from toolformer_core.records import Call, ToolFailure, ToolResult
from toolformer_core.syntax import MAX_CALL_CHARS, FoundCall
from toolformer_core.tools.calculator import Calculator

__all__ = ["Finding", "Report", "Subjects", "fuzz"]

LIMIT_S = 0.010  # CPU time of one call
_TRIES = 5  # of a call that takes longer; its least time counts
_PLAIN_CHARS = 400  # longest text that the plain parser reads as well, because it takes quadratic time
_STEP = 100_000  # texts between two lines on standard error
_TOOLS = ("Calculator", "QA")  # for searches that look for the calls of some tools only
_SHOWN = 20  # findings printed
_KEPT, _KEPT_CHARS = 100, 1_000  # findings of a kind in the JSON object, and characters of each
_FAILURES = ("not_an_expression", "invalid_expression", "division_by_zero", "too_long")
_ANSWER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]{2})?")

Result = TypeVar("Result")


def _find_calls(text: str, names: Sequence[str] | None) -> list[FoundCall]:
    return list(syntax.find_calls(text, names))


@dataclass(frozen=True, slots=True)
class Subjects:
    """What is tried; each may be replaced by a broken one."""

    calculate: Callable[[str], ToolResult] = Calculator().run
    parse: Callable[[str], tuple[Call, str | None]] = syntax.parse
    find_calls: Callable[[str, Sequence[str] | None], Sequence[FoundCall]] = _find_calls
    find_close: Callable[[str, int], int | None] = syntax.find_close
    linearize: Callable[[Call, str | None], str] = syntax.linearize
    escape: Callable[[str], str] = syntax.escape


@dataclass(frozen=True, slots=True)
class Finding:
    """A text with which something went wrong."""

    number: int
    kind: str
    subject: str
    what: str
    text: str


@dataclass(slots=True)
class Report:
    """What became of the texts."""

    seed: int
    inputs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)  # of the calculator and of `parse`
    compared: Counter[str] = field(default_factory=Counter)  # texts whose right result was known
    wrong: list[Finding] = field(default_factory=list)  # an exception, or a result that is not right
    slow: list[Finding] = field(default_factory=list)
    retried: int = 0  # calls over the limit at the first try
    longest_ms: dict[str, float] = field(default_factory=dict)  # CPU time of one call, by subject
    cpu_s: float = 0.0  # of all calls together


class _Raised(Exception):
    """A subject raised something that it may not raise."""


class _Trial:
    """One text under trial: calls the subjects, takes their CPU time, and collects what is wrong."""

    def __init__(self, number: int, case: Case, subjects: Subjects, report: Report, clock: Callable[[], float]) -> None:
        self.number = number
        self.case = case
        self.subjects = subjects
        self.report = report
        self.clock = clock

    def timed(self, subject: str, function: Callable[..., Result], *arguments: object) -> Result:
        """Call a subject.

        Raises:
            CallSyntaxError: from `parse`.
            _Raised: anything else was raised, and is noted.
        """
        allowed = CallSyntaxError if subject == "parse" else ()
        start = self.clock()
        try:
            return function(*arguments)
        except allowed:
            raise
        except Exception as exc:
            self.wrong(subject, f"raised {type(exc).__name__}: {exc}")
            raise _Raised from exc
        finally:
            seconds = self.clock() - start
            self.report.cpu_s += seconds
            if seconds > LIMIT_S:
                self.report.retried += 1
                seconds = min(seconds, *(self._seconds_again(function, arguments) for _ in range(_TRIES - 1)))
                if seconds > LIMIT_S:
                    self.report.slow.append(self._finding(subject, f"{1000 * seconds:.1f} ms of CPU time"))
            milliseconds = 1000 * seconds
            if milliseconds > self.report.longest_ms.get(subject, 0.0):
                self.report.longest_ms[subject] = milliseconds

    def _seconds_again(self, function: Callable[..., object], arguments: Sequence[object]) -> float:
        start = self.clock()
        try:
            function(*arguments)
        except Exception:  # noqa: BLE001 - noted at the first try
            return self.clock() - start
        return self.clock() - start

    def wrong(self, subject: str, what: str) -> None:
        """Note that a result is not right."""
        self.report.wrong.append(self._finding(subject, what))

    def _finding(self, subject: str, what: str) -> Finding:
        return Finding(self.number, self.case.kind, subject, what, self.case.text)

    def run(self) -> None:
        """Try the text with every subject."""
        for check in (self._calculator, self._parse, self._find_close, self._find_calls, self._escape, self._call):
            try:
                check()
            except _Raised:
                continue

    def _calculator(self) -> None:
        result = self.timed("calculator", self.subjects.calculate, self.case.text)
        outcome = result.reason if isinstance(result, ToolFailure) else result.text
        failed = isinstance(result, ToolFailure)
        self.report.outcomes[f"calculator: {outcome if failed else 'answered'}"] += 1
        if (outcome not in _FAILURES) if failed else (_ANSWER.fullmatch(outcome) is None):
            self.wrong("calculator", f"{outcome!r} is neither an answer nor a documented failure")
        if self.case.answers is not None:
            self.report.compared["expressions"] += 1
            if outcome not in self.case.answers:
                self.wrong("calculator", f"{outcome!r} instead of {' or '.join(sorted(self.case.answers))}")

    def _parse(self) -> None:
        text = self.case.text
        first, last = text.find("["), text.rfind("]")
        bodies = {text, text[first + 1 : last]} if 0 <= first < last else {text}
        for body in sorted(bodies):
            read = self._read(body)
            self.report.outcomes["parse: no call" if read is None else "parse: a call"] += 1
            if len(body) <= _PLAIN_CHARS:
                self.report.compared["bodies"] += 1
                if read != (expected := plain_parse(body)):
                    self.wrong("parse", f"{read} instead of {expected}, of {body!r}")

    def _read(self, body: str) -> tuple[Call, str | None] | None:
        """Return what `parse` reads; None if it refuses."""
        try:
            return self.timed("parse", self.subjects.parse, body)
        except CallSyntaxError:
            return None

    def _find_close(self) -> None:
        found = self.timed("find_close", self.subjects.find_close, self.case.text, 0)
        if found != (expected := plain_close(self.case.text, 0)):
            self.wrong("find_close", f"{found} instead of {expected}")

    def _find_calls(self) -> None:
        text, end = self.case.text, 0
        calls = self.timed("find_calls", self.subjects.find_calls, text, None)
        for found in calls:
            inside = text[found.start : found.end].removeprefix(" ")[1:-1]
            if found.start < end or len(inside) > MAX_CALL_CHARS:
                self.wrong("find_calls", f"the span {found.start} to {found.end} overlaps another or is too long")
            if self._read(inside) != (found.call, found.response):
                self.wrong("find_calls", f"{found} is not what `parse` reads there")
            end = found.end
        if len(text) <= _PLAIN_CHARS:
            self.report.compared["searches"] += 1
            if list(calls) != (expected := list(plain_calls(text))):
                self.wrong("find_calls", f"{calls} instead of {expected}")
            some = self.timed("find_calls", self.subjects.find_calls, text, _TOOLS)
            if list(some) != (expected := list(plain_calls(text, _TOOLS))):
                self.wrong("find_calls", f"{some} of {_TOOLS} instead of {expected}")

    def _escape(self) -> None:
        escaped = self.timed("escape", self.subjects.escape, self.case.text)
        if escaped != self.case.text.replace("[", "(").replace("]", ")"):
            self.wrong("escape", f"{escaped!r}")

    def _call(self) -> None:
        case = self.case
        if case.call is None:
            return
        self.report.compared["calls"] += 1
        written = self.timed("linearize", self.subjects.linearize, case.call, case.response)
        if f"{case.before}{written}{case.after}" != case.text:
            self.wrong("linearize", f"wrote {written!r}")
        response = None if case.response is None else self.subjects.escape(case.response).strip()
        if (read := self._read(written[2:-1])) != (case.call, response):
            self.wrong("parse", f"reads {read} instead of {(case.call, response)}")
        close = self.timed("find_close", self.subjects.find_close, written, 2)
        if close != len(written) - 1:
            self.wrong("find_close", f"the call ends at {close} instead of {len(written) - 1}")
        start = len(case.before)
        expected = FoundCall(case.call, response, start, start + len(written))
        found = list(self.timed("find_calls", self.subjects.find_calls, case.text, None))
        if len(written) - 3 > MAX_CALL_CHARS:  # without " [" and "]"
            if expected in found:
                self.wrong("find_calls", "finds a call that is too long")
        elif found != [expected]:
            self.wrong("find_calls", f"does not find {expected} alone")


def fuzz(
    numbers: Iterable[int],
    seed: int = 0,
    subjects: Subjects | None = None,
    clock: Callable[[], float] = time.thread_time,
    draw: Callable[[int, int], Case] = draw_case,
) -> Report:
    """Try the texts with these numbers.

    Args:
        numbers: of the texts.
        seed: with a number it decides on a text.
        subjects: what is tried; default: the calculator and the parser.
        clock: seconds of CPU time.
        draw: makes the text of a seed and a number.
    """
    report = Report(seed)
    for number in numbers:
        case = draw(seed, number)
        report.inputs += 1
        report.kinds[case.kind] += 1
        _Trial(number, case, subjects or Subjects(), report, clock).run()
    return report


def _say(line: str) -> None:
    sys.stdout.write(line.encode("ascii", "backslashreplace").decode() + "\n")  # whatever the terminal can show
    sys.stdout.flush()


def _counted(inputs: int) -> Iterator[int]:
    """Yield the numbers of the texts, and tell on standard error how far it has come."""
    for number in range(inputs):
        if number and number % _STEP == 0:
            sys.stderr.write(f"{number:,} of {inputs:,} texts\n")
        yield number


def _print(report: Report, wall_s: float) -> None:
    _say(
        f"{report.inputs:,} texts of seed {report.seed}: {wall_s:.0f} s, of which {report.cpu_s:.0f} s in the subjects"
    )
    for title, counts in (("kind", report.kinds), ("outcome", report.outcomes), ("compared", report.compared)):
        for name, count in sorted(counts.items()):
            _say(f"  {title:<9} {name:<34} {count:>10,}")
    for subject, milliseconds in sorted(report.longest_ms.items()):
        _say(f"  longest   {subject:<34} {milliseconds:>7.2f} ms of CPU time")
    _say(f"{report.retried} calls took more than {1000 * LIMIT_S:.0f} ms at first, {len(report.slow)} at every try")
    for finding in (report.wrong + report.slow)[:_SHOWN]:
        shown = (
            finding.text if len(finding.text) <= 300 else f"{finding.text[:300]}... ({len(finding.text):,} characters)"
        )
        _say(f"{finding.number} ({finding.kind}) {finding.subject}: {finding.what[:500]}\n    {shown!r}")
    _say(f"{len(report.wrong)} wrong, {len(report.slow)} slow")


def _as_json(report: Report, wall_s: float) -> dict[str, Any]:
    shown = [*report.wrong[:_KEPT], *report.slow[:_KEPT]]
    return {
        "seed": report.seed,
        "inputs": report.inputs,
        "kinds": dict(report.kinds),
        "outcomes": dict(report.outcomes),
        "compared": dict(report.compared),
        "wrong": len(report.wrong),
        "slow": len(report.slow),
        "retried": report.retried,
        "longest_ms": {subject: round(ms, 2) for subject, ms in report.longest_ms.items()},
        "cpu_s": round(report.cpu_s, 1),
        "wall_s": round(wall_s, 1),
        "findings": [asdict(replace(f, text=f.text[:_KEPT_CHARS], what=f.what[:_KEPT_CHARS])) for f in shown],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="number of texts")
    parser.add_argument("--seed", type=int, default=0, help="of the texts")
    parser.add_argument("--only", type=int, help="show and try the text with this number")
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    given = parser.parse_args(arguments)
    if given.only is not None:
        _say(repr(draw_case(given.seed, given.only)))
    start = time.monotonic()
    report = fuzz(_counted(given.inputs) if given.only is None else [given.only], given.seed)
    wall_s = time.monotonic() - start
    _print(report, wall_s)
    if given.json:
        _say(json.dumps(_as_json(report, wall_s)))
    sys.exit(1 if report.wrong or report.slow else 0)


if __name__ == "__main__":
    main()
