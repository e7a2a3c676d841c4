"""A language model that uses tools while it writes: `Toolformer(lm, tools).generate(["..."])`.

The caller's thread drives its engine; a server takes `engine()` and drives it in a thread of its own.
"""

from collections.abc import Iterator, Sequence

from toolformer_core.decode.engine import DecodeEngine
from toolformer_core.decode.kv_cache import bytes_per_token
from toolformer_core.decode.records import DecodeEvent, Finished, Generation, GenerationSettings
from toolformer_core.errors import UsageError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.tokens import check_calls
from toolformer_core.tools.base import Tool
from toolformer_core.tools.pool import ToolPool

__all__ = ["Toolformer"]


class Toolformer:
    """A model with its tools, ready to write.

    The tools are loaded here, so that loading does not count against a call's time limit.

    Args:
        tools: the tools it may call; empty for plain decoding without calls.
        tool_timeout_s: seconds that a call may take; after that its response is empty.
        tool_workers: calls of a tool at a time, at most; 1 if a tool is not thread-safe.
        max_rows: sequences decoded together, others wait; None: 32 on a CPU, 256 on a GPU, where a step of many rows
            takes no longer.
        cached_tokens: tokens whose keys and values may be held at once, padding included; None: as many as fit into
            the model's `cache_budget` (by default a quarter of the free memory, on a CPU at most 1 GiB).

    Raises:
        ModelError: the model cannot decode sequences of different lengths together.
        TokenizerError: the model's tokenizer cannot write a call of a tool.
        UsageError: a number out of range, or two tools with the same name.
        ToolformerError: a tool cannot be loaded.
    """

    def __init__(
        self,
        lm: TransformersLM,
        tools: Sequence[Tool],
        *,
        tool_timeout_s: float = 10.0,
        tool_workers: int = 4,
        max_rows: int | None = None,
        cached_tokens: int | None = None,
    ) -> None:
        if len({t.name for t in tools}) < len(tools):
            raise UsageError("two tools have the same name in calls: " + ", ".join(sorted(t.name for t in tools)))
        if max_rows is None:
            max_rows = 32 if lm.hf_model.device.type == "cpu" else 256
        if not tool_timeout_s > 0 or tool_workers < 1 or max_rows < 1:
            raise UsageError("tool_timeout_s must be positive, tool_workers and max_rows at least 1")
        check_calls(lm.hf_model.tokenizer, lm.name, [tool.name for tool in tools])
        self.lm = lm
        self._max_rows = max_rows
        size = bytes_per_token(lm.hf_model)
        self._cached_tokens = lm.hf_model.budget.cache // size if cached_tokens is None else cached_tokens
        self._pool = ToolPool(tools, timeout_s=tool_timeout_s, workers=tool_workers)

    @property
    def keys(self) -> dict[str, str]:
        """The tools' keys by their names in calls."""
        return {name: tool.key for name, tool in self._pool.tools.items()}

    def engine(self) -> DecodeEngine:
        """Return a new engine for this model and these tools, to be driven by one thread."""
        return DecodeEngine(self.lm.hf_model, self._pool, max_rows=self._max_rows, cached_tokens=self._cached_tokens)

    def generate(
        self, prompts: Sequence[str], settings: GenerationSettings | Sequence[GenerationSettings] | None = None
    ) -> list[Generation]:
        """Continue every prompt. The results do not depend on which prompts share a batch.

        Args:
            prompts: the texts; the model's beginning-of-text token is put in front of each.
            settings: one for all prompts, or one for each (e.g. with its date and seed); None: the defaults.

        Raises:
            UsageError: a prompt is longer than the model's context, or see `DecodeEngine.submit`; or the number of
                settings is not the number of prompts.
        """
        finished = [event for event in self.stream(prompts, settings) if isinstance(event, Finished)]
        return [event.generation for event in sorted(finished, key=lambda event: event.index)]

    def stream(
        self, prompts: str | Sequence[str], settings: GenerationSettings | Sequence[GenerationSettings] | None = None
    ) -> Iterator[DecodeEvent]:
        """Yield events as they happen; the last one of each sequence is `Finished`, with its `Generation`.

        Leaving the loop early ends all sequences. Arguments and errors are those of `generate`.
        """
        if isinstance(prompts, str):
            prompts = [prompts]
        given = settings or GenerationSettings()
        per_prompt = [given] * len(prompts) if isinstance(given, GenerationSettings) else list(given)
        if len(per_prompt) != len(prompts):
            message = f"{len(prompts)} prompts, but settings for {len(per_prompt)}; give one for all or one for each"
            raise UsageError(message)
        engine = self.engine()
        events: list[DecodeEvent] = []
        for i, (prompt, s) in enumerate(zip(prompts, per_prompt, strict=True)):
            engine.submit(prompt, s, index=i, on_event=events.append)
        return self._drive(engine, events, len(prompts))

    def _drive(self, engine: DecodeEngine, events: list[DecodeEvent], unfinished: int) -> Iterator[DecodeEvent]:
        while unfinished:
            if not engine.step() and not events:
                engine.wait()
            unfinished -= sum(isinstance(event, Finished) for event in events)
            yield from events
            events.clear()

    def close(self) -> None:
        """Let the tools' threads end."""
        self._pool.close()
