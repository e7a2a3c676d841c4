"""Runs a tool safely: an exception becomes a failure, and a response becomes one escaped line.

Only a `ToolformerError` is passed on, because it says that the tool cannot answer anything.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NoReturn

from toolformer_core.errors import ToolformerError
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult
from toolformer_core.syntax import escape
from toolformer_core.tools.base import BatchTool, Tool

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")  # the categories Cc and Cs
_LOOKED_AT = 100  # characters of a response, for each one that may be kept

_EXIT = os._exit
_guarded = threading.local()  # pid: the process in which this thread is at a tool's code; unset: at other code


@contextmanager
def without_exit() -> Iterator[None]:
    """Have `os._exit` raise `SystemExit` in this thread; in a process that is forked meanwhile it ends that process."""
    if os._exit is _EXIT:
        os._exit = _raise_exit
    before = getattr(_guarded, "pid", None)
    _guarded.pid = os.getpid()
    try:
        yield
    finally:
        _guarded.pid = before


def _raise_exit(status: int) -> NoReturn:
    if getattr(_guarded, "pid", None) == os.getpid():
        raise SystemExit(f"it called os._exit({status})")
    _EXIT(status)


def run_guarded(tool: Tool, input_: str, context: str) -> ToolResult | ToolformerError:
    """Run a tool and return its result. An exception becomes a failure; a `ToolformerError` is returned as it is."""
    result = _guarded_call(lambda: tool.run(input_, context))
    return result if isinstance(result, ToolformerError) else _checked(result)


def _guarded_call(call: Callable[[], object]) -> object:
    try:
        with without_exit():
            return call()
    except ToolformerError as exc:  # the input is not to blame
        return exc
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001  third-party code: its failure is a result, whatever class it has
        try:
            message = str(exc)
        except Exception:  # noqa: BLE001  third-party code, too
            message = "(its message cannot be read)"
        return ToolFailure("crashed", f"{type(exc).__name__}: {message}")


def run_questions(tool: Tool, questions: Sequence[tuple[str, str]]) -> list[ToolResult] | ToolFailure | ToolformerError:
    """Ask a tool one question (input, context), or a `BatchTool` several together.

    Return a result for each; or a failure, if a batch as a whole has none; or the `ToolformerError` that was raised.
    """
    if len(questions) == 1 or not isinstance(tool, BatchTool):
        ((input_, context),) = questions
        result = run_guarded(tool, input_, context)
        return result if isinstance(result, ToolformerError) else [result]
    answers = _guarded_call(lambda: tool.run_batch(questions))
    if isinstance(answers, ToolformerError | ToolFailure):
        return answers
    if not isinstance(answers, list) or len(answers) != len(questions):
        said = f"{len(answers)} results" if isinstance(answers, list) else type(answers).__name__
        return ToolFailure("crashed", f"the tool returned {said} for {len(questions)} questions")
    return [_checked(answer) for answer in answers]


def _checked(result: object) -> ToolResult:
    if isinstance(result, ToolFailure) or (isinstance(result, ToolResponse) and isinstance(result.text, str)):
        return result
    return ToolFailure("crashed", f"the tool returned {type(result).__name__}, not a response or a failure")


def response_or_failure(result: ToolResult, max_chars: int) -> tuple[str, ToolFailure | None]:
    """Return a response as `response_line` does, or "" and the failure: `failed` if it has no reason, or `empty`."""
    if isinstance(result, ToolFailure):
        return "", result if result.reason else replace(result, reason="failed")
    response = response_line(result.text, max_chars)
    return response, None if response else ToolFailure("empty", "the tool answered with nothing")


def response_line(text: str, max_chars: int) -> str:
    """Return a response as a call may hold it: one line, without control characters, cut at a word, escaped.

    Of a huge text at most 100 characters are looked at for each that may be kept. A single longer word is cut inside.
    """
    seen = " ".join(text[: _LOOKED_AT * (max_chars + 1)].split())
    line = " ".join(_CONTROL.sub("", seen).split())
    if len(line) > max_chars:
        cut = line[:max_chars]
        if line[max_chars] != " " and " " in cut:
            cut = cut[: cut.rindex(" ")]
        line = cut.rstrip()
    return escape(line)
