"""What tools declare for grounding: examples that can stand in a call, and mock responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.errors import UsageError
from toolformer_core.records import Call, ToolResponse
from toolformer_core.syntax import find_calls, linearize
from toolformer_core.tools.build import build_tools
from toolformer_core.tools.declaration import ToolDeclaration, declaration_of


def test_the_examples_of_the_papers_tools_are_answered() -> None:
    """Those of QA and WikiSearch ask for facts that the embedded passages do not hold."""
    tools = build_tools(["calculator", "calendar", "mt"])
    answers = {
        key: [tool.run(input_, "2025-06-12") for _, input_ in declaration_of(tool).examples]
        for key, tool in tools.items()
    }
    # 48 + 27 = 75; 350 - 112 = 238; 14 * 36 = 504; 81 / 5 = 16.2
    assert answers["calculator"] == [ToolResponse(text) for text in ("75", "238", "504", "16.20")]
    assert answers["calendar"] == [ToolResponse("Today is Thursday, June 12, 2025.")] * 4
    translated = [ToolResponse(text) for text in ("the old house", "the black cat", "the white horse", "welcome")]
    assert answers["mt"] == translated
    for key, results in answers.items():
        assert ToolResponse(declaration_of(tools[key]).mock_response) in results


@pytest.mark.parametrize(
    ("question", "input_", "wrong"),
    [
        ("", "x", "the question of an example, '', is empty"),
        ("How\nfar?", "x", "has several lines"),
        ("How far?", "5\nmiles", "the input of the example 'How far\\?' has several lines"),
        ("How far?", " 5 miles", "without spaces at its ends"),
        ("How far?", '"5 miles"', "without quotes around all of it"),
        ("How far?", "[5 miles", "close every bracket in it"),
        ("How far?", "5) -> 8", "close every bracket in it"),
        ("How far?", "\ud800", "is not UTF-8 text"),
        ("How far?", "5 " * 5_000 + "miles", "would not be read from a call"),  # longer than a call may be
    ],
)
def test_examples_that_cannot_be_used_are_refused(question: str, input_: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        ToolDeclaration(examples=(("How high?", "3 feet"), (question, input_)))


@given(st.text("ab ()[]\"'->→\n", max_size=12))
def test_an_input_is_accepted_exactly_if_it_is_read_back_from_the_call(input_: str) -> None:
    found = list(find_calls(linearize(Call("Miles", input_), "8 km"), ["Miles"]))
    carried = [call.call.input for call in found] == [input_] and found[0].response == "8 km"
    try:
        ToolDeclaration(examples=(("How far?", input_),))
    except UsageError:
        assert not carried or "\n" in input_
    else:
        assert carried
