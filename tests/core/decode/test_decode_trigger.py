"""Thresholds on p(" ["): which brackets open, which calls go on, and what is left of those that do not."""

import itertools
import random
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from writers import after, merging, torn, writing_lm

from tests.fakes import FakeTool
from tests.tiny import TEXTS, tiny_lm, tokenizer
from toolformer_core.decode.records import DecodeEvent, Finished, Generation, GenerationSettings
from toolformer_core.decode.sequence import DecodeSequence, ModelInfo
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.lm.hf.engine import TransformersLM as LM
from toolformer_core.records import Call, ToolResponse

T = partial(FakeTool, name="T")


def letters(text: str) -> list[int]:
    return after(tokenizer(), text)


MODEL = ModelInfo(tokenizer(), tuple(letters(" [")), frozenset({0}), 512, {"T": "t", "U": "u"})


def script(
    settings: GenerationSettings, p: float, call: str, *, chosen: bool = False, tokens: tuple[int, ...] = ()
) -> tuple[DecodeSequence, Call | None]:
    """A sequence behind "x" in which " [" (each of its `tokens`) has probability p, and the question that it asks.

    By a model that writes "y", and this call behind " ["; with `chosen` " [" is its own choice.
    """
    model = replace(MODEL, trigger=tokens or MODEL.trigger)
    sequence = DecodeSequence(model, letters("x"), settings, lambda event: None, 0)
    (y,) = letters("y")
    for token in model.trigger:
        if sequence.trigger == token:
            sequence.advance(token if chosen else y, 0 if chosen else 3, lambda: y, p)
    opened = len(sequence.ids) > len(letters("x")) and sequence.ids[-1] != y
    for token in letters(call) if opened else ():
        if sequence.trigger is not None or sequence._pending_call is not None:  # taken back, or at its arrow
            break
        if (request := sequence.advance(token, 0, lambda: y)) is not None:
            return sequence, request
    return sequence, None


TWO = GenerationSettings(trigger={"t": 0.2, "u": 0.6})


# less than the least, .2; just enough for T; between the two; enough for both
@pytest.mark.parametrize(("p", "called"), [(0.1, []), (0.2, ["T"]), (0.4, ["T"]), (0.6, ["T", "U"])])
@pytest.mark.parametrize("chosen", [False, True])
def test_two_tools_with_thresholds_of_their_own(p: float, called: list[str], chosen: bool) -> None:
    for name in ("T", "U"):
        sequence, request = script(TWO, p, f"{name}(7) ->", chosen=chosen)
        assert request == (Call(name, "7") if name in called else None)
        if name not in called:
            assert sequence.ids == letters("x") + letters("y")  # as if " [" had been impossible
            assert sequence.calls_left == 1


@pytest.mark.parametrize(
    ("settings", "opens"),
    [
        (replace(TWO, trigger={"t": 0.31, "u": 0.6}), False),
        (replace(TWO, trigger={"t": 0.29, "u": 0.6}), True),
        (replace(TWO, tools=("u",)), False),  # .3 is less than .6, and T may not be called
        (replace(TWO, trigger={"u": 0.6}), True),  # T has no threshold: 0
        (replace(TWO, trigger={"qa": 0.6}), True),  # nor has any tool that is there
        (replace(TWO, tools=(), trigger={"u": 0.6}), True),  # no tool may be called: as without thresholds
    ],
)
def test_a_bracket_opens_at_the_least_threshold_of_tools_that_may_be_called(
    settings: GenerationSettings, opens: bool
) -> None:
    sequence, _ = script(settings, 0.3, "")
    assert (sequence.ids[-1] == letters(" [")[0]) == opens


def test_the_probability_of_a_trigger_of_two_tokens_is_their_product() -> None:
    # .5 x .5 = .25: at least T's .2, less than U's .6, although the first token alone has .5
    pieces = tuple(letters(" ")[:1] + letters("["))
    for name, request in (("T", Call("T", "7")), ("U", None)):
        assert script(TWO, 0.5, f"{name}(7) ->", tokens=pieces)[1] == request
    # .4 opens the first token; .4 x .4 = .16 is less than .2: taken back, and no call of any tool is used up
    sequence, request = script(TWO, 0.4, "T(7) ->", tokens=pieces)
    assert (sequence.ids, request, sequence.calls_left) == (letters("x") + letters("y"), None, 1)


def test_a_text_in_brackets_needs_no_probability() -> None:
    sequence, _ = script(TWO, 0.01, "3", chosen=True)
    assert sequence.ids == letters("x") + letters(" [") + letters("3")


def said(lm: LM, settings: GenerationSettings, *tools: FakeTool) -> Generation:
    (g,) = Toolformer(lm, tools or [T({"7": "49"})]).generate(["So!"], settings)
    return g


TORN = GenerationSettings(max_new_tokens=4, top_k=2)


@pytest.mark.parametrize("words", [(), ("T(7) ->",)], ids=["letters", "one token"])
def test_a_call_is_made_from_its_threshold_on(words: tuple[str, ...]) -> None:
    chosen = set()
    for seed in range(6):
        lm, p = torn(merging(*words), "T(7) ->", seed)
        free = said(lm, TORN)
        enough = said(lm, replace(TORN, trigger={"t": p * 0.999}))
        assert (len(free.calls), enough.ids) == (1, free.ids)
        tool = T({"7": "49"})
        little = said(lm, replace(TORN, trigger={"t": p * 1.001}), tool)
        disabled = said(lm, replace(TORN, top_k=0))
        assert (little.calls, little.ids, little.text, tool.asked) == ((), disabled.ids, disabled.text, [])
        assert little.taken_back == (p > 0.5)  # else it was not opened at all
        chosen.add(p > 0.5)
    assert chosen == {False, True}


