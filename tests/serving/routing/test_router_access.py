"""What the router asks of the engine's thread: texts, embeddings, tools."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from serving.engine_thread import EngineThread, PendingRequest
from serving.errors import RequestError
from serving.routing.model_access import Embedder, Writing, Written, _collect
from tests.fakes import FakeTool, StuckTool
from tests.serving.routed import WordEncoder
from tests.serving.servers import DEADLINE_S
from toolformer_core.decode.records import Finished, Generation, TextDelta
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import ToolformerError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult


def test_descriptions_are_embedded_once_and_a_bounded_number_is_kept() -> None:
    encoder = WordEncoder()

    async def ask() -> None:
        thread = EngineThread(lambda: pytest.fail("no model is needed"), max_rows=1, queue=0)
        embedder = Embedder(thread, encoder, capacity=3)
        assert await embedder.similarities("q", []) == []
        # (1, 0) with (1, 0), and with (1, 3): 1 / sqrt(10) = 0.316228
        assert await embedder.similarities("q", ["a", "seven"]) == pytest.approx([1.0, 0.316228])
        await embedder.similarities("q", ["seven", "a", "cc"])
        await embedder.similarities("q", ["dddd", "cc"])  # "seven" was used longest ago
        assert len(embedder._rows) == 3
        await embedder.similarities("q", ["seven"])
        many = [f"{i}" for i in range(9)]
        assert len(await embedder.similarities("q", many)) == 9
        assert len(embedder._rows) == 3

    asyncio.run(ask())
    assert encoder.embedded[:10] == ["q", "a", "seven", "q", "cc", "q", "dddd", "q", "seven", "q"]


@contextlib.asynccontextmanager
async def ready(lm: TransformersLM, tool: FakeTool, **more: Any) -> AsyncIterator[EngineThread]:
    thread = EngineThread(lambda: Toolformer(lm, [tool], **more), max_rows=2, queue=0)
    with pytest.raises(RequestError, match="loading"):
        await thread.between_rounds(lambda: 1)
    thread.start()
    while thread.state != "ready":
        await asyncio.sleep(0.01)
    try:
        yield thread
    finally:
        await thread.close()


def test_work_between_rounds(lm: TransformersLM) -> None:
    async def ask() -> None:
        async with ready(lm, FakeTool({})) as thread:
            names = await asyncio.gather(*(thread.between_rounds(lambda: thread._thread.name) for _ in range(3)))
            assert names == ["decode"] * 3
            with pytest.raises(ZeroDivisionError):
                await thread.between_rounds(lambda: 1 // 0)
            assert await thread.between_rounds(lambda: 2) == 2  # the engine goes on
        with pytest.raises(RequestError):
            await thread.between_rounds(lambda: 3)

    asyncio.run(ask())


class CancelledHandles:
    """Of an engine, what is cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def cancel(self, handle: str) -> None:
        self.cancelled.append(handle)


def test_a_text_that_is_long_enough_is_ended() -> None:
    """Two texts up to their "]"; what arrives before the engine has heard of it is left out."""
    engine, pending = CancelledHandles(), PendingRequest(2)
    pending.handles = [(engine, "first"), (engine, "second")]  # type: ignore[list-item]

    def finished(index: int, finish: str) -> Finished:
        return Finished(index, Generation("", "", (), finish, 7, 0, 0, 0, ()))

    async def collect(*events: TextDelta | Finished) -> list[Written]:
        for event in events:
            pending.events.put_nowait(event)
        return await _collect(pending, [Writing("p", 9, lambda text: "]" in text)] * 2)

    texts = [TextDelta(0, "T(1)"), TextDelta(1, "T(2"), TextDelta(0, "] a"), TextDelta(0, " b")]
    written = asyncio.run(collect(*texts, finished(0, "cancelled"), finished(1, "length")))
    assert [(one.text, one.prompt_tokens) for one in written] == [("T(1)] a", 7), ("T(2", 7)]
    assert engine.cancelled == ["first"]
    with pytest.raises(RequestError) as caught:
        asyncio.run(collect(finished(0, "stop"), finished(1, "stopped")))
    assert (caught.value.status, caught.value.code) == (503, "stopped")


def test_a_tool_is_given_up_in_time_while_the_engine_has_nothing_to_do(lm: TransformersLM) -> None:
    tool = StuckTool()

    async def ask() -> ToolResult | ToolformerError:
        async with ready(lm, tool, tool_timeout_s=0.05) as thread, asyncio.timeout(DEADLINE_S):
            result, _ = await thread.ask("Fake", "stuck", "")
            return result

    found = asyncio.run(ask())
    tool.let_go.set()
    assert isinstance(found, ToolFailure)
    assert found.reason == "timeout"


def test_a_question_that_nobody_waits_for_any_more_is_not_asked(lm: TransformersLM) -> None:
    """One worker is busy with another question while a second one is given up."""
    tool = StuckTool()

    async def ask() -> None:
        async with ready(lm, tool, tool_workers=1) as thread:
            first = asyncio.ensure_future(thread.ask("Fake", "stuck", ""))
            second = asyncio.ensure_future(thread.ask("Fake", "given up", ""))
            await asyncio.sleep(0)  # both are asked
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            tool.let_go.set()
            result, seconds = await first
            assert result == ToolResponse("STUCK")
            assert seconds > 0
            assert (await thread.ask("Fake", "third", "day"))[0] == ToolResponse("THIRD")

    asyncio.run(ask())
    assert tool.asked == [("stuck", ""), ("third", "day")]
