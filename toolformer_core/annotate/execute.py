"""Execute: every distinct input of a tool once, and whatever comes of it as a record.

    | failure  | because                                                                       |
    |----------|-------------------------------------------------------------------------------|
    | crashed  | the tool raised, or returned something that is no result                      |
    | timeout  | the tool did not answer in time, nor when asked once more                     |
    | empty    | it answered, but nothing is left once control characters are removed          |
    | any word | the tool's own reason, from the `ToolFailure` it returned                     |

A response becomes one line of at most `max_response_chars` characters, escaped (see `syntax`): nothing a tool answers
can open or close a call.

A tool is somebody else's code, so this is the one place of the core that catches `Exception`. Only a `ToolformerError`
is let through: it says that the tool can answer nothing. The tool runs in a daemon thread; one that does not answer is
left behind, and neither stops the others nor keeps the process alive. Three timeouts in a row are no answer about any
input, so they end the stage. This stage knows neither documents nor positions: equal questions of a whole shard are one
question. One whose answer is `known` from earlier is not asked again; whether that may still be used is not decided
here, but `lasting` says which failures are no accident of the hour.
"""

from __future__ import annotations

import queue
import threading
import unicodedata
from collections.abc import Iterable, Mapping

from toolformer_core.config import ExecuteConfig
from toolformer_core.errors import ToolError, ToolformerError
from toolformer_core.records import Execution, ToolFailure, ToolResponse, ToolResult, storable
from toolformer_core.syntax import escape
from toolformer_core.tools.base import Tool

__all__ = ["execute", "guarded", "lasting", "one_line"]

_DETAIL_CHARS = 500
_TRIES = 2  # of an input whose failure is retryable
_TIMEOUTS = 3  # in a row, tries of one input included
_ACCIDENTS = ("crashed", "timeout")
_SHOWN_CHARS = 80  # of an input, in a message


def execute(
    tool: Tool,
    requests: Iterable[tuple[str, str]],
    config: ExecuteConfig,
    known: Mapping[tuple[str, str], Execution] | None = None,
    *,
    offline: bool = False,
) -> list[Execution]:
    """Run a tool on every distinct (input, context), one after the other; a retryable failure is tried once more.

    The tool is loaded first, outside the time a call may take; if every answer is known, not even that.

    Args:
        tool: the tool.
        requests: (input, context) pairs, repeats allowed.
        config: `timeout_s` per call, in seconds (default 30); `max_response_chars` (default 1,000).
        known: what came of earlier calls of this tool under this config; it is returned as it is.
        offline: ask the tool nothing.

    Returns:
        One `Execution` per distinct pair, in order of first appearance.

    Raises:
        ToolError: the tool let three calls in a row run out of time, or `offline` and an answer is not known.
        ToolformerError: the tool itself raised one, e.g. as its data cannot be read. Nothing else it does raises.
    """
    known = known or {}
    distinct = list(dict.fromkeys(requests))
    asked = [question for question in distinct if question not in known]
    if not asked:
        return [known[question] for question in distinct]
    if offline:
        raise ToolError(_unknown(tool, asked))
    tool.load()
    patient = _Patient(tool, config.timeout_s)
    try:
        return [
            known.get((input_, context))
            or _record(tool.key, input_, context, patient.ask(input_, context), config.max_response_chars)
            for input_, context in distinct
        ]
    finally:
        patient.stop()


def lasting(failure: str) -> bool:
    """Say of what came of a call ("": a response) whether it would come again: timeouts and crashes are accidents."""
    return failure not in _ACCIDENTS


def _unknown(tool: Tool, asked: list[tuple[str, str]]) -> str:
    input_, context = asked[0]
    said = input_ if len(input_) <= _SHOWN_CHARS else input_[:_SHOWN_CHARS] + "..."
    where = f" (context {context!r})" if context else ""
    more = f", and to {len(asked) - 1} more of this shard" if len(asked) > 1 else ""
    return f"offline: no answer is kept of {tool.key} to {said!r}{where}{more}; run once without --offline"


def one_line(text: str, max_chars: int) -> str:
    """Return a response as it may stand in a call: one line, no control characters, cut at a word, escaped.

    Args:
        text: the tool's answer.
        max_chars: the most characters returned; a single longer word is cut inside.
    """
    line = "".join(c for c in " ".join(text.split()) if unicodedata.category(c) not in ("Cc", "Cs"))
    line = " ".join(line.split())
    if len(line) > max_chars:
        cut = line[:max_chars]
        if line[max_chars] != " " and " " in cut:
            cut = cut[: cut.rindex(" ")]
        line = cut.rstrip()
    return escape(line)


def _record(tool: str, input_: str, context: str, result: ToolResult, max_chars: int) -> Execution:
    if isinstance(result, ToolResponse):
        response = one_line(result.text, max_chars)
        if response:
            return Execution(tool, input_, context, response, "")
        result = ToolFailure("empty", "the tool answered with nothing")
    return Execution(tool, input_, context, "", result.reason or "failed", storable(result.detail[:_DETAIL_CHARS]))


class _Patient:
    """Asks a tool, once more where that may help, and gives it up when it no longer answers."""

    def __init__(self, tool: Tool, timeout_s: float) -> None:
        self._tool = tool
        self._timeout_s = timeout_s
        self._runner = _Runner(tool)
        self._timeouts = 0  # in a row

    def ask(self, input_: str, context: str) -> ToolResult:
        result = self._try(input_, context)
        for _ in range(_TRIES - 1):
            if isinstance(result, ToolFailure) and result.retryable:
                result = self._try(input_, context)
        return result

    def stop(self) -> None:
        self._runner.stop()

    def _try(self, input_: str, context: str) -> ToolResult:
        result = self._runner.ask(input_, context, self._timeout_s)
        if result is not None:
            self._timeouts = 0
            return result
        self._timeouts += 1
        if self._timeouts == _TIMEOUTS:
            raise ToolError(
                f"tool {self._tool.key} does not answer: {_TIMEOUTS} timeouts of {self._timeout_s:g} s in a row; "
                "its calls of this shard are not committed"
            )
        self._runner = _Runner(self._tool)  # the old thread is still in the tool: leave it
        return ToolFailure("timeout", f"no answer within {self._timeout_s:g} s", retryable=True)


class _Runner:
    """One daemon thread that asks the tool, one question at a time."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._questions: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[ToolResult | ToolformerError] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"tool-{tool.key}", daemon=True)
        self._thread.start()

    def ask(self, input_: str, context: str, timeout_s: float) -> ToolResult | None:
        """Return the tool's result, or None if it is not there in time; the runner is of no use then.

        Raises:
            ToolformerError: the tool raised it.
        """
        self._questions.put((input_, context))
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self.stop()  # should it ever come back, it finds this and ends
            return None
        if isinstance(answer, ToolformerError):
            raise answer
        return answer

    def stop(self) -> None:
        self._questions.put(None)

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            self._answers.put(guarded(self._tool, *question))


def guarded(tool: Tool, input_: str, context: str) -> ToolResult | ToolformerError:
    try:
        result: object = tool.run(input_, context)
    except ToolformerError as exc:  # no input is to blame
        return exc
    except (Exception, SystemExit) as exc:  # noqa: BLE001  somebody else's code: its failure is a result
        return ToolFailure("crashed", f"{type(exc).__name__}: {exc}")
    if isinstance(result, ToolFailure):
        return result
    if isinstance(result, ToolResponse) and isinstance(result.text, str):
        return result
    return ToolFailure("crashed", f"the tool returned {type(result).__name__}, not a response or a failure")
