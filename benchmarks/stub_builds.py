"""Builds with a stub for the language model, which only waits, and a clock of when it or a tool is at work."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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
    """A language model that waits for a given time a text, in a context for its work, and then finds the same calls."""

    name = digest = "stub"

    def __init__(self, seconds: float, working: Callable[[], AbstractContextManager[None]]) -> None:
        self._seconds = seconds
        self.working = working
        self.waited = 0.0

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        for at in range(0, len(texts), _BATCH):
            some = texts[at : at + _BATCH]
            begin = time.perf_counter()
            with self.working():
                time.sleep(self._seconds * len(some))
                scan = _StubScan(self, prompt.tool, range(at, at + len(some)), some)
            self.waited += time.perf_counter() - begin
            yield scan

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """A response makes what follows likely: L- - L+ is 1 nat."""
        with self.working():
            return [np.full(5, -1.0 if "->" in r.prefix else -2.0, dtype=np.float32) for r in requests]

    def draw(self, tool: str, request: DrawRequest) -> Draw:
        """Return a draw; of the Calculator, three of them differ at a position, and each fifth never ends."""
        if tool == "calendar":
            return Draw("Calendar()", True)
        return Draw(f"Calculator({request.position} + {request.seed % 3})", request.seed % 5 > 0)


class _StubScan:
    def __init__(self, lm: StubLM, tool: str, texts: Sequence[int], held: Sequence[str]) -> None:
        self.texts = texts
        self._lm, self._tool = lm, tool
        self.positions = [np.array(token_starts(text), dtype=np.int64) for text in held]
        self.bounds = None
        self.log_probs = [np.where(np.arange(len(p)) % 11 == 7, -1.0, -20.0).astype(np.float32) for p in self.positions]

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        with self._lm.working():
            return [self._lm.draw(self._tool, request) for request in requests]


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
    """Have the builds of this process ask this model, whatever they name, and what `replaced` returns for each tool."""
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


def build(
    parameters: dict[str, Any],
    lm: LanguageModel,
    replaced: Callable[[Tool], Tool] = lambda tool: tool,
    on_shard_done: Callable[[str, int, int], None] = lambda stage, finished, total: None,
) -> Any:
    """Build in this process, as `toolformer build` does, and return what the flow returns; see `use_in_builds`.

    `on_shard_done` is called with a stage, its finished shards and how many it has.
    """
    from tasks.environment import prepare_environment

    prepare_environment()  # as the command line does before anything else
    from flows.build_dataset.parameters import BuildParameters
    from flows.build_dataset.resolve import resolve

    given = BuildParameters(**parameters)
    spec = resolve(given)
    prepare_environment(given.data)
    from flows.runtime.server import start_server, wait_for_server

    start_server()
    from flows.build_dataset.flow import run_build
    from flows.forms.resolved import use_resolved
    from flows.runtime.ledger import reporting_to

    use_in_builds(lm, replaced)
    wait_for_server()
    with (
        reporting_to(lambda stage, finished, total, _: on_shard_done(stage, finished, total)),
        use_resolved((given, spec)),
    ):
        return run_build(given)
