"""Who asks, the question, the call that puts it to the tool, and what came of it: the records of `pool`."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolformer_core.errors import ToolformerError
from toolformer_core.records import ToolFailure, ToolResult

if TYPE_CHECKING:
    from toolformer_core.tools.execution.threads import Worker

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0

Question = tuple[str, str]  # input and context

# One result for each question; why a whole call gave none; or why the tool can answer nothing at all.
Outcome = list[ToolResult] | ToolFailure | ToolformerError


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question."""

    result: ToolResult
    calls: tuple[tuple[float, int], ...]  # of each call its seconds, and how many questions shared it


Inbox = queue.SimpleQueue[Callable[[], None]]  # what other threads ask the owner of the inbox to do
Post = Callable[[Callable[[], None]], None]
OnAnswer = Callable[[int, Answer], None]  # the question's number among those of one batch
OnError = Callable[[ToolformerError], None]


@dataclass(slots=True, eq=False)
class Asker:
    """Somebody who waits for answers; `on_answer` and `on_error` are posted."""

    post: Post
    on_answer: OnAnswer
    on_error: OnError
    unanswered: int
    owner: object  # whose turn it is when it is this asker's


@dataclass(slots=True, eq=False)
class PendingQuestion:
    """A question until it has an answer."""

    question: Question
    index: int  # among those of its asker
    asker: Asker
    number: int = -1  # in the order of first calls
    tries: int = 0
    alone: bool = False  # not in a batch any more
    calls: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Job:
    """A call of a tool, from when it is given to a worker; its giver may abandon it at any time."""

    questions: list[Question]  # one, or a batch for a `BatchTool`
    pending: list[PendingQuestion]  # who wait for them; none when it is over
    begin: Callable[[], None]  # called when the tool starts
    finish: Callable[[Outcome], None]
    since: float | None = None  # when the tool was called; None: its worker is not ready yet
    abandoned: bool = False  # nobody waits for the outcome any more
    worker: Worker | None = None  # what is at it


class Clock:
    """What time it is, and how to wait for a message. Tests put another in its place, and then nobody really waits."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, inbox: Inbox, seconds: float | None) -> Callable[[], None] | None:
        """Return the next message; None if none came in time (None: wait until one comes)."""
        try:
            return inbox.get(timeout=seconds)
        except queue.Empty:
            return None


def backoff_s(tries: int) -> float:
    """Return the seconds to wait after so many tries: any number up to 1 s, 2 s, 4 s, ... 30 s ("full jitter")."""
    return random.uniform(0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (tries - 1)))
