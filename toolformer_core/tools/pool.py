"""The tools of a model that writes, each behind a pool of its own, where a person waits for each answer."""

import time
from collections.abc import Callable, Sequence

from toolformer_core.errors import ToolError, ToolformerError
from toolformer_core.records import ToolResult
from toolformer_core.tools.base import Tool, limits_of
from toolformer_core.tools.execution.asking import Post
from toolformer_core.tools.execution.pool import AnnotationPool

OnResult = Callable[[ToolResult | ToolformerError, float], None]


class ToolPool:
    """Runs the calls of any number of owners; a `ToolformerError` if a tool cannot be loaded.

    A call has one try, may take `timeout_s` seconds, and there are `workers` of a tool at a time, at most.
    """

    def __init__(self, tools: Sequence[Tool], *, timeout_s: float, workers: int) -> None:
        self.tools = {tool.name: tool for tool in tools}  # by their names in calls
        self._pools: dict[str, AnnotationPool] = {}
        for tool in tools:
            at_once = min(workers, limits_of(tool).at_once)
            pool = self._pools[tool.name] = AnnotationPool(tool, timeout_s=timeout_s, at_once=at_once, interactive=True)
            pool.load()

    def ask(
        self, name: str, input_: str, context: str, post: Post, on_result: OnResult, owner: object
    ) -> Callable[[], None]:
        """Ask a tool; `on_result(result, seconds)` is posted when it has answered or its time is up.

        The result of a tool that cannot answer at all is the `ToolformerError` that says why. Waiting calls take turns
        by owner. What is returned drops the call.
        """
        pool, submitted = self._pools[name], time.monotonic()

        def settle(result: ToolResult | ToolformerError) -> None:
            on_result(result, time.monotonic() - submitted)

        try:
            asker = pool.ask([(input_, context)], post, lambda _, answer: settle(answer.result), settle, owner)
        except ToolError as exc:
            error = exc
            post(lambda: settle(error))
            return lambda: None
        return lambda: pool.forget(asker)

    def expire(self) -> float | None:
        """Fail overdue calls; return the seconds until the next check is due, None if no call is unfinished."""
        due = [seconds for pool in self._pools.values() if (seconds := pool.tick()) is not None]
        return min(due, default=None)

    def close(self) -> None:
        """Let every thread end when its call returns; waiting calls are not run."""
        for pool in self._pools.values():
            pool.close()
