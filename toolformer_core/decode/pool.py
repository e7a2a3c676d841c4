"""Tools at work beside the decoding: a few threads per tool, a time limit per call, and an answer to every call.

A call waits for a free thread; its time runs from when the tool is asked. One that is overdue is answered with the
failure `timeout`, and its thread is left to itself until it comes back. While all threads of a tool are overdue, the
calls that wait for it are answered so too: a dead tool costs each call at most one time limit, and no more threads.

Answers are handed to `post`, which may be called from any thread. It does not know sequences or tokens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from toolformer_core.annotate.execute import guarded
from toolformer_core.decode.fair import FairQueue
from toolformer_core.errors import ToolformerError
from toolformer_core.records import ToolFailure, ToolResult
from toolformer_core.tools.base import Tool

__all__ = ["ToolPool"]

Done = Callable[[ToolResult, float], None]
Post = Callable[[Callable[[], None]], None]


class _Job:
    __slots__ = ("answered", "asked", "context", "done", "input", "owner", "post", "started")

    def __init__(self, input_: str, context: str, post: Post, done: Done, owner: object) -> None:
        self.input = input_
        self.context = context
        self.post = post
        self.done = done
        self.owner = owner
        self.asked = time.monotonic()
        self.started: float | None = None
        self.answered = False

    def answer(self, result: ToolResult) -> None:
        """Once; the pool's lock is held."""
        if not self.answered:
            self.answered = True
            seconds = time.monotonic() - self.asked
            self.post(lambda: self.done(result, seconds))


class _Line:
    """One tool: its threads, the calls they are at and those that wait."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.waiting: FairQueue[_Job] = FairQueue()
        self.running: list[_Job] = []
        self.threads = 0


class ToolPool:
    """Runs the calls of any number of sequences.

    Args:
        tools: the tools, by any names; each must bear being asked from `workers` threads at once.
        timeout_s: seconds a call may take.
        workers: threads per tool; 1 for tools that are not thread-safe.
    """

    def __init__(self, tools: Sequence[Tool], *, timeout_s: float, workers: int) -> None:
        self.timeout_s = timeout_s
        self._workers = workers
        self._lines = {tool.name: _Line(tool) for tool in tools}
        self._changed = threading.Condition()
        self._closed = False

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools by the name they have in calls."""
        return {name: line.tool for name, line in self._lines.items()}

    def ask(self, name: str, input_: str, context: str, post: Post, done: Done, owner: object) -> None:
        """Have a tool asked; `done(result, seconds)` is posted when it has answered or its time is up.

        Calls wait by turns of their owners: whose request has fewest calls at work comes first.
        """
        job = _Job(input_, context, post, done, owner)
        with self._changed:
            line = self._lines[name]
            line.waiting.put(owner, job)
            if len(line.running) + len(line.waiting) > line.threads and line.threads < self._workers:
                line.threads += 1
                threading.Thread(target=self._work, args=(line,), name=f"decode-{name}", daemon=True).start()
            self._changed.notify_all()

    def expire(self) -> float | None:
        """Answer what is overdue; return in how many seconds to ask again, None if nothing is under way."""
        with self._changed:
            now = time.monotonic()
            soonest: float | None = None
            for line in self._lines.values():
                for job in line.running:
                    if job.started is not None and not job.answered:
                        left = job.started + self.timeout_s - now
                        if left <= 0:
                            job.answer(ToolFailure("timeout", f"no answer within {self.timeout_s:g} s"))
                        else:
                            soonest = left if soonest is None else min(soonest, left)
                if sum(job.answered for job in line.running) == self._workers:
                    for job in line.waiting.clear():
                        job.answer(ToolFailure("timeout", "the tool answers no call any more"))
                if line.waiting:
                    soonest = self.timeout_s if soonest is None else min(soonest, self.timeout_s)
            return soonest

    def close(self) -> None:
        """Let the threads end when they come back; calls that wait are not run."""
        with self._changed:
            self._closed = True
            for line in self._lines.values():
                for job in (*line.waiting.clear(), *line.running):
                    job.answer(ToolFailure("timeout", "the tools have been closed"))
            self._changed.notify_all()

    def _work(self, line: _Line) -> None:
        while True:
            with self._changed:
                while not line.waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    line.threads -= 1
                    return
                job = line.waiting.take()
                job.started = time.monotonic()
                line.running.append(job)
            result = guarded(line.tool, job.input, job.context)
            if isinstance(result, ToolformerError):
                result = ToolFailure("unavailable", str(result))
            with self._changed:
                line.running.remove(job)
                line.waiting.done(job.owner)
                job.answer(result)
