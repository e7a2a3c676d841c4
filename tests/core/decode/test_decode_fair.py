"""Who gets a row, or a tool, when several wait; and that what is written does not depend on it."""

import collections
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.decode.test_decode_engine import DEADLINE_S, caller, drive, generation
from tests.fakes import FakeTool, GatedTool
from tests.support.waiting import soon
from toolformer_core.decode.engine import DecodeEngine, Handle
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.tools.fair import FairQueue
from toolformer_core.tools.pool import ToolPool


def test_turns_by_hand() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
        queue.put(item[0], item)
    # nobody has anything under way: by turns, until c has none left
    assert [queue.take() for _ in range(4)] == ["a1", "b1", "c1", "a2"]
    queue.put("d", "d1")
    assert [queue.take() for _ in range(2)] == ["d1", "b2"]  # d has 0 under way, b 1, a 2
    queue.done("a")
    queue.done("a")
    queue.put("d", "d2")
    assert queue.take() == "a3"  # a has 0 again, d 1
    assert queue.take() == "d2"  # each has 1, and d has waited since before a's last turn
    assert len(queue) == 1
    queue.put_back("b", "b2")
    assert (queue.first(), len(queue)) == (("a", "a4"), 2)  # each has 1, and a has waited longer
    queue.discard("a", "a4")
    queue.discard("a", "a4")
    assert queue.first() == ("b", "b2")
    assert queue.clear() == ["b2"]
    assert (len(queue), list(queue)) == (0, [])
    assert [queue.in_progress(owner) for owner in "abcd"] == [1, 1, 1, 2]


moves = st.lists(st.tuples(st.sampled_from(["put", "take", "done"]), st.sampled_from("abcd")), max_size=60)


