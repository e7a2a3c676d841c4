"""What `overhead.py` builds with: a language model that only waits, and a clock of when it or a tool is at work.

`use_in_builds` puts a model, and a tool in another's place, into the builds of this process; `million.py` uses it, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.scripted_lm import token_starts
from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel, Scan, ScoreRequest
from toolformer_core.records import Prompt, ToolResult
from toolformer_core.tools.base import Tool

_BATCH = 16  # texts a scan


class Clock:
    """Adds up the time in which anything at all is at work, from any number of threads."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._at_work = 0
        self._since = 0.0
        self.seconds = 0.0
        self.first = self.last = 0.0  # when work first began and last ended

    @contextmanager
    def working(self) -> Iterator[None]:
        with self._turn:
            if self._at_work == 0:
                self._since = time.perf_counter()
                self.first = self.first or self._since
            self._at_work += 1
        try:
            yield
        finally:
            with self._turn:
                self._at_work -= 1
                if self._at_work == 0:
                    self.last = time.perf_counter()
                    self.seconds += self.last - self._since


class StubLM:
    """A language model that waits for a given time, and then finds the same calls in every text."""

    name = "stub"
    digest = "stub"

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self.waited = 0.0

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        for at in range(0, len(texts), _BATCH):
            some = texts[at : at + _BATCH]
            begin = time.perf_counter()
            with self._clock.working():
                time.sleep(self._seconds * len(some))
                scan = StubScan(prompt.tool, range(at, at + len(some)), some, self._clock)
            self.waited += time.perf_counter() - begin
            yield scan

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """A response makes what follows likely: L- - L+ is 1 nat."""
        with self._clock.working():
            return [np.full(5, -1.0 if "->" in r.prefix else -2.0, dtype=np.float32) for r in requests]


class StubScan:
    def __init__(self, tool: str, texts: Sequence[int], held: Sequence[str], clock: Clock) -> None:
        self.texts = texts
        self._tool = tool
        self._clock = clock
        self.positions = [np.array(token_starts(text), dtype=np.int64) for text in held]
        self.log_probs = [np.where(np.arange(len(p)) % 11 == 7, -1.0, -20.0).astype(np.float32) for p in self.positions]

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        with self._clock.working():
            if self._tool == "calendar":
                return [Draw("Calendar()", True) for _ in requests]
            return [Draw(f"Calculator({r.position} + {r.seed % 3})", r.seed % 5 > 0) for r in requests]


class TimedTool:
    """A tool whose time is counted."""

    def __init__(self, tool: Tool, clock: Clock) -> None:
        self._tool = tool
        self._clock = clock
        self.key, self.name, self.description = tool.key, tool.name, tool.description
        self.fingerprint = tool.fingerprint

    def load(self) -> None:
        self._tool.load()

    def run(self, input: str, context: str = "") -> ToolResult:
        with self._clock.working():
            return self._tool.run(input, context)


def use_in_builds(lm: LanguageModel, replaced: Callable[[Tool], Tool] = lambda tool: tool) -> None:
    """Have the builds of this process ask this model, whatever model they name.

    Args:
        lm: the model.
        replaced: returns the tool that is called instead of the one that a build names; called once for each.
    """
    import tasks.stages.execute
    import tasks.stages.sample
    import tasks.stages.score

    sampling: Any = tasks.stages.sample
    scoring: Any = tasks.stages.score
    executing: Any = tasks.stages.execute
    build_tool = executing.tool_of
    tools: dict[str, Tool] = {}

    def tool_of(spec: Any, key: str) -> Tool:
        if key not in tools:
            tools.setdefault(key, replaced(build_tool(spec, key)))
        return tools[key]

    sampling.model_of = scoring.model_of = lambda spec: lm
    executing.tool_of = tool_of