@pytest.mark.parametrize(
    ("written", "key", "failure"),
    [("T->", "t", "bad_syntax"), ("QA(7) ->", "qa", "not_enabled")],  # QA is the paper's, and absent
)
def test_a_call_that_no_tool_would_answer_has_a_threshold_too(written: str, key: str, failure: str) -> None:
    lm, p = torn(merging("->"), written)
    assert said(lm, TORN).calls[0].failure == failure
    assert said(lm, replace(TORN, trigger={key: p * 0.999})).calls[0].failure == failure
    assert said(lm, replace(TORN, trigger={key: p * 1.001})).calls == ()


def test_an_abandoned_bracket_uses_up_no_call_and_is_not_opened_again_at_its_place() -> None:
    events: list[DecodeEvent] = []
    sequence = DecodeSequence(MODEL, letters("x"), replace(TWO, max_calls=1), events.append, 0)
    (y,) = letters("y")
    for _ in range(3):  # .4 is enough to open, as U's .6 is not the least; and too little for U
        sequence.advance(y, 3, lambda: y, 0.4)
        assert sequence.trigger is None
        for token in letters("U("):
            assert sequence.advance(token, 0, lambda: y) is None
        assert (sequence.ids[-1], sequence.trigger) == (y, *MODEL.trigger)  # text again, one token further
    assert (sequence.ids, sequence.calls_left) == (letters("x") + [y] * 3, 1)
    sequence.advance(y, 3, lambda: y, 0.4)
    requests = [sequence.advance(token, 0, lambda: y) for token in letters("T(7) ->")]
    assert requests[-1] == Call("T", "7")
    sequence.answer(ToolResponse("49"), 0.0)
    assert (sequence.calls_left, sequence.forbidden) == (0, *MODEL.trigger)
    sequence.end("stop")
    assert isinstance(events[-1], Finished)
    assert events[-1].generation.taken_back == 3


@pytest.mark.parametrize("trigger", [{}, {"t": 0.0}, {"t": 0.0, "calculator": 1.0}])
def test_a_threshold_of_zero_is_none(trigger: dict[str, float]) -> None:
    coded = tokenizer()
    lm = writing_lm("gpt2", coded, [([a], [b]) for a, b in itertools.pairwise(after(coded, " [T(7) ->"))])
    wide = GenerationSettings(max_new_tokens=12, top_k=len(coded), max_calls=2)
    free, same = (
        Toolformer(lm, [T({"7": "49"})]).generate(TEXTS, settings)
        for settings in (wide, replace(wide, trigger=trigger))
    )
    assert [g.ids for g in same] == [g.ids for g in free]
    assert sum(len(g.calls) for g in free) >= 5


def write(settings: GenerationSettings, seed: int) -> tuple[list[int], list[tuple[str, float]]]:
    """What a model writes that is settled by the seed and the text so far, and the tool and p(" [") of its calls."""
    sequence = DecodeSequence(MODEL, letters("x"), settings, lambda event: None, 0)
    (trigger,), y = MODEL.trigger, letters("y")[0]
    calls: list[tuple[str, float]] = []
    opened_at = 0.0
    rest: list[int] = []
    while not sequence.finished:
        rng = random.Random(f"{seed} {sequence.ids}")
        rank, p = rng.randrange(4), rng.random()
        if sequence.trigger is not None:
            rest = letters(f"{rng.choice('TU')}({len(sequence.ids)}) ->")  # a repeated call would ask no tool
            opened_at = p
            sequence.advance(trigger if rank == 0 else y, rank, lambda: y, p)
        elif sequence.forbidden is not None:
            sequence.advance(y, 0, lambda: y)
        elif (request := sequence.advance(rest.pop(0), 0, lambda: y)) is not None:
            calls.append((request.tool, opened_at))
            sequence.answer(ToolResponse("49"), 0.0)
    return sequence.ids, calls


_probabilities = st.floats(0, 1)


@given(st.integers(), st.integers(0, 4), st.integers(0, 3), _probabilities, _probabilities)
def test_every_call_was_opened_at_its_tools_threshold(seed: int, k: int, most: int, t: float, u: float) -> None:
    settings = GenerationSettings(max_new_tokens=12, top_k=k, max_calls=most)
    ids, calls = write(replace(settings, trigger={"t": t, "u": u}), seed)
    assert all(p >= {"T": t, "U": u}[tool] for tool, p in calls)
    assert len(calls) <= most
    assert ids.count(letters("y")[0]) == 12
    free, free_calls = write(settings, seed)
    assert write(replace(settings, trigger={"t": 0.0}), seed) == (free, free_calls)
    if all(p >= max(t, u) for _, p in free_calls):  # no call that is made without thresholds is lost
        assert calls[: len(free_calls)] == free_calls


def test_thresholds_are_probabilities_of_known_tools() -> None:
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(UsageError, match=r"in \[0, 1\]"):
            GenerationSettings(trigger={"t": wrong})
    with pytest.raises(UnknownNameError, match=r"unknown tool in trigger 'calculater'\. Did you mean 'calculator'"):
        Toolformer(tiny_lm(), [T({})]).generate(["x"], GenerationSettings(trigger={"calculater": 0.1}))
