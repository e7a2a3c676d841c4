"""A language model that uses tools while it writes: `Toolformer(lm, tools).generate(["..."])`.

The batch and the stream are the same engine, driven by whoever calls; a server takes `engine()` and drives it in a
thread of its own. All of them share the tools' threads. What a call is, and when it starts, is decided in `row`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolformer_core.decode.engine import Engine
from toolformer_core.decode.pool import ToolPool
from toolformer_core.decode.records import Event, Finished, Generation, Settings
from toolformer_core.decode.slots import bytes_per_token
from toolformer_core.errors import UsageError
from toolformer_core.lm.hf import TransformersLM
from toolformer_core.tools.base import Tool

__all__ = ["Toolformer"]


class Toolformer:
    """A model with its tools, ready to write.

    The tools are loaded here, so that no call's time is spent on it.

    Args:
        lm: the model.
        tools: what it may call; none is plain decoding without calls.
        tool_timeout_s: seconds a call may take; then its response is empty.
        tool_workers: threads per tool; 1 if a tool is not thread-safe.
        max_rows: sequences decoded together; others wait.
        cached_tokens: tokens whose keys and values may be held at once, padding included; None: as many as go into
            the model's `cache_budget` (by default a quarter of the free memory, on a CPU at most 1 GiB).

    Raises:
        ModelError: the model cannot decode sequences of different lengths together.
        UsageError: a figure below 1, or two tools of one name.
        ToolformerError: a tool cannot be made ready.
    """

    def __init__(
        self,
        lm: TransformersLM,
        tools: Sequence[Tool],
        *,
        tool_timeout_s: float = 10.0,
        tool_workers: int = 4,
        max_rows: int = 32,
        cached_tokens: int | None = None,
    ) -> None:
        if len({t.name for t in tools}) < len(tools):
            raise UsageError("two tools have the same name in calls: " + ", ".join(sorted(t.name for t in tools)))
        if not tool_timeout_s > 0 or tool_workers < 1 or max_rows < 1:
            raise UsageError("tool_timeout_s must be positive, tool_workers and max_rows at least 1")
        self.lm = lm
        self._max_rows = max_rows
        size = bytes_per_token(lm.network)
        self._cached_tokens = lm.network.cache_budget // size if cached_tokens is None else cached_tokens
        for tool in tools:
            tool.load()
        self._pool = ToolPool(tools, timeout_s=tool_timeout_s, workers=tool_workers)

    def engine(self) -> Engine:
        """Return a new engine over this model and these tools, to be driven by one thread."""
        return Engine(self.lm.network, self._pool, max_rows=self._max_rows, cached_tokens=self._cached_tokens)

    def generate(
        self, prompts: Sequence[str], settings: Settings | Sequence[Settings] | None = None
    ) -> list[Generation]:
        """Write on from every prompt; the results are those of one at a time, whatever the batch.

        Args:
            prompts: the texts; the model's beginning-of-text token is put in front of each.
            settings: for all of them, or for each its own (its date, its seed); None: the defaults.

        Raises:
            UsageError: a prompt longer than the model's context, or settings that do not fit (see `Engine.submit`).
        """
        found: dict[int, Generation] = {}
        for event in self.stream(prompts, settings):
            if isinstance(event, Finished):
                found[event.index] = event.generation
        return [found[i] for i in range(len(prompts))]

    def stream(
        self, prompts: str | Sequence[str], settings: Settings | Sequence[Settings] | None = None
    ) -> Iterator[Event]:
        """Yield what happens, as it happens; `Finished` is each sequence's last event, with its `Generation`.

        Leaving the loop early ends all of them. Arguments and errors are those of `generate`.
        """
        if isinstance(prompts, str):
            prompts = [prompts]
        each = settings or Settings()
        of = [each] * len(prompts) if isinstance(each, Settings) else list(each)
        if len(of) != len(prompts):
            raise UsageError(f"{len(prompts)} prompts, but settings for {len(of)}; give one for all or one for each")
        engine = self.engine()
        events: list[Event] = []
        handles = [
            engine.submit(prompt, s, index=i, on_event=events.append)
            for i, (prompt, s) in enumerate(zip(prompts, of, strict=True))
        ]
        return self._drive(engine, events, len(handles))

    def _drive(self, engine: Engine, events: list[Event], open_: int) -> Iterator[Event]:
        while open_:
            if not engine.step() and not events:
                engine.wait()
            ready = events[:]
            events.clear()
            open_ -= sum(isinstance(event, Finished) for event in ready)
            yield from ready

    def close(self) -> None:
        """Let the tools' threads end."""
        self._pool.close()
