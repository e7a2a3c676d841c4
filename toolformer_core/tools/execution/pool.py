"""Asks one tool the questions of any number of askers: within its limits, again after a failure that passes.

Waiting for a free worker or for the rate limit does not count towards a question's time. An overdue call gets the
failure `timeout`, and its worker is replaced: a thread is left behind, a process is killed. A batch that fails as a
whole is retried question by question, which counts as no try. If the tool is dead (see `breaker`), every asker gets a
`ToolError`, and for a while nobody may ask.

No thread watches the time: askers call `tick`; an empty message says that something is due earlier.
"""

import heapq
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial

from toolformer_core.errors import ToolError, ToolformerError
from toolformer_core.records import ToolFailure, ToolResult
from toolformer_core.tools.base import BatchTool, Tool, limits_of
from toolformer_core.tools.execution.asking import (
    Answer,
    Asker,
    Clock,
    Job,
    OnAnswer,
    OnError,
    Outcome,
    PendingQuestion,
    Post,
    Question,
    backoff_s,
)
from toolformer_core.tools.execution.breaker import CircuitBreaker, RateLimit
from toolformer_core.tools.execution.processes import InProcess, pickled
from toolformer_core.tools.execution.threads import ThreadWorkers, Worker
from toolformer_core.tools.fair import FairQueue

_SILENCE = 2.5  # time limits without any answer until a tool that lets calls run out of time is dead
_MAX_DETAIL = 200  # characters of a failure, in a message


