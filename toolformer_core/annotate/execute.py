"""Execute: every distinct input of a tool once, and whatever comes of it as a record.

    | failure  | because                                                                       |
    |----------|-------------------------------------------------------------------------------|
    | crashed  | the tool raised, or returned something that is no result                      |
    | timeout  | the tool did not answer in time, nor when asked once more                     |
    | empty    | it answered, but nothing is left once control characters are removed          |
    | any word | the tool's own reason, from the `ToolFailure` it returned                     |

A response becomes one line of at most `max_response_chars` characters, escaped (see `syntax`): nothing a tool answers
can open or close a call.

A question is an input and its context: what the tool may know of the document besides, e.g. its date. Questions are
asked many at a time where the caller's `ToolPool` has threads for it. A tool that does not answer is left
behind in its thread, and neither stops the others nor keeps the process alive. Three timeouts in a row, in the order of
the questions, say nothing about any input: the tool is dead, and the stage ends. This stage knows neither documents nor
positions: equal questions of a whole shard are one question. One whose answer is `known` from earlier is not asked
again; whether that may still be used is not decided here, but `lasting` says which failures would come again.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial

from toolformer_core.config import ExecuteConfig
from toolformer_core.errors import ToolError, ToolformerError
from toolformer_core.records import Execution, ToolFailure, ToolResponse, ToolResult, storable
from toolformer_core.tools.base import Tool
from toolformer_core.tools.pool import ToolPool
from toolformer_core.tools.responses import response_line

__all__ = ["execute", "lasting"]

_DETAIL_CHARS = 500
_TRIES = 2  # of an input whose failure is retryable
_TIMEOUTS = 3  # in a row, tries of one input included
_ACCIDENTS = ("crashed", "timeout")
_SHOWN_CHARS = 80  # of an input, in a message


def execute(
    tool: Tool,
    questions: Iterable[tuple[str, str]],
    config: ExecuteConfig,
    known: Mapping[tuple[str, str], Execution] | None = None,
    *,
    offline: bool = False,
    pool: ToolPool | None = None,
) -> list[Execution]:
    """Ask a tool every distinct question (input, context) once; a retryable failure is tried once more.

    The tool is loaded first, outside the time a call may take; if every answer is known, not even that.

    Args:
        tool: the tool.
        questions: (input, context) pairs, repeats allowed.
        config: `timeout_s` per call, in seconds (default 30); `max_response_chars` (default 1,000).
        known: what came of earlier calls of this tool under this config; it is returned as it is.
        offline: ask the tool nothing.
        pool: the threads that ask the tool, many questions at a time; None: one thread of its own.

    Returns:
        One `Execution` per distinct pair, in order of first appearance.

    Raises:
        ToolError: the tool let three calls in a row run out of time, or `offline` and an answer is not known.
        ToolformerError: the tool itself raised one, e.g. as its data cannot be read. Nothing else it does raises.
    """
    known = known or {}
    distinct = list(dict.fromkeys(questions))
    unknown = [question for question in distinct if question not in known]
    if not unknown:
        return [known[question] for question in distinct]
    if offline:
        raise ToolError(_not_cached(tool, unknown))
    if pool is None:
        with closing(ToolPool([tool], timeout_s=config.timeout_s, workers=1, replace_overdue=True)) as pool:
            return execute(tool, distinct, config, known, pool=pool)
    tool.load()
    results = _Questions(tool, unknown, pool).ask()
    answers = {
        question: _record(tool.key, *question, result, config.max_response_chars)
        for question, result in zip(unknown, results, strict=True)
    }
    return [known.get(question) or answers[question] for question in distinct]


def lasting(failure: str) -> bool:
    """Say of what came of a call ("": a response) whether it would come again: timeouts and crashes are accidents."""
    return failure not in _ACCIDENTS


def _not_cached(tool: Tool, unknown: list[tuple[str, str]]) -> str:
    input_, context = unknown[0]
    said = input_ if len(input_) <= _SHOWN_CHARS else input_[:_SHOWN_CHARS] + "..."
    where = f" (context {context!r})" if context else ""
    more = f", and to {len(unknown) - 1} more of this shard" if len(unknown) > 1 else ""
    return f"offline: no answer is kept of {tool.key} to {said!r}{where}{more}; run once without --offline"


def _record(tool: str, input_: str, context: str, result: ToolResult, max_chars: int) -> Execution:
    if isinstance(result, ToolResponse):
        response = response_line(result.text, max_chars)
        if response:
            return Execution(tool, input_, context, response, "")
        result = ToolFailure("empty", "the tool answered with nothing")
    return Execution(tool, input_, context, "", result.reason or "failed", storable(result.detail[:_DETAIL_CHARS]))


class _Questions:
    """The questions of one `execute`, until each has a result; a retryable failure is asked again."""

    def __init__(self, tool: Tool, questions: Sequence[tuple[str, str]], pool: ToolPool) -> None:
        self._tool = tool
        self._questions = questions
        self._pool = pool
        self._results: list[ToolResult | None] = [None] * len(questions)
        self._tries = [0] * len(questions)
        self._timeouts = [0] * len(questions)  # tries that ran out of time, until one does not
        self._pending = len(questions)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def ask(self) -> list[ToolResult]:
        for number in range(len(self._questions)):
            self._put(number)
        while self._pending:
            try:
                deliver = self._inbox.get(timeout=self._pool.expire())
                deliver()  # calls `_take` in this thread
            except queue.Empty:
                continue  # something may be overdue now
        return [result for result in self._results if result is not None]

    def _put(self, number: int) -> None:
        self._tries[number] += 1
        input_, context = self._questions[number]
        done = partial(self._take, number)
        self._pool.ask(self._tool.name, input_, context, self._inbox.put, done, self)

    def _take(self, number: int, result: ToolResult | ToolformerError, _seconds: float) -> None:
        if isinstance(result, ToolformerError):
            self._pool.forget(self)
            raise result
        timed_out = result is self._pool.overdue
        self._timeouts[number] = self._timeouts[number] + 1 if timed_out else 0
        if timed_out and self._timeouts_in_a_row(number) >= _TIMEOUTS:
            self._pool.forget(self)
            raise ToolError(
                f"tool {self._tool.key} does not answer: {_TIMEOUTS} timeouts of {self._pool.timeout_s:g} s in a row; "
                "none of the answers of this batch are kept"
            )
        retry = isinstance(result, ToolFailure) and (result.retryable or timed_out)
        if retry and self._tries[number] < _TRIES:
            self._put(number)
            return
        self._results[number] = result
        self._pending -= 1

    def _timeouts_in_a_row(self, number: int) -> int:
        """Return the timeouts of a question and of its neighbours, as far as these had no other result."""
        first = last = number
        while first > 0 and self._timeouts[first - 1]:
            first -= 1
        while last + 1 < len(self._timeouts) and self._timeouts[last + 1]:
            last += 1
        return sum(self._timeouts[first : last + 1])
