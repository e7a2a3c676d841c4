"""Who asks, what was asked, what came of it, and how long a question waits for its next try: the records of `pool`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from toolformer_core.errors import ToolformerError
from toolformer_core.records import ToolResult
from toolformer_core.tools.execution.jobs import Job, Question

_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question."""

    result: ToolResult
    calls: tuple[tuple[float, int], ...]  # of each call its seconds, and how many questions shared it


Post = Callable[[Callable[[], None]], None]
OnAnswer = Callable[[int, Answer], None]  # the question's number among those asked together
OnError = Callable[[ToolformerError], None]


@dataclass(slots=True, eq=False)
class Asker:
    """Somebody who waits for answers; `on_answer` and `on_error` are posted."""

    post: Post
    on_answer: OnAnswer
    on_error: OnError
    unanswered: int = 0


@dataclass(slots=True, eq=False)
class Asked:
    """A question until it has an answer."""

    question: Question
    index: int  # among those that its asker asked
    asker: Asker
    number: int = -1  # in the order of first calls
    tries: int = 0
    alone: bool = False  # not in a batch any more
    calls: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Running:
    """A call in progress."""

    asked: list[Asked]
    job: Job
    since: float | None = None  # when the tool was asked; None: its worker is not ready yet


def backoff_s(tries: int) -> float:
    """Return the seconds to wait before a question is asked again: any number up to 1 s, 2 s, 4 s, ... 30 s.

    The random part keeps questions that failed together from coming again together ("full jitter").

    Args:
        tries: so far, at least 1.
    """
    return random.uniform(0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (tries - 1)))