class AnnotationPool:
    """Asks one tool; shared by all that ask it in a process, so that its limits hold for them together.

    Args:
        timeout_s: seconds that a call may take, unless the tool's limits say so and nobody waits for each answer.
        at_once: calls at a time; default: the tool's limit. 1 for a tool that is not thread-safe.
        interactive: a person waits for each answer: a question has one try, and an overdue call keeps its place until
            it returns, so a tool that hangs holds few threads; while all places are held so, waiting questions fail.
        backoff: from tries to the seconds before the next one.
        workers: what carries calls out; default: as the tool's limits say.

    A `ToolError` if the tool asks for processes and cannot be pickled.
    """

    def __init__(
        self,
        tool: Tool,
        *,
        timeout_s: float,
        at_once: int | None = None,
        interactive: bool = False,
        clock: Clock | None = None,
        backoff: Callable[[int], float] = backoff_s,
        workers: ThreadWorkers | None = None,
    ) -> None:
        limits = limits_of(tool)
        self.tool = tool
        self.timeout_s = timeout_s if interactive else limits.timeout_s or timeout_s
        self.clock = clock or Clock()
        self.breaker = CircuitBreaker(_SILENCE * self.timeout_s)
        self._in_processes = limits.pool == "processes"
        at_once = at_once or limits.at_once
        self._at_once = min(at_once, _cores()) if self._in_processes else at_once
        self._batch = limits.batch if isinstance(tool, BatchTool) else 1
        self._tries = 1 if interactive else limits.tries
        self._overdue_stay = interactive and not self._in_processes
        self._overdue: set[int] = set()  # calls that are over and still hold a place
        self._rate = RateLimit(limits.per_second)
        self._backoff = backoff
        worker = partial(InProcess, pickled(tool)) if self._in_processes else partial(Worker, tool)
        self._workers = workers or ThreadWorkers(f"tool-{tool.key}", worker)
        self._lock = threading.RLock()
        self._askers: set[Asker] = set()
        self._waiting: FairQueue[PendingQuestion] = FairQueue()
        self._running: dict[int, Job] = {}  # by the call's number, by which its job reports
        self._again: list[tuple[float, int, PendingQuestion]] = []  # a heap: when, tie-break, which
        self._ties = itertools.count()
        self._numbers = itertools.count()  # of questions
        self._calls = itertools.count()
        self._held_until = 0.0  # by the rate limit
        self._held: tuple[Asker, float] | None = None  # who was notified
        self._last_failure = ""
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether nobody waits for an answer."""
        return not self._askers

    def load(self) -> None:
        """Prepare the tool, in this process (see `Tool.load`); in processes it is loaded at their first call."""
        if not self._in_processes:
            self.tool.load()

    def ask(
        self, questions: Sequence[Question], post: Post, on_answer: OnAnswer, on_error: OnError, owner: object = None
    ) -> Asker:
        """Ask questions. `on_answer(index, answer)` is posted for each of them, or `on_error` once for all the rest.

        Waiting questions take turns by owner, the asker if it is None: the one with the fewest calls in progress comes
        first. What is returned is what `forget` drops. A `ToolError` if the tool has just been found dead, or the pool
        is closed.
        """
        asker = Asker(post, on_answer, on_error, len(questions), object() if owner is None else owner)
        with self._lock:
            now = self.clock.now()
            if self._closed:
                raise ToolError(f"tool {self.tool.key} is not asked any more: its pool is closed")
            if self.breaker.state(now) == "open":
                left = self.breaker.seconds_left(now)
                raise ToolError(f"tool {self.tool.key} is not asked: {self._why_dead()}; try again in {left:.0f} s")
            if questions:
                self._askers.add(asker)
                for index, question in enumerate(questions):
                    self._waiting.put(asker.owner, PendingQuestion(question, index, asker))
                self._dispatch(now)
        return asker

    def tick(self) -> float | None:
        """Do what is due; return the seconds until the next call of `tick` is, None if nobody waits for an answer."""
        with self._lock:
            now = self.clock.now()
            for number, job in list(self._running.items()):
                if job.since is not None and now >= job.since + self.timeout_s and number in self._running:
                    self._expire(number, now)
            while self._again and self._again[0][0] <= now:
                _, _, pending = heapq.heappop(self._again)
                if pending.asker in self._askers:
                    self._waiting.put(pending.asker.owner, pending)
            if len(self._overdue) >= self._at_once:
                for pending in self._waiting.clear():
                    self._answer(pending, ToolFailure("timeout", "the tool no longer answers"))
            self._dispatch(now)
            return self._seconds_to_next(now) if self._askers else None

    def forget(self, asker: Asker) -> None:
        """Drop an asker's questions; it gets no more messages for them."""
        with self._lock:
            self._leave(asker)
            for other in self._askers:  # what this asker was to look after is theirs now
                other.post(_nothing)

    def close(self) -> None:
        """Give everything up; callers that still wait get a `ToolError`."""
        with self._lock:
            self._closed = True
            self._fail_all(ToolError(f"tool {self.tool.key} did not answer in time: its pool has been closed"))
        self._workers.close()

    def _dispatch(self, now: float) -> None:
        """Begin as many calls as may be begun; the caller holds the lock."""
        half_open = self.breaker.state(now) == "half open"
        at_once, batch = (1, 1) if half_open else (self._at_once, self._batch)
        while self._waiting and len(self._running) + len(self._overdue) < at_once and now >= self._held_until:
            if (wait := self._rate.take(now)) > 0:
                self._held_until = now + wait
                break
            self._begin(self._next_call(batch), now)
        if self._waiting and now < self._held_until:
            asker = self._waiting.first()[1].asker
            if self._held != (asker, self._held_until):
                self._held = asker, self._held_until
                asker.post(_nothing)

    def _next_call(self, most: int) -> list[PendingQuestion]:
        call = [self._waiting.take()]
        while not call[0].alone and len(call) < most and self._waiting and not self._waiting.first()[1].alone:
            call.append(self._waiting.take())
        return call

    def _begin(self, call: list[PendingQuestion], now: float) -> None:
        self.breaker.begun(now, others=bool(self._running))
        for pending in call:
            if pending.number < 0:
                pending.number = next(self._numbers)
            pending.tries += 1
        number = next(self._calls)
        questions = [pending.question for pending in call]
        job = Job(questions, call, partial(self._note_begin, number), partial(self._finish, number))
        self._running[number] = job
        self._workers.start(job)

    def _note_begin(self, number: int) -> None:
        with self._lock:
            if (job := self._running.get(number)) is not None:
                job.since = self.clock.now()

    def _finish(self, number: int, outcome: Outcome) -> None:
        """Take the outcome of a call, in the thread that carried it out."""
        with self._lock:
            now = self.clock.now()
            if number in self._overdue:
                self._overdue.discard(number)
                self._dispatch(now)
            if number not in self._running:
                return
            call = self._end(number, now)
            if isinstance(outcome, ToolformerError):
                for asker in {pending.asker for pending in call}:
                    self._fail(asker, outcome)
            elif isinstance(outcome, ToolFailure):
                self._settle_whole(call, outcome, now)
            else:
                for pending, result in zip(call, outcome, strict=True):
                    self._settle(pending, result, now)
            self._dispatch(now)

    def _expire(self, number: int, now: float) -> None:
        job = self._running[number]
        call = self._end(number, now)
        if self._overdue_stay:
            self._overdue.add(number)
        else:
            self._workers.abandon(job)
        if any(pending.tries == 1 for pending in call):
            self.breaker.timed_out(now)
        overdue = ToolFailure("timeout", f"no answer within {self.timeout_s:g} s", retryable=True)
        self._settle_whole(call, overdue, now)
        if self.breaker.state(now) == "open":
            self._note_failure(overdue)
            self._give_up()

    def _end(self, number: int, now: float) -> list[PendingQuestion]:
        job = self._running.pop(number)
        call, job.pending = job.pending, []  # a thread that hangs with its job holds no askers
        seconds = 0.0 if job.since is None else now - job.since
        for pending in call:
            self._waiting.done(pending.asker.owner)
            pending.calls.append((seconds, len(call)))
        return call

    def _settle_whole(self, call: list[PendingQuestion], failure: ToolFailure, now: float) -> None:
        """Settle a call that failed as a whole: the questions of a batch are retried one by one."""
        if len(call) == 1:
            self._settle(call[0], failure, now)
            return
        for pending in call:
            pending.alone = True
            pending.tries -= 1
            if pending.asker in self._askers:
                self._waiting.put(pending.asker.owner, pending)

    def _settle(self, pending: PendingQuestion, result: ToolResult, now: float) -> None:
        if isinstance(result, ToolFailure) and result.retryable:
            self._note_failure(result)
            if pending.tries < self._tries and self.breaker.state(now) == "closed" and pending.asker in self._askers:
                heapq.heappush(self._again, (now + self._backoff(pending.tries), next(self._ties), pending))
                pending.asker.post(_nothing)
                return
            self.breaker.failed(pending.number, now)
            if self.breaker.state(now) == "open":
                self._give_up()
        else:
            self.breaker.answered(now)
        self._answer(pending, result)

    def _answer(self, pending: PendingQuestion, result: ToolResult) -> None:
        if pending.asker in self._askers:
            answer = Answer(result, tuple(pending.calls))
            pending.asker.post(partial(pending.asker.on_answer, pending.index, answer))
            pending.asker.unanswered -= 1
            if not pending.asker.unanswered:
                self._askers.discard(pending.asker)

    def _note_failure(self, failure: ToolFailure) -> None:
        detail = f" ({failure.detail[:_MAX_DETAIL]})" if failure.detail else ""
        self._last_failure = f"{failure.reason or 'failed'}{detail}"

    def _why_dead(self) -> str:
        return f"{self.breaker.why}, the last failure being {self._last_failure}"

    def _give_up(self) -> None:
        self._fail_all(
            ToolError(
                f"tool {self.tool.key} does not answer: {self._why_dead()}; nothing of this shard is kept, and the "
                "same command goes on when the tool answers again"
            )
        )

    def _fail_all(self, error: ToolformerError) -> None:
        for asker in list(self._askers):
            self._fail(asker, error)
        for number, job in list(self._running.items()):
            self._end(number, self.clock.now())
            self._workers.abandon(job)
        self._again.clear()

    def _fail(self, asker: Asker, error: ToolformerError) -> None:
        if asker in self._askers:
            self._leave(asker)
            asker.post(partial(asker.on_error, error))

    def _leave(self, asker: Asker) -> None:
        self._askers.discard(asker)
        self._waiting.remove(asker.owner, lambda pending: pending.asker is asker)

    def _seconds_to_next(self, now: float) -> float:
        due = [job.since + self.timeout_s for job in self._running.values() if job.since is not None]
        due += [again for again, _, _ in self._again[:1]]
        if self._waiting and now < self._held_until:
            due.append(self._held_until)
        return max(0.0, min([now + self.timeout_s, *due]) - now)


def _nothing() -> None:
    """Do nothing: its receiver looks at the time again."""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
