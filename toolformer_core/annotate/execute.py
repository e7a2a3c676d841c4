"""Execute: every distinct question of a tool once, an input and its context, and what comes of it as a record.

    | failure  | because                                                                       |
    |----------|-------------------------------------------------------------------------------|
    | crashed  | the tool raised, or returned something that is no result                      |
    | timeout  | the tool did not answer in time, nor when called again                        |
    | empty    | it answered, but nothing is left once control characters are removed          |
    | any word | the tool's own reason, from the `ToolFailure` it returned                     |

A response becomes one line of at most `max_response_chars` characters, escaped (see `syntax`). How many questions run
at a time, how often one is retried, and when the tool counts as dead is decided in the caller's `AnnotationPool`. A
failure is `transient` if it need not come again, since the tool failed and not the input.
"""

import queue
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from toolformer_core.config import ExecuteConfig
from toolformer_core.errors import ToolError, ToolformerError
from toolformer_core.records import Execution, ToolResult, storable
from toolformer_core.tools.base import Tool, limits_of
from toolformer_core.tools.execution.asking import Answer, Inbox
from toolformer_core.tools.execution.pool import AnnotationPool
from toolformer_core.tools.execution.tally import CallTally
from toolformer_core.tools.responses import response_or_failure

ACCIDENTS = ("crashed", "timeout")  # failures that are transient whatever the tool says of them
_DETAIL_CHARS = 500


def execute(
    tool: Tool,
    questions: Iterable[tuple[str, str]],
    config: ExecuteConfig,
    known: Mapping[tuple[str, str], Execution] | None = None,
    *,
    offline: bool = False,
    pool: AnnotationPool | None = None,
    tally: CallTally | None = None,
) -> list[Execution]:
    """Ask a tool every distinct question (input, context) once; one whose failure is retryable is repeated.

    The tool is loaded first, outside the time a call may take; if every answer is known, not even that.

    Args:
        questions: (input, context) pairs, repeats allowed.
        known: what came of earlier calls of this tool under this config; it is returned as it is.
        pool: asks the tool, many questions at a time; None: one question at a time.
        tally: what the calls took is added to it.

    Returns:
        One `Execution` per distinct pair, in order of first appearance.

    Raises:
        ToolError: the tool does not answer at all, or `offline` and an answer is not known.
        ToolformerError: the tool itself raised one, e.g. as its data cannot be read. Nothing else it does raises.
    """
    known = known or {}
    distinct = list(dict.fromkeys(questions))
    unknown = [question for question in distinct if question not in known]
    if not unknown:
        return [known[question] for question in distinct]
    if offline:
        which = f"{unknown[0][0][:80]!r}, one of {len(unknown)} questions of this shard"
        raise ToolError(f"offline: no answer is kept of {tool.key} to {which}; run once without --answers stored")
    if pool is None:
        with closing(AnnotationPool(tool, timeout_s=config.timeout_s, at_once=1)) as pool:
            return execute(tool, distinct, config, known, pool=pool, tally=tally)
    pool.load()
    cost = limits_of(tool).cost
    answers: dict[tuple[str, str], Execution] = {}
    for question, answer in zip(unknown, _answers(pool, unknown), strict=True):
        answers[question] = _record(tool.key, *question, answer.result, config.max_response_chars)
        if tally is not None:
            tally.add(answer.calls, cost)
    return [known.get(question) or answers[question] for question in distinct]


def is_transient(failure: str, transient: bool | None = None) -> bool:
    """Return whether a call's outcome is a passing failure: as `transient` says, else a timeout or a crash."""
    return bool(failure) and (failure in ACCIDENTS if transient is None else transient)


def _answers(pool: AnnotationPool, questions: Sequence[tuple[str, str]]) -> list[Answer]:
    inbox: Inbox = queue.SimpleQueue()
    answers: dict[int, Answer] = {}
    errors: list[ToolformerError] = []
    asker = pool.ask(questions, inbox.put, answers.__setitem__, errors.append)
    try:
        while len(answers) < len(questions):
            message = pool.clock.wait(inbox, pool.tick())
            while message is not None:
                message()  # fills `answers` or `errors`, in this thread
                message = None if inbox.empty() else inbox.get_nowait()
            if errors:
                raise errors[0]
    finally:
        pool.forget(asker)
    return [answers[index] for index in range(len(questions))]


def _record(tool: str, input_: str, context: str, result: ToolResult, max_chars: int) -> Execution:
    response, failure = response_or_failure(result, max_chars)
    if failure is None:
        return Execution(tool, input_, context, response, "")
    transient = failure.retryable or is_transient(failure.reason)
    return Execution(tool, input_, context, "", failure.reason, storable(failure.detail[:_DETAIL_CHARS]), transient)
