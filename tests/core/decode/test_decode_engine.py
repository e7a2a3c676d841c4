"""Sequences join, wait for tools, are cancelled and leave; the others go on, and memory stays bounded."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from writers import after, call_edges, writing_lm

from tests.fakes import FakeTool, GatedTool
from tests.tiny import TEXTS, tiny_lm, tokenizer
from toolformer_core.decode.engine import DecodeEngine, Handle
from toolformer_core.decode.kv_cache import KVCache
from toolformer_core.decode.records import (
    CallFinished,
    CallStarted,
    Finished,
    Generation,
    GenerationSettings,
    TextDelta,
)
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import ModelError, UsageError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult

DEADLINE_S = 20.0
CALL_AT_ONCE = GenerationSettings(max_new_tokens=5, top_k=1)


def caller() -> TransformersLM:
    """Calls at once behind a "!"; elsewhere only by chance."""
    coded = tokenizer()
    return writing_lm("llama", coded, [(after(coded, "!"), after(coded, " [")), *call_edges(coded, "T")])


def drive(engine: DecodeEngine, until: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not until():
        assert time.monotonic() < end, "it hangs"
        if not engine.step():
            engine.wait(0.05)


def generation(handle: Handle) -> Generation:
    *before, last = (handle.events.get() for _ in range(handle.events.qsize()))
    assert not any(isinstance(event, Finished) for event in before)
    assert isinstance(last, Finished)
    return last.generation


def test_others_go_on_while_a_tool_is_at_work() -> None:
    tool = GatedTool()
    engine = Toolformer(caller(), [tool]).engine()
    assert tool.loads == 1  # before the first call
    events: list[Any] = []
    first, second = (
        engine.submit(text, CALL_AT_ONCE, index=i, on_event=events.append) for i, text in enumerate(["So!", "The Nile"])
    )
    drive(engine, lambda: second.done)
    third = engine.submit("Out of", CALL_AT_ONCE, index=2, on_event=events.append)  # and newcomers come in
    drive(engine, lambda: third.done)
    assert not first.done
    assert engine.running == 1
    assert [type(e) for e in events if e.index == 0] == [CallStarted]
    tool.let_go.set()
    drive(engine, lambda: first.done)
    assert [type(e) for e in events if e.index == 0][:2] == [CallStarted, CallFinished]
    assert [e.index for e in events if isinstance(e, Finished)] == [1, 2, 0]


def test_a_tool_that_does_not_answer_in_time() -> None:
    tool = GatedTool()
    engine = Toolformer(caller(), [tool], tool_timeout_s=0.05).engine()
    handle = engine.submit("So!", CALL_AT_ONCE)
    drive(engine, lambda: handle.done)
    g = generation(handle)
    assert [(c.failure, c.response) for c in g.calls] == [("timeout", "")]
    assert " -> ]" in g.text
    assert g.new_tokens == 5
    tool.let_go.set()  # an answer that comes too late changes nothing
    other = engine.submit("So!", CALL_AT_ONCE)
    drive(engine, lambda: other.done)
    assert [c.response for c in generation(other).calls] == ["49"]


def test_the_time_limit_holds_while_others_are_decoded() -> None:
    tool = GatedTool()
    engine = Toolformer(caller(), [tool], tool_timeout_s=0.02).engine()
    handle = engine.submit("So!", CALL_AT_ONCE)
    long = engine.submit("The Nile", GenerationSettings(max_new_tokens=480, top_k=0))
    while not long.done and not handle.done:
        assert engine.step()
    assert handle.done
    assert not long.done
    tool.let_go.set()


def test_a_dead_tool_costs_one_time_limit_and_no_more_threads() -> None:
    tool = GatedTool()
    t = Toolformer(caller(), [tool], tool_timeout_s=0.3, tool_workers=2)
    engine = t.engine()
    before = threading.active_count()
    start = time.monotonic()
    handles = [engine.submit("So!", CALL_AT_ONCE) for _ in range(12)]
    drive(engine, lambda: all(h.done for h in handles))
    assert time.monotonic() - start < 12 / 2 * 0.3  # one after the other, two at a time, would take that long
    assert threading.active_count() - before <= 2
    assert tool.at_work == 2
    assert all(generation(h).calls[0].failure == "timeout" for h in handles)
    tool.let_go.set()
    t.close()


def test_cancelling() -> None:
    tool = GatedTool()
    engine = Toolformer(caller(), [tool], max_rows=2).engine()
    at_tool = engine.submit("So!", CALL_AT_ONCE)
    writing = engine.submit("The Nile", GenerationSettings(max_new_tokens=400, top_k=0))
    in_line = engine.submit("Out of", CALL_AT_ONCE)
    drive(engine, lambda: tool.at_work == 1)
    for _ in range(3):
        engine.step()
    assert not any(h.done for h in (at_tool, writing, in_line))
    for handle in (in_line, writing, at_tool, at_tool):  # the last one again: nothing happens
        engine.cancel(handle)
    drive(engine, lambda: all(h.done for h in (at_tool, writing, in_line)))
    found = [generation(h) for h in (at_tool, writing, in_line)]
    assert [g.finish for g in found] == ["cancelled"] * 3
    assert found[0].text == ""  # the call that is not answered is not shown
    assert len(found[1].text) > 0
    tool.let_go.set()
    last = engine.submit("Out of", CALL_AT_ONCE)
    drive(engine, lambda: last.done)
    assert engine.running == 0  # whoever is told that a sequence has ended finds it gone


def test_rows_and_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = caller()
    held: list[int] = []
    reserve = KVCache.reserve

    def noted(self: KVCache, rows: int, columns: int, limit: int) -> None:
        reserve(self, rows, columns, limit)
        held.append(self.rows * self.columns)

    monkeypatch.setattr(KVCache, "reserve", noted)
    engine = Toolformer(lm, [GatedTool()], max_rows=6, cached_tokens=1024).engine()
    lengths = [20, 300, 5, 40, 60, 10, 8, 30] * 2
    handles = [
        engine.submit(TEXTS[i % 5], GenerationSettings(max_new_tokens=n, top_k=0)) for i, n in enumerate(lengths)
    ]
    running: list[int] = []

    def all_done() -> bool:
        running.append(engine.running)
        assert sum(KVCache.columns_for(handle.sequence.max_tokens) for handle in engine._running) <= 1024
        return all(h.done for h in handles)

    drive(engine, all_done)
    assert 2 <= max(running) <= 6
    assert max(held[1:]) <= 1024  # the first is the trial of the model
    alone = Toolformer(lm, [])
    for i, (n, handle) in enumerate(zip(lengths, handles, strict=True)):
        (wanted,) = alone.generate([TEXTS[i % 5]], GenerationSettings(max_new_tokens=n, top_k=0))
        assert generation(handle).ids == wanted.ids


def test_sequences_that_begin_alike_share_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = caller()
    examples = "Out of 1400 participants, 400 (or 29 %) passed the test. " * 2
    ends = ["The Nile", "So!", "A shorter text, with", "x", "The Nile is long and"]
    settings = GenerationSettings(max_new_tokens=6, top_k=1)
    tool = GatedTool()
    tool.let_go.set()
    t = Toolformer(lm, [tool])
    wanted = [t.generate([examples + end], settings)[0] for end in ends]
    fed: list[int] = []
    feed = KVCache.feed

    def counted(self: KVCache, rows: list[int], starts: list[int], tokens: list[list[int]]) -> object:
        fed.extend(len(new) for new in tokens)
        return feed(self, rows, starts, tokens)

    monkeypatch.setattr(KVCache, "feed", counted)
    engine = t.engine()
    handles = [engine.submit(examples + end, settings) for end in ends[:3]]
    engine.step()
    handles += [engine.submit(examples + end, settings) for end in ends[3:]]  # and with one that is under way
    drive(engine, lambda: all(h.done for h in handles))
    assert [generation(h).ids for h in handles] == [g.ids for g in wanted]
    begin = len(lm.hf_model.encode(examples))
    assert begin > 40
    assert sum(n >= begin for n in fed) == 1  # the examples went through the model once


def test_a_thread_of_its_own_and_many_submitters() -> None:
    class Slow(FakeTool):
        key, name = "slow", "T"

        def run(self, input: str, context: str = "") -> ToolResult:
            time.sleep(0.002)
            return ToolFailure("odd") if int(input) % 2 else ToolResponse(context)

    t = Toolformer(caller(), [Slow({})], max_rows=8)
    engine = t.engine()
    thread = threading.Thread(target=engine.run)
    thread.start()
    found: dict[str, Generation] = {}

    def one(n: int) -> None:
        s = GenerationSettings(max_new_tokens=8, top_k=1, context=f"day {n}", temperature=1.0, seed=n)
        handle = engine.submit("So!" if n % 2 else f"It is {n}!", s)
        while not isinstance(event := handle.events.get(timeout=DEADLINE_S), Finished):
            assert isinstance(event, TextDelta | CallStarted | CallFinished)
        found[f"day {n}"] = event.generation

    submitters = [threading.Thread(target=one, args=(n,)) for n in range(60)]
    for s in submitters:
        s.start()
    for s in submitters:
        s.join(DEADLINE_S)
    assert len(found) == 60
    for day, g in found.items():
        assert len(g.calls) == 1
        assert g.calls[0].response in (day, "")  # nobody's response is another's
    long = engine.submit("The Nile", GenerationSettings(max_new_tokens=450, top_k=0))
    long.events.get(timeout=DEADLINE_S)
    engine.stop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert generation(long).finish == "stopped"
    with pytest.raises(UsageError, match="has been stopped"):
        engine.submit("So!", CALL_AT_ONCE)
    t.close()


def test_a_stop_that_comes_before_the_engine_waits_is_not_lost() -> None:
    """A round reads all messages; if the stop is among them and nothing is to be computed, no other one follows."""
    engine = Toolformer(tiny_lm(), []).engine()
    engine.stop()
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_what_cannot_be_decoded_is_refused_at_once() -> None:
    lm = tiny_lm(context=64)
    t = Toolformer(lm, [GatedTool()], cached_tokens=64)
    for says, use in (
        ("shorten the prompt", lambda: t.generate(["word " * 100])),
        ("lower max_new_tokens", lambda: t.generate(["So"])),
        ("unknown tool 'gatedt'.*gatedT", lambda: t.generate(["So"], GenerationSettings(tools=("gatedt",)))),
        ("2 prompts, but settings for 1", lambda: t.generate(["a", "b"], [GenerationSettings()])),
        ("same name", lambda: Toolformer(lm, [GatedTool(), GatedTool()])),
        ("max_rows", lambda: Toolformer(lm, [], max_rows=0)),
    ):
        with pytest.raises(UsageError, match=says):
            use()
    assert t.generate([]) == []


def test_settings_out_of_range() -> None:
    nan: Any = float("nan")
    wrong = {"max_new_tokens": 0, "temperature": nan, "top_p": 0.0, "stop": "x", "seed": 1 << 64}
    for name, value in (*wrong.items(), ("stop", ("",)), ("max_response_tokens", 1)):
        with pytest.raises(UsageError, match=name):
            GenerationSettings(**{name: value})


def test_a_model_that_cannot_do_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = tiny_lm()
    hidden = lm.hf_model.hidden

    def shifted(ids, mask, where, cache, **more):  # a model with positions of its own
        return hidden(ids, mask, where * 0 if cache is not None else where, cache, **more)

    monkeypatch.setattr(lm.hf_model, "hidden", shifted)
    with pytest.raises(ModelError, match="rows of different lengths"):
        Toolformer(lm, [])
    monkeypatch.setattr(lm.hf_model, "hidden", lambda *_: bytearray(1 << 62))  # a MemoryError
    with pytest.raises(ModelError, match="out of memory with two rows"):
        Toolformer(lm, [])
