"""Runs many calls of tools at once: a few threads per tool, a time limit per call, and a result for every call.

This is how decoding asks tools, where a person waits for each answer; annotation has `execution.pool`.

A call waits for a free thread, and its time limit starts when the tool is asked. An overdue call gets the failure
`timeout`, and its thread is abandoned until it returns. While all threads of a tool are overdue, the calls that wait
fail as well, so a dead tool costs each call at most one time limit, and no more threads.

Results are passed to `post`, which must accept calls from any thread. The pool knows no documents, sequences or tokens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from toolformer_core.errors import ToolformerError
from toolformer_core.records import ToolFailure, ToolResult
from toolformer_core.tools.base import Tool
from toolformer_core.tools.fair import FairQueue
from toolformer_core.tools.responses import run_guarded

OnResult = Callable[[ToolResult | ToolformerError, float], None]
Post = Callable[[Callable[[], None]], None]


class _PooledCall:
    __slots__ = ("answered", "context", "input", "on_result", "owner", "post", "started", "submitted")

    def __init__(self, input_: str, context: str, post: Post, on_result: OnResult, owner: object) -> None:
        self.input = input_
        self.context = context
        self.post = post
        self.on_result = on_result
        self.owner = owner
        self.submitted = time.monotonic()
        self.started: float | None = None
        self.answered = False

    def answer(self, result: ToolResult | ToolformerError) -> None:
        """Post the result, once; the caller holds the pool's lock."""
        if not self.answered:
            self.answered = True
            seconds = time.monotonic() - self.submitted
            self.post(lambda: self.on_result(result, seconds))


class _ToolQueue:
    """One tool with its number of threads, its running calls and its waiting calls."""

    def __init__(self, tool: Tool, lock: threading.RLock) -> None:
        self.tool = tool
        self.changed = threading.Condition(lock)  # its own: each call then wakes one thread of its tool, and no other
        self.waiting: FairQueue[_PooledCall] = FairQueue()
        self.running: list[_PooledCall] = []
        self.threads = 0


class ToolPool:
    """Runs the calls of any number of owners.

    Args:
        tools: the tools; `workers` threads may run each of them at the same time.
        timeout_s: seconds that a call may take.
        workers: threads per tool; 1 for tools that are not thread-safe.
    """

    def __init__(self, tools: Sequence[Tool], *, timeout_s: float, workers: int) -> None:
        self.timeout_s = timeout_s
        self.overdue = ToolFailure("timeout", f"no answer within {timeout_s:g} s")  # the result of every overdue call
        self._workers = workers
        self._lock = threading.RLock()
        self._queues = {tool.name: _ToolQueue(tool, self._lock) for tool in tools}
        self._closed = False

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools, by their names in calls."""
        return {name: tool_queue.tool for name, tool_queue in self._queues.items()}

    def ask(self, name: str, input_: str, context: str, post: Post, on_result: OnResult, owner: object) -> None:
        """Ask a tool; `on_result(result, seconds)` is posted when it has answered or its time is up.

        The result of a tool that cannot answer at all is the `ToolformerError` that it raised. Waiting calls take turns
        by owner: the one with the fewest running calls comes first.
        """
        call = _PooledCall(input_, context, post, on_result, owner)
        with self._lock:
            tool_queue = self._queues[name]
            tool_queue.waiting.put(owner, call)
            self._start_thread(tool_queue)
            tool_queue.changed.notify()

    def _start_thread(self, tool_queue: _ToolQueue) -> None:
        """Start a thread if calls wait for one and there may be more; the caller holds the lock."""
        unfinished = len(tool_queue.running) + len(tool_queue.waiting)
        if unfinished > tool_queue.threads and tool_queue.threads < self._workers:
            tool_queue.threads += 1
            name = f"tool-{tool_queue.tool.key}"
            threading.Thread(target=self._work, args=(tool_queue,), name=name, daemon=True).start()

    def expire(self) -> float | None:
        """Fail overdue calls; return the seconds until the next check is due, None if no call is unfinished."""
        with self._lock:
            now = time.monotonic()
            soonest: float | None = None
            for tool_queue in self._queues.values():
                for call in list(tool_queue.running):
                    if call.started is not None and not call.answered:
                        left = call.started + self.timeout_s - now
                        if left <= 0:
                            call.answer(self.overdue)
                        else:
                            soonest = left if soonest is None else min(soonest, left)
                all_threads_overdue = sum(call.answered for call in tool_queue.running) == self._workers
                if all_threads_overdue:
                    for call in tool_queue.waiting.clear():
                        call.answer(ToolFailure("timeout", "the tool no longer answers"))
                if tool_queue.waiting:
                    soonest = self.timeout_s if soonest is None else min(soonest, self.timeout_s)
            return soonest

    def forget(self, owner: object) -> None:
        """Drop the calls of an owner that still wait for a thread; they get no answer."""
        with self._lock:
            for tool_queue in self._queues.values():
                for call in [call for call in tool_queue.waiting if call.owner is owner]:
                    tool_queue.waiting.discard(owner, call)

    def close(self) -> None:
        """Let every thread end when its call returns; waiting calls are not run."""
        with self._lock:
            self._closed = True
            for tool_queue in self._queues.values():
                for call in (*tool_queue.waiting.clear(), *tool_queue.running):
                    call.answer(ToolFailure("timeout", "the tools have been closed"))
                tool_queue.changed.notify_all()

    def _work(self, tool_queue: _ToolQueue) -> None:
        while True:
            with self._lock:
                while not tool_queue.waiting and not self._closed:
                    tool_queue.changed.wait()
                if self._closed:
                    tool_queue.threads -= 1
                    return
                call = tool_queue.waiting.take()
                call.started = time.monotonic()
                tool_queue.running.append(call)
            result = run_guarded(tool_queue.tool, call.input, call.context)
            with self._lock:
                tool_queue.running.remove(call)
                tool_queue.waiting.done(call.owner)
                call.answer(result)
