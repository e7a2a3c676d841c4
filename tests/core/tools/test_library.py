"""The library as a whole: names, declarations, prompts, processes; and the distractors."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.annotate.prefilter import prefilter
from toolformer_core.annotate.tool_prompt import prompt_for
from toolformer_core.config import TOOL_NAMES, PrefilterConfig
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.records import Document, ToolFailure, ToolResponse
from toolformer_core.syntax import find_calls, is_tool_name
from toolformer_core.tools.build import build_tools
from toolformer_core.tools.declaration import declaration_of
from toolformer_core.tools.library import LIBRARY
from toolformer_core.tools.library.distractors import Distractor, distractors

TODAY = "2025-06-12"


def test_every_tool_is_built_by_its_name_beside_the_papers() -> None:
    tools = build_tools(["calculator", *LIBRARY])
    assert list(tools) == ["calculator", *LIBRARY]
    assert all(is_tool_name(tool.name) for tool in tools.values())
    assert {declaration_of(tools[key]).origin for key in LIBRARY} == {"library"}
    assert build_tools(["Convert=units"])["convert"].name == "Convert"
    with pytest.raises(UnknownNameError, match="Did you mean 'units'"):
        build_tools(["unitz"])


def test_every_tool_answers_its_own_examples() -> None:
    for key, tool in build_tools(list(LIBRARY)).items():
        examples = declaration_of(tool).examples
        assert 3 <= len(examples) <= 5
        for _, input_ in examples:
            assert isinstance(tool.run(input_, TODAY), ToolResponse), (key, input_)


def test_every_description_question_and_mock_response_is_its_own() -> None:
    tools = [*build_tools([*TOOL_NAMES, *LIBRARY]).values(), *distractors(139)]
    declared = [declaration_of(tool) for tool in tools]
    questions = [question for one in declared for question, _ in one.examples]
    for texts in (
        [tool.description for tool in tools],
        [tool.name for tool in tools],
        [one.mock_response for one in declared],
        questions,
    ):
        assert all(text.strip() for text in texts)
        assert len(set(texts)) == len(texts)
    assert all(tool.description.endswith(".") for tool in tools)


def test_the_calls_in_every_prompt_are_answered_as_the_prompt_says() -> None:
    """Of numbers the response stands right behind the call; a definition may be shortened."""
    for key, tool in build_tools(list(LIBRARY)).items():
        prompt = prompt_for(tool)
        calls = [call for call in find_calls(prompt.head, [tool.name]) if "..." not in call.call.input]
        shown = [call for call in calls if prompt.head[: call.start].rfind("Output:") > 0]
        assert len(shown) == 4, key
        for call in shown:
            answer = tool.run(call.call.input)
            assert isinstance(answer, ToolResponse), (key, call.call.input)
            if key in ("logarithm", "power"):
                assert re.match(rf" {re.escape(answer.text)}\b", prompt.head[call.end :]), call
            if key in ("units", "date_arithmetic", "time_zone"):  # 8.05 km is written, and no weekday, and 5:00
                first = (re.findall(r"[1-9]\d*", answer.text) or [answer.text])[0]
                assert first in prompt.head[call.end : call.end + 20], call


def test_the_sentences_in_every_prompt_are_ones_that_the_tool_is_tried_on() -> None:
    for key, tool in build_tools(list(LIBRARY)).items():
        for text in re.findall("^Input: (.+)$", prompt_for(tool).head, re.MULTILINE):
            document = Document("d", text, None, None, "f", 1)
            conditions = declaration_of(tool).filter
            assert conditions  # a tool that is tried on every document of a corpus costs hours
            (result,) = prefilter(key, [document], PrefilterConfig(), lambda _: ("en", 0.9), conditions)
            assert result.kept, (key, text)


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
