"""Distractors: many, distinct, deterministic, and nothing that a real tool does."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.syntax import is_tool_name
from toolformer_core.tools.build import build_tools
from toolformer_core.tools.declaration import declaration_of
from toolformer_core.tools.library.distractors import Distractor, distractors

ALL = distractors(139)
REAL = (
    r"calculat|comput|arithmetic|\bsum\b|translat|english|question|answer|encyclop|article|\bunit|convert|time zone|"
    r"local time|logarithm|power|root|\bdates?\b|weekday|calendar|today's|definition|dictionary|"
    r"\bword|sleep|wait and|robot"
)


def test_no_description_promises_what_a_real_tool_does() -> None:
    assert [one.description for one in ALL if re.search(REAL, one.description, re.IGNORECASE)] == []


@given(st.integers(0, 139), st.integers(0, 139), st.integers(0, 3))
def test_a_smaller_library_is_the_beginning_of_a_larger_one(a: int, b: int, seed: int) -> None:
    small, large = sorted((a, b))
    assert distractors(large, seed)[:small] == distractors(small, seed)


def test_the_seed_decides_the_order_and_nothing_else() -> None:
    other = distractors(139, seed=1)
    assert other != ALL
    assert {one.key for one in other} == {one.key for one in ALL}
    with pytest.raises(UsageError, match="there are 139 distractors, so 140 cannot be given"):
        distractors(140)
    with pytest.raises(UsageError, match="-1 cannot be given"):
        distractors(-1)


def test_every_distractor_answers_its_examples_and_its_parts_are_filled_in() -> None:
    for one in ALL:
        declared = declaration_of(one)
        assert len(declared.examples) == 4
        for text in (declared.mock_response, *(_text(one, input_) for _, input_ in declared.examples)):
            assert text.strip()
            assert not re.search("[<>|]", text)


@given(st.sampled_from(ALL), st.text(min_size=1).filter(str.strip))
def test_an_answer_depends_on_the_question_alone(one: Distractor, asked: str) -> None:
    assert one.run(asked) == one.run(f"  {asked}  ", "2025-06-12")
    assert isinstance(one.run(asked), ToolResponse)


def test_answers_have_the_form_of_their_kind_and_differ() -> None:
    colour = build_tools(["distractor_colour_code"])["distractor_colour_code"]
    answers = {_text(colour, f"shade {n}") for n in range(20)}
    assert all(re.fullmatch("#[0-9]{6}", answer) for answer in answers)
    assert len(answers) > 15
    times = {_text(build_tools(["distractor_boarding_time"])["distractor_boarding_time"], f"AB {n}") for n in range(50)}
    assert all(re.fullmatch(r"Boarding from ([5-9]|1\d|2[0-2]):[0-5]\d", time) for time in times)
    lists = {_text(build_tools(["distractor_open_ports"])["distractor_open_ports"], f"web-{n}") for n in range(50)}
    pairs = [text.removeprefix("tcp ").split(", ") for text in lists]
    assert all(len(set(pair)) == 2 and pair == sorted(pair) for pair in pairs)


def test_mistakes_are_named() -> None:
    assert ALL[0].run("  ") == ToolFailure("empty_input")
    with pytest.raises(UnknownNameError, match="Did you mean 'distractor_weather'"):
        build_tools(["distractor_wether"])


def _text(one: object, asked: str) -> str:
    result = one.run(asked)  # type: ignore[attr-defined]
    assert isinstance(result, ToolResponse)
    return result.text


def test_names_and_keys_are_legal_and_no_two_alike() -> None:
    assert len({one.key for one in ALL}) == len({one.name for one in ALL}) == 139
    assert all(is_tool_name(one.name) for one in ALL)
    assert all(re.fullmatch("distractor_[a-z_]+", one.key) for one in ALL)