@given(moves=moves)
def test_nobody_is_passed_over_by_one_who_has_more(moves: list[tuple[str, str]]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    number = itertools.count()
    waiting: dict[str, list[int]] = collections.defaultdict(list)
    in_progress = collections.Counter[str]()
    for move, owner in moves:
        if move == "put":
            waiting[owner].append(next(number))
            queue.put(owner, (owner, waiting[owner][-1]))
        elif move == "take" and len(queue):
            whose, item = queue.take()
            assert item == waiting[whose].pop(0)
            assert in_progress[whose] == min(in_progress[o] for o in "abcd" if waiting[o] or o == whose)
            in_progress[whose] += 1
        elif move == "done" and in_progress[owner]:
            queue.done(owner)
            in_progress[owner] -= 1
        assert len(queue) == len(list(queue)) == sum(map(len, waiting.values()))
        assert [queue.in_progress(o) for o in "abcd"] == [in_progress[o] for o in "abcd"]


def in_rows(engine: DecodeEngine) -> set[str]:
    """The names of the sequences that have a row; their owners' names, numbered."""
    return {f"{handle.owner}{handle.index}" for handle in engine._running if not handle.sequence.finished}


def test_rows_are_given_out_by_hand() -> None:
    """Three rows; the sequences are long, and end when they are cancelled."""
    engine = Toolformer(caller(), [], max_rows=3).engine()
    handles: dict[str, Handle] = {}

    def submit(owner: str, count: int) -> None:
        for i in range(1, count + 1):
            long = GenerationSettings(max_new_tokens=400, top_k=0)
            handles[f"{owner}{i}"] = engine.submit(f"The Nile {i}", long, index=i, owner=owner)

    def after(*ended: str) -> set[str]:
        for name in ended:
            engine.cancel(handles[name])
        engine.step()
        return in_rows(engine)

    submit("a", 5)
    assert after() == {"a1", "a2", "a3"}  # nobody else is there
    submit("b", 2)
    assert after() == {"a1", "a2", "b1"}  # b has none and a three: of its rows, equally long, it gives up the last
    submit("c", 1)
    assert after() == {"a1", "b1", "c1"}  # c has none and a two: again
    submit("d", 1)
    assert after() == {"a1", "b1", "c1"}  # nobody has two, so d waits
    assert after("c1") == {"a1", "b1", "d1"}  # and is the only one who has none
    assert after("a1") == {"a2", "b1", "d1"}  # now a is; what gave up its row goes on first
    assert after("b1", "d1") == {"a2", "a3", "b2"}  # b has none and a one; then only a waits
    assert (engine.waiting, engine.running) == (2, 3)  # a4 and a5
    assert after(*handles) == set()
    assert engine.waiting == 0
    assert [generation(handle).finish for handle in handles.values()] == ["cancelled"] * 9


@pytest.mark.parametrize(("max_rows", "first"), [(3, 2), (8, 7), (8, 8), (2, 1)])
def test_two_who_come_in_one_round_when_fewer_rows_are_free(max_rows: int, first: int) -> None:
    """One of them takes the free row in the round in which the other is looked at: its row is not ready yet."""
    engine = Toolformer(caller(), [], max_rows=max_rows).engine()
    settings = GenerationSettings(max_new_tokens=20, top_k=0)
    handles = [engine.submit(f"The Nile {i}", settings, index=i, owner="a") for i in range(first)]
    engine.step()
    handles += [engine.submit("The Nile", settings, owner=owner) for owner in "bc"]
    drive(engine, lambda: all(handle.done for handle in handles))
    assert {generation(handle).finish for handle in handles} == {"length"}


def test_without_owners_it_is_first_come_first_served() -> None:
    engine = Toolformer(caller(), [], max_rows=2).engine()
    long = GenerationSettings(max_new_tokens=400, top_k=0)
    handles = [engine.submit("The Nile", long, index=i) for i in range(4)]
    for ended in range(3):
        assert engine.step()
        assert [handle.index for handle in engine._running] in ([ended, ended + 1], [ended + 1, ended])
        engine.cancel(handles[ended])


def test_a_row_is_not_given_up_to_one_who_needs_more_memory_than_that() -> None:
    """A row of up to 63 tokens takes 64 columns, one of up to 127 takes 128; there are 2 * 64."""
    engine = Toolformer(caller(), [], max_rows=8, cached_tokens=128).engine()
    small, large = (GenerationSettings(max_new_tokens=n, top_k=0) for n in (30, 90))
    for i in (1, 2):
        engine.submit("The Nile", small, index=i, owner="a")
    assert engine.step()
    first = engine.submit("The Nile", large, index=1, owner="b")
    other = engine.submit("The Nile", small, index=1, owner="c")
    assert engine.step()
    assert in_rows(engine) == {"a1", "a2"}  # beside one row of a, b would come to 2 * 128; and it is b's turn
    drive(engine, lambda: first.done and other.done)


def test_what_is_written_does_not_depend_on_turns() -> None:
    """Drawn texts with calls: five requests come at different times, and rows are given up many times."""
    tool = FakeTool(lambda input, context: str(7 * int(input)), "T")
    requests = {"a": (5, 20), "b": (1, 5), "c": (3, 8), "d": (1, 3), "e": (2, 6)}  # sequences, tokens
    alone = Toolformer(caller(), [tool])
    engine = Toolformer(caller(), [tool], max_rows=4).engine()
    handles: dict[str, list[Handle]] = {}
    given_up: list[str] = []
    put_back = engine._waiting.put_back
    engine._waiting.put_back = lambda owner, item: (given_up.append(str(owner)), put_back(owner, item))

    def settings_of(i: int, tokens: int) -> GenerationSettings:
        return GenerationSettings(max_new_tokens=tokens, top_k=1, max_calls=2, temperature=1.0, seed=i)

    for owner, (count, tokens) in requests.items():
        handles[owner] = [
            engine.submit(f"{owner}: so!", settings_of(i, tokens), index=i, owner=owner) for i in range(count)
        ]
        for _ in range(4):
            engine.step()
    drive(engine, lambda: all(h.done for each in handles.values() for h in each))
    assert given_up.count("a") >= 2
    calls = 0
    for owner, (count, tokens) in requests.items():
        wanted = alone.generate([f"{owner}: so!"] * count, [settings_of(i, tokens) for i in range(count)])
        found = [generation(handle) for handle in handles[owner]]
        assert [(g.ids, g.text) for g in found] == [(g.ids, g.text) for g in wanted]
        calls += sum(len(g.calls) for g in found)
    assert calls > 10
    assert (engine.waiting, engine.running) == (0, 0)


def test_a_sequence_that_gave_up_its_row_has_its_tool_s_answer_all_the_same() -> None:
    tool = GatedTool()
    engine = Toolformer(caller(), [tool], max_rows=2).engine()
    calling = GenerationSettings(max_new_tokens=5, top_k=1)
    handles = [engine.submit("So!", calling, index=i, owner="a") for i in (1, 2)]
    drive(engine, lambda: tool.at_work == 2)
    other = engine.submit("The Nile", calling, index=1, owner="b")
    drive(engine, lambda: other.done)  # while the tool is at work for both
    assert not any(handle.done for handle in handles)
    tool.let_go.set()
    drive(engine, lambda: all(handle.done for handle in handles))
    one, two = (generation(handle) for handle in handles)
    assert one.text == two.text
    assert [call.response for call in one.calls] == ["49"]


def test_calls_wait_by_turns() -> None:
    """One thread; when a1 is done nobody has a call at work, and a has waited longer than b."""
    tool = GatedTool()
    order: list[str] = []
    pool = ToolPool([tool], timeout_s=60, workers=1)

    def ask(name: str) -> None:
        pool.ask("T", name, "", lambda message: message(), lambda result, seconds: order.append(name), name[0])

    ask("a1")
    soon(lambda: tool.at_work == 1, DEADLINE_S, 0.002)
    for name in ("a2", "a3", "b1"):
        ask(name)
    tool.let_go.set()
    soon(lambda: len(order) == 4, DEADLINE_S, 0.002)
    assert order == ["a1", "a2", "b1", "a3"]
    pool.close()
