"""The library as a whole: names, declarations, prompts, processes. Answers are in the two files beside it."""

import re
import sys

import pytest

from toolformer_core.annotate.prefilter import prefilter
from toolformer_core.annotate.tool_prompt import prompt_for
from toolformer_core.config import TOOL_NAMES, PrefilterConfig
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.records import Document, ToolResponse
from toolformer_core.syntax import find_calls, is_tool_name
from toolformer_core.tools.build import build_tools
from toolformer_core.tools.declaration import declaration_of
from toolformer_core.tools.library import LIBRARY
from toolformer_core.tools.library.distractors import distractors

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


def test_a_tool_whose_package_is_missing_says_so_and_the_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "toolformer_core.tools.library.time_zones", raising=False)
    monkeypatch.setitem(sys.modules, "tzdata", None)
    with pytest.raises(UsageError, match="the tool time_zone needs the package tzdata: pip install tzdata"):
        build_tools(["time_zone"])
    assert list(build_tools(["units", "dictionary"])) == ["units", "dictionary"]
