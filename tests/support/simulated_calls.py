"""Calls of a tool in simulated time: it jumps to the end of the next call, or to what the pool said is due."""

import heapq
import itertools
import math
import queue
from collections.abc import Callable, Sequence

from toolformer_core.errors import ToolformerError
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult
from toolformer_core.tools.base import Tool
from toolformer_core.tools.execution.asking import Answer, Clock, Inbox, Job, Outcome, Question
from toolformer_core.tools.execution.pool import AnnotationPool

HANGS = math.inf

# From the questions of a call to the seconds that it takes, and its outcome. One question's may be a text.
Script = Callable[[Sequence[Question]], tuple[float, Outcome | ToolResult | str]]


class Simulation(Clock):
    def __init__(self, script: Script) -> None:
        self._script = script
        self._time = 0.0
        self._ends: list[tuple[float, int, Job, Outcome]] = []
        self._ties = itertools.count()
        self.calls: list[tuple[float, list[str]]] = []  # when each began, and its inputs
        self.at_once = 0  # calls in progress
        self.most_at_once = 0
        self.abandoned = 0

    def now(self) -> float:
        return self._time

    def wait(self, inbox: Inbox, seconds: float | None) -> Callable[[], None] | None:
        try:
            return inbox.get_nowait()
        except queue.Empty:
            pass
        assert seconds is not None, "nothing will ever happen"
        if self._ends and self._ends[0][0] <= self._time + seconds:
            self._time, _, job, outcome = heapq.heappop(self._ends)
            if not job.abandoned:
                self.at_once -= 1
                job.finish(outcome)
            return lambda: None
        self._time += seconds
        return None

    def start(self, job: Job) -> None:
        self.calls.append((round(self._time, 3), [input_ for input_, _ in job.questions]))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        job.begin()
        seconds, outcome = self._script(job.questions)
        if isinstance(outcome, str):
            outcome = ToolResponse(outcome)
        if isinstance(outcome, ToolResponse) or (isinstance(outcome, ToolFailure) and len(job.questions) == 1):
            outcome = [outcome]
        if seconds < HANGS:
            heapq.heappush(self._ends, (self._time + seconds, next(self._ties), job, outcome))

    def abandon(self, job: Job) -> None:
        job.abandoned = True
        self.at_once -= 1
        self.abandoned += 1

    def close(self) -> None:
        return None

    def pool(self, tool: Tool, timeout_s: float = 30.0, at_once: int | None = None) -> AnnotationPool:
        """Return a pool in this time, whose tries are two seconds apart."""
        return AnnotationPool(
            tool, timeout_s=timeout_s, at_once=at_once, clock=self, workers=self, backoff=lambda tries: 2.0
        )


def answers_of(pool: AnnotationPool, inputs: Sequence[str]) -> list[Answer]:
    """Ask and wait; return the answers in order, or raise what the pool tells."""
    inbox: Inbox = queue.SimpleQueue()
    answers: dict[int, Answer] = {}
    errors: list[ToolformerError] = []
    asker = pool.ask([(input_, "") for input_ in inputs], inbox.put, answers.__setitem__, errors.append)
    while len(answers) < len(inputs):
        if (message := pool.clock.wait(inbox, pool.tick())) is not None:
            message()
        if errors:
            pool.forget(asker)
            raise errors[0]
    return [answers[index] for index in range(len(inputs))]
