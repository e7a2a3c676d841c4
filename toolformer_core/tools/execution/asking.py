"""Who asks, the question, what came of it, and who carries it out: the records and protocols of `pool`.

A job is one question, or a batch of them. What carries it out calls `begin` when the tool starts and `finish` with
what came of it; its giver may abandon it at any time. Why a job is given or abandoned is decided in `pool`.
"""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from toolformer_core.errors import ToolformerError
from toolformer_core.records import ToolFailure, ToolResult

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0

Question = tuple[str, str]  # input and context

# One result for each question; why a whole call gave none; or why the tool can answer nothing at all.
Outcome = list[ToolResult] | ToolFailure | ToolformerError


@dataclass(slots=True, eq=False)
class Job:
    """A call of a tool."""

    questions: Sequence[Question]  # one, or a batch for a `BatchTool`
    begin: Callable[[], None]  # called when the tool starts; the time that a call may take runs from here
    finish: Callable[[Outcome], None]  # called with the outcome
    abandoned: bool = False  # nobody waits for the outcome any more
    worker: Worker | None = None  # what is at it


class Worker(Protocol):
    """Carries out one job after another, in the thread that calls it."""

    def answer(self, job: Job) -> Outcome:
        """Begin the job, and return its outcome."""

    def stop(self) -> None:
        """Interrupt the job that is under way, if that can be done, for good; called from any thread."""

    def close(self) -> None:
        """Free what it holds; called by its own thread."""


class Workers(Protocol):
    """Carries out any number of jobs at a time."""

    def start(self, job: Job) -> None:
        """Have a job carried out; return at once."""

    def abandon(self, job: Job) -> None:
        """Give a job up: its `finish` need not be called, and what carried it out is replaced."""

    def close(self) -> None:
        """Give all jobs up."""


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
    unanswered: int = 0
    owner: object = None  # for whom; None: itself

    @property
    def turn(self) -> object:
        """Whose turn it is when it is this asker's."""
        return self if self.owner is None else self.owner


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
class Running:
    """A call in progress."""

    pending: list[PendingQuestion]
    job: Job
    since: float | None = None  # when the tool was called; None: its worker is not ready yet


class Clock:
    """What time it is, and how to wait for a message. Tests put another in its place, and then nobody really waits."""

    def now(self) -> float:
        """Return seconds that only grow."""
        return time.monotonic()

    def wait(self, inbox: Inbox, seconds: float | None) -> Callable[[], None] | None:
        """Return the next message; None if none came in time (None: wait until one comes)."""
        try:
            return inbox.get(timeout=seconds)
        except queue.Empty:
            return None


def backoff_s(tries: int) -> float:
    """Return the seconds to wait before a question is retried: any number up to 1 s, 2 s, 4 s, ... 30 s.

    The random part keeps questions that failed together from coming again together ("full jitter").

    Args:
        tries: so far, at least 1.
    """
    return random.uniform(0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (tries - 1)))
